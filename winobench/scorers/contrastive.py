"""Image-text matching with CLIP (Radford et al., 2021) and SigLIP (Zhai et al., 2023), from vectors of both.

CLIP's score is the cosine; SigLIP's is the logit of its sigmoid: scale * cosine + bias.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from winobench import parallel
from winobench.base import extensions
from winobench.base.texts import checked_list, checked_texts
from winobench.checkpoints import clip_layouts, sources, tokenizer_files
from winobench.data.processors import ImageProcessor
from winobench.engine import batch_size as batch_sizes
from winobench.engine import tables
from winobench.engine.batch_size import BatchSize
from winobench.engine.limits import Limit
from winobench.models import clip_model, functional, states
from winobench.models.clip_model import CLIPModel
from winobench.models.snapshots import HasSnapshots
from winobench.scorers import common, networks
from winobench.scorers.networks import NetworkFunction

# Raised whenever a score that is computed here could change by more than rounding.
SCORING_VERSION = 1

# Work of one batch of images on each device in pixels, on accelerators and on CPUs, and its largest number of images.
_PIXELS = Limit(64 * 224 * 224, cpu=8 * 224 * 224)
_MAX_IMAGES = Limit(256, cpu=32)
_TEXTS = Limit(256, cpu=32)
# Batches that may be under way before a result is waited for: the device always has the next one available.
_BATCHES_AHEAD = 2
# Pairs whose vectors are gathered at once; 64 MB with vectors of 1,024 numbers.
_PAIRS_AT_ONCE = 4096


class Texts(NamedTuple):
    """(tokenizer, texts, length) -> int32 [num_texts, length], and tokenizer -> JSON values that identify it."""

    ids: Callable[[Any, Sequence[str], int], np.ndarray]
    identity: Callable[[Any], Sequence[Any]]


TEXTS_OF: dict[type, Texts] = {
    # Which token pads, where OpenCLIP (0) and transformers (the end of text) differ, makes no difference: the state
    # of the first end of text is used, and attention is causal.
    CLIPModel: Texts(tokenizer_files.clip_ids, tokenizer_files.vocabulary_and_merges),
}
"""Class of a model -> how its texts become tokens. Packages add their own classes."""

_SIGLIP = ("siglip", "siglip2")  # ``model_type`` of config.json, and of the NaFlex variant, which is refused


def _image_vectors(model: Any, images: jax.Array, processor: ImageProcessor) -> jax.Array:
    """Images as unit vectors: uint8 [n, size, size, 3] -> float32 [n, width]."""
    return clip_model.unit(model.encode_images(processor.normalize(images)))


def _text_vectors(model: Any, ids: jax.Array) -> jax.Array:
    """Token ids as unit vectors: int32 [n, length] -> float32 [n, width]."""
    return clip_model.unit(model.encode_texts(ids))


class Contrastive(HasSnapshots):
    """Scores how well texts fit images with CLIP or SigLIP.

    Each call uses the weights that the model has when the call begins.

    Attributes:
      model: the network.
      tokenizer: a ``transformers.CLIPTokenizer``, or a SigLIP's.
      processor: makes images ready for the network.
      mesh: the devices.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        processor: ImageProcessor,
        *,
        batch_size: int | None = None,
        mesh: Mesh | None = None,
    ):
        """Puts a model on the devices.

        Args:
          model: the network. It computes in the dtype that it was loaded in.
          tokenizer: a ``transformers.CLIPTokenizer``. Of a SigLIP as its package reads it.
          processor: makes images ready for the network.
          batch_size: images that each device encodes at once. Chosen for the kind of device when None.
          mesh: the devices, from `winobench.parallel.make_mesh`. All of this process when None, or those CPU devices
            whose memory holds a copy of the parameters each.

        Raises:
          InputError: when an option is not one of its choices.
        """
        networks.check_made("model", model, "config")
        networks.check_made("processor", processor, "size")
        self.model = model
        self.tokenizer = tokenizer
        self.processor = processor
        self.mesh = common.mesh_for(functional.split(model)[1], mesh)
        height, width = processor.size
        if batch_size is None:
            batch_size = min(max(1, _PIXELS.on(self.mesh) // (height * width)), _MAX_IMAGES.on(self.mesh))
        self._image_size = BatchSize(common.positive("batch_size", batch_size), self.mesh, "image")
        self._text_size = BatchSize(_TEXTS.on(self.mesh), self.mesh, "text")
        self.snapshot()

    def _place(self, model: Any) -> None:
        tokenizer_files.check_size(self.tokenizer, model.config.text_config.vocab_size, "of this scorer")
        self._image_encoder: Any = None  # frees memory for the new ones
        self._text_encoder: Any = None
        self._texts = TEXTS_OF[type(model)]
        self._scale, self._bias = _terms(model)
        structure, params = networks.place(model, self.mesh)
        encode_image = NetworkFunction(structure, _image_vectors, (self.processor,))
        encode_text = NetworkFunction(structure, _text_vectors)
        self._image_encoder = tables.Encoder(encode_image, params, self.mesh, self._image_size)
        self._text_encoder = tables.Encoder(encode_text, params, self.mesh, self._text_size)

    @property
    def batch_size(self) -> int:
        """Images that each device encodes at once. Less than at first if its memory did not hold that many."""
        return self._image_size.per_device

    @classmethod
    def from_pretrained(
        cls,
        source: str | os.PathLike[str],
        dtype: str = "float32",
        *,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
        **options: Any,
    ) -> Contrastive:
        """Loads a model and makes it a scorer.

        Args:
          source: a name in `winobench.base.registry.MODELS`, a folder, or a hub id, in a layout that
            `winobench.checkpoints.clip_layouts` describes, or a SigLIP.
          dtype: ``float32`` or ``bfloat16``, of the parameters and of the computation. Norms, attention scores and what
            becomes of the vectors are float32 in either case.
          variant: of the weight files, such as ``fp16``.
          revision: branch, tag or commit of a hub id.
          allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
          **options: ``batch_size`` and ``mesh``, as in `Contrastive`.

        Raises:
          InputError: when files are missing or damaged, or an option is not one of its choices.
        """
        networks.check_options(cls, options)
        resolved = sources.resolve(source, revision=revision)
        load = _loader(resolved)
        model, processor, tokenizer = load(resolved, dtype=dtype, variant=variant, allow_pickle=allow_pickle)
        return cls(model, tokenizer, processor, **options)

    def score(self, images: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
        """Scores every text for every image. Those that are given more than once are encoded once.

        Args:
          images: anything that `winobench.data.images.open_image` takes.
          texts: strings.

        Returns:
          float32 [num_images, num_texts], the cosines, or the logits of a SigLIP. Higher = better match.

        Raises:
          InputError: for an empty list, an unreadable image, a text that is not a string, or a score that is not
            finite.
        """
        snapshot = self.snapshot()
        of_images, of_texts = snapshot.encode_images(images), snapshot.encode_texts(texts)
        return common.finite_scores(snapshot._scores(of_images.astype(np.float64) @ of_texts.T.astype(np.float64)))

    def iter_scores(
        self, images: Sequence[Any], texts: Sequence[str], pairs: ArrayLike
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The scores of chosen pairs, as the devices return the vectors.

        Each image and each text that a pair names is encoded once, in order of first use.

        Args:
          images: as in `score`.
          texts: as in `score`.
          pairs: int [n, 2], rows (number of the image, number of the text).

        Returns:
          An iterator over (int [b], rows of ``pairs``, their float32 scores [b]), each row once, in their order.

        Raises:
          InputError: at once for an empty list, or an argument that is not as described. While iterating for an image
            that cannot be read.
        """
        images, texts = checked_list("images", images), checked_texts(texts)
        return self.snapshot()._run(images, texts, common.checked_pairs(pairs, len(images), len(texts)))

    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """Encodes images. Those that are given more than once are encoded once.

        Args:
          images: anything that `winobench.data.images.open_image` takes.

        Returns:
          float32 [num_images, width], of length 1.

        Raises:
          InputError: for an empty list, or an image that cannot be read.
        """
        images = checked_list("images", images)
        first, number = common.distinct([common.image_key(image) for image in images])
        return np.concatenate(list(self.snapshot()._image_batches(images, first)))[number]

    def encode_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Encodes texts. Those that are given more than once are encoded once.

        Args:
          texts: strings. Longer ones than the model takes are cut off, and their number is logged.

        Returns:
          float32 [num_texts, width], of length 1.

        Raises:
          InputError: for an empty list, or a text that is not a string.
        """
        texts = checked_texts(texts)
        first, number = common.distinct(texts)
        return np.concatenate(list(self.snapshot()._text_batches(texts, first)))[number]

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this scorer that can change a score by more than rounding, ready for JSON.

        Not in it: the number of devices and the batch size, which change the last bits only.
        """
        snapshot = self.snapshot()
        return {
            "scorer": "contrastive",
            "scoring_version": SCORING_VERSION,
            "model": snapshot._model_fingerprint(),
            "dtype": snapshot.model.dtype.name,
        }

    def _model_fingerprint(self) -> str:
        changes = states.changes_of_tokenizer(self.tokenizer)
        return networks.fingerprint(
            self.model,
            processor=dataclasses.asdict(self.processor),
            tokenizer=[*self._texts.identity(self.tokenizer), self._max_text_tokens, *changes],
        )

    @property
    def _max_text_tokens(self) -> int:
        return self.model.config.text_config.max_position_embeddings

    def _run(self, images: list[Any], texts: list[str], pairs: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        if not len(pairs):
            return
        with contextlib.ExitStack() as stack:
            columns = []
            for items, named, batches in (
                (images, pairs[:, 0], self._image_batches),
                (texts, pairs[:, 1], self._text_batches),
            ):
                numbers, _ = tables.first_uses(named)
                positions = np.zeros(len(items), np.int64)
                positions[numbers] = np.arange(len(numbers))
                stream = stack.enter_context(contextlib.closing(batches(items, numbers.tolist())))
                columns.append(_Column(positions[named], len(numbers), stream))
            start = 0
            while start < len(pairs):
                for column in columns:
                    column.encode_for(start)
                ready = min(column.pairs_ready() for column in columns)
                for begin in range(start, ready, _PAIRS_AT_ONCE):
                    end = min(begin + _PAIRS_AT_ONCE, ready)
                    left, right = (column.vectors[column.rows[begin:end]].astype(np.float64) for column in columns)
                    yield np.arange(begin, end), self._scores(np.einsum("nd,nd->n", left, right))
                start = ready

    def _image_batches(self, images: Sequence[Any], numbers: Sequence[int]) -> Generator[np.ndarray, None, None]:
        """Vectors of some images, in order, batch by batch. Threads read images ahead of the devices."""
        loaded = tables.load_ahead(
            lambda number: self.processor(images[number]), numbers, 2 * self._image_encoder.batch_size
        )
        with contextlib.closing(loaded):
            yield from _encoded(self._image_encoder, loaded)

    def _text_batches(self, texts: Sequence[str], numbers: Sequence[int]) -> Generator[np.ndarray, None, None]:
        yield from _encoded(self._text_encoder, iter(self._tokenize([texts[number] for number in numbers])))

    def _tokenize(self, texts: list[str]) -> np.ndarray:
        """Token ids, int32 [num_texts, longest text of the model]."""
        return self._texts.ids(self.tokenizer, texts, self._max_text_tokens)

    def _scores(self, cosines: np.ndarray) -> np.ndarray:
        """Cosines in float64 -> the scores of the same pairs in float32."""
        return (self._scale * cosines + self._bias).astype(np.float32)


def _loader(source: sources.Source) -> Callable[..., Any]:
    """The function that loads a model of a source's kind."""
    path = source.find("config.json")
    if path is not None and sources.read_json(path).get("model_type") in _SIGLIP:
        return extensions.find(extensions.PARTS, "siglip").load_siglip
    return clip_layouts.load_clip


def _terms(model: Any) -> tuple[float, float]:
    """Factor and summand that make a score of a cosine."""
    if isinstance(model, CLIPModel):
        return 1.0, 0.0
    scale, bias = (np.float64(parameter[...][0]) for parameter in (model.logit_scale, model.logit_bias))
    return float(np.exp(scale)), float(bias)


class _Column:
    """The images or the texts of some pairs, and the vectors that are encoded so far."""

    def __init__(self, rows: np.ndarray, num_items: int, batches: Iterator[np.ndarray]):
        self.rows = rows
        self.vectors: Any = None  # until some are encoded
        self._num_items = num_items
        self._batches = batches
        self._encoded = 0
        # Pair k and those before it need the rows up to this one.
        self._last_row = np.maximum.accumulate(rows)

    def encode_for(self, pair: int) -> None:
        """Encodes until the row of a pair is there."""
        while self._encoded <= self.rows[pair]:
            batch = next(self._batches)
            if self.vectors is None:
                self.vectors = np.zeros((self._num_items, batch.shape[1]), np.float32)
            self.vectors[self._encoded : self._encoded + len(batch)] = batch
            self._encoded += len(batch)

    def pairs_ready(self) -> int:
        """Number of first pairs whose rows are encoded."""
        return int(np.searchsorted(self._last_row, self._encoded))


def _encoded(encoder: tables.Encoder, items: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    """Yields float32 [up to batch_size, width]. A batch that does not fit into memory is halved, for good."""
    waiting: collections.deque[tuple[list[np.ndarray], jax.Array]] = collections.deque()
    undone: collections.deque[np.ndarray] = collections.deque()
    while True:
        size = encoder.batch_size
        batch = [undone.popleft() for _ in range(min(size, len(undone)))]
        batch += itertools.islice(items, size - len(batch))
        if not batch and not waiting:
            return
        try:
            if batch:
                vectors = encoder.encode(batch)
                waiting.append((batch, vectors))
                vectors.copy_to_host_async()
            if batch and len(waiting) <= _BATCHES_AHEAD:
                continue
            finished = parallel.fetch(waiting[0][1])[: len(waiting[0][0])]
        except jax.errors.JaxRuntimeError as error:
            if not batch_sizes.is_out_of_memory(error):
                raise
            started = [item for items_of_batch, _ in waiting for item in items_of_batch]
            if not waiting or waiting[-1][0] is not batch:
                started += batch
            undone.extendleft(reversed(started))
            waiting.clear()
            encoder.size.halve(error)
            continue
        waiting.popleft()
        yield finished
