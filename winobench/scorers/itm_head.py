"""Image-text matching with BLIP (Li et al., 2022): a head that was trained to tell matching pairs from others.

Its work is laid out for many pairs. An image is encoded once, down to the keys and values that the text encoder's
cross-attentions make of it: these are two thirds of the work of a pair, and the same for each text. A text is tokenised
once. A pair then costs one pass of the text encoder, or with the contrastive head one dot product.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike

from winobench import parallel, registry
from winobench.checkpoints import encoder_layouts, models, processor_files, sources, tokenizer_files
from winobench.data.processors import ImageProcessor
from winobench.engine import batch_size as batch_sizes
from winobench.engine import tables
from winobench.engine.limits import Limit, table_rows
from winobench.errors import InputError
from winobench.models import functional
from winobench.models.blip import BlipForImageTextRetrieval
from winobench.scorers import common, networks
from winobench.scorers.networks import NetworkFunction
from winobench.texts import check_texts, checked_list, checked_texts, count_truncated, log_truncated

# Raised whenever a score that is computed here could change by more than rounding.
SCORING_VERSION = 1

HEADS = ("itm", "itc")
FIRST_TOKENS = ("enc", "cls")

# Longest text in tokens, with those at both ends: what BLIP was trained and published with on captions.
_MAX_TEXT_TOKENS = 35
# Texts are padded to a multiple of this.
_TEXT_STEP = 8
# Pairs, images and texts that each device works on at once, on accelerators and on CPUs.
_PAIRS = Limit(32, cpu=4)
_IMAGES = Limit(16, cpu=2)
_TEXTS = Limit(64, cpu=16)
# Memory of the tables of images and of texts. At full size an image's keys and values
# take 42 MB in float32.
_TABLE_BYTES = Limit(1 << 32, cpu=1 << 29)


def _encode_images(model: BlipForImageTextRetrieval, images: jax.Array, processor: ImageProcessor, head: str) -> Any:
    """Images as the pairs need them: uint8 [n, size, size, 3] -> a pytree of arrays [n, ...]."""
    states = model.image_states(processor.normalize(images))
    return model.image_keys_values(states) if head == "itm" else model.image_features(states)


def _encode_texts(model: BlipForImageTextRetrieval, texts: jax.Array, head: str) -> jax.Array:
    """Texts as the pairs need them: int32 [n, tokens + 1], the last number the length, -> the same, or features."""
    return texts if head == "itm" else model.text_features(texts[:, :-1], texts[:, -1])


@dataclasses.dataclass(frozen=True)
class _Step:
    """What the step over pairs is compiled for: equal values share a compilation."""

    structure: functional.Structure
    head: str
    mesh: Mesh


@functools.partial(jax.jit, static_argnames="how")
def _score_pairs(how: _Step, params: Any, images: Any, texts: jax.Array, index: jax.Array) -> jax.Array:
    """One score for each column of ``index``, int32 [2, n]: image row, text row. Float32 [n]."""

    def pairs_of_one_device(params, images, texts, index):
        images = jax.tree.map(lambda table: table[index[0]], images)
        texts = texts[index[1]]
        if how.head == "itc":
            return (images * texts).sum(axis=-1)
        model = how.structure.module(params)
        with functional.precision(model.dtype):
            logits = model.match_logits(texts[:, :-1], texts[:, -1], images)
        return logits[:, 1] - logits[:, 0]

    whole, split = PartitionSpec(), PartitionSpec(parallel.DATA_AXIS)
    in_specs = (whole, whole, whole, PartitionSpec(None, parallel.DATA_AXIS))
    return parallel.map_over_data(pairs_of_one_device, how.mesh, in_specs, split)(params, images, texts, index)


class ItmHead:
    """Scores how well texts fit images with BLIP.

    The score of ``head="itm"`` is the log-odds of a match, the logit of match less that of mismatch. The published
    evaluation shows the softmax probability, which is the logistic function of it and ranks pairs in the same order,
    but is exactly 1 in float32 from log-odds of 17 on, where it makes ties; log-odds are never cut off. The score of
    ``head="itc"`` is the cosine of the image's and the text's vector.

    Attributes:
      model: the network.
      head: ``itm`` or ``itc``.
      first_token: ``enc`` or ``cls``.
      max_text_tokens: longer texts are cut off.
      mesh: the devices.
    """

    def __init__(
        self,
        model: BlipForImageTextRetrieval,
        tokenizer: Any,
        processor: ImageProcessor,
        *,
        head: str = "itm",
        first_token: str | None = None,
        max_text_tokens: int | None = None,
        batch_size: int | None = None,
        table_rows: int | None = None,
        mesh: Mesh | None = None,
    ):
        """Puts a model on the devices.

        Args:
          model: the network; it computes in the dtype that it was loaded in.
          tokenizer: a ``transformers.BertTokenizer``.
          processor: makes images ready for the network.
          head: ``itm`` (matching) looks at image and text together; ``itc`` (contrast) compares a vector of each.
          first_token: the token that stands for the whole text. ``enc``, the default of ``itm``, is BLIP's token
            ``[ENC]``, with which the matching head was trained and its retrieval results were published; ``cls``, the
            default of ``itc`` and the only choice there, is BERT's, which transformers' processor gives both heads.
          max_text_tokens: longer texts are cut off, both ends' tokens included; 35 when None, as published, or as many
            as the network has positions for.
          batch_size: pairs that each device works on at once; chosen for the kind of device when None.
          table_rows: how many encoded images, and how many texts, are kept on the device; as many as fit into a fixed
            amount of memory, and at least those of one batch, when None. An evaluation may have more of both.
          mesh: the devices, from `winobench.parallel.make_mesh`; all of this process when None, or those CPU devices
            among them that there is memory for copies of the parameters for.

        Raises:
          InputError: when an option is not one of its choices, or the parts do not fit each other.
        """
        self.model = model
        self.tokenizer = tokenizer
        self.processor = processor
        self.head = common.choice("head", head, HEADS)
        if first_token is None:
            first_token = "enc" if head == "itm" else "cls"
        self.first_token = common.choice("first_token", first_token, FIRST_TOKENS if head == "itm" else ("cls",))
        text, vision = model.config.text_config, model.config.vision_config
        if max_text_tokens is None:
            max_text_tokens = min(_MAX_TEXT_TOKENS, text.max_position_embeddings)
        self.max_text_tokens = common.positive("max_text_tokens", max_text_tokens)
        if not 3 <= self.max_text_tokens <= text.max_position_embeddings:
            raise InputError(
                f"max_text_tokens is {max_text_tokens}, but this model takes 3 to {text.max_position_embeddings}",
                code="out-of-range",
            )
        self._check_vocabulary()
        if processor.size != (vision.image_size, vision.image_size):
            raise InputError(
                f"the image processor makes images of {processor.size[0]} x {processor.size[1]} pixels, but the network"
                f" takes {vision.image_size} x {vision.image_size}: check that both are of the same model",
                code="mismatched-parts",
            )

        structure, self._params, self.mesh = networks.place(model, mesh)
        pairs = common.positive("batch_size", _PAIRS.on(self.mesh) if batch_size is None else batch_size)
        self._size = batch_sizes.BatchSize(pairs, self.mesh, "pair")
        self._step = _Step(structure, self.head, self.mesh)
        encode_image = NetworkFunction(structure, _encode_images, (processor, self.head))
        encode_text = NetworkFunction(structure, _encode_texts, (self.head,))
        self._image_encoder = tables.Encoder(encode_image, self._params, self.mesh, _IMAGES.on(self.mesh), "image")
        self._text_encoder = tables.Encoder(encode_text, self._params, self.mesh, _TEXTS.on(self.mesh), "text")
        if table_rows is not None:
            self._image_rows = self._text_rows = common.positive("table_rows", table_rows)
        else:
            ids = np.zeros((1, self.max_text_tokens + 1), np.int32)
            self._image_rows = self._default_rows(encode_image, self._blank_image()[None])
            self._text_rows = self._default_rows(encode_text, ids)

    @property
    def batch_size(self) -> int:
        """Pairs that each device works on at once; less than at first if its memory did not hold that many."""
        return self._size.per_device

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
    ) -> ItmHead:
        """Loads a model and makes it a scorer.

        Args:
          source: a name in `winobench.registry.MODELS`, which may decide the head, a folder as transformers'
            ``BlipForImageTextRetrieval`` and ``BlipProcessor`` write it, or a hub id such as
            ``Salesforce/blip-itm-base-coco``.
          dtype: of the parameters and of the encoders' computation: ``float32``, ``bfloat16`` or ``float16``.
          variant: of the weight files, such as ``fp16``.
          revision: branch, tag or commit of a hub id.
          allow_pickle: whether ``.bin`` files may be read, by a restricted unpickler.
          **options: of `ItmHead`.

        Raises:
          InputError: when files are missing or damaged, or an option is not one of its choices.
        """
        networks.check_options(cls, options)
        known = registry.MODELS.get(source) if isinstance(source, str) else None
        options = {**(known.options if known is not None else {}), **options}
        # Before the weights, which take long: a typing mistake is to show at once.
        common.choice("head", options.get("head", "itm"), HEADS)
        place = sources.resolve(source, revision=revision)
        processor = processor_files.read_image_processor(place)
        tokenizer = encoder_layouts.read_bert_tokenizer(place)
        model = models.load_model(
            BlipForImageTextRetrieval, place, dtype=dtype, variant=variant, allow_pickle=allow_pickle
        )
        return cls(model, tokenizer, processor, **options)

    def score(self, images: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
        """Scores every text for every image. Those that are given more than once are scored once.

        Args:
          images: anything that `winobench.data.images.open_image` takes.
          texts: strings.

        Returns:
          float32 [num_images, num_texts], higher = better match.

        Raises:
          InputError: for an empty list, an image that cannot be read, or a text that is no string.
        """
        images, texts = checked_list("images", images), checked_texts(texts)
        first_image, image_of = common.distinct([common.image_key(image) for image in images])
        first_text, text_of = common.distinct(texts)
        grid = (len(first_image), len(first_text))
        pairs = np.indices(grid, dtype=np.int32).reshape(2, -1).T
        scores = np.empty(len(pairs), np.float32)
        for numbers, part in self.iter_scores([images[i] for i in first_image], [texts[i] for i in first_text], pairs):
            scores[numbers] = part
        return scores.reshape(grid)[np.ix_(image_of, text_of)]

    def iter_scores(
        self, images: Sequence[Any], texts: Sequence[str], pairs: ArrayLike
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The scores of chosen pairs, as the devices return them.

        Each image and each text is encoded once, shortly before its first pair, and again only if it comes back after
        more others than a table has rows. Images are read in the background and let go once encoded. Order pairs by
        image, then by text.

        Args:
          images: as in `score`.
          texts: as in `score`.
          pairs: int [n, 2], rows (number of the image, number of the text). Every row is computed, so leave out
            repeated ones.

        Returns:
          An iterator over (int [b], rows of ``pairs``; their float32 scores [b]), each row once, in their order.

        Raises:
          InputError: at once for an empty list, or an argument that is not as described; while iterating for an image
            that cannot be read.
        """
        images, texts = checked_list("images", images), checked_texts(texts)
        pairs = common.checked_pairs(pairs, len(images), len(texts))
        rows = self._tokenize(texts)
        image_table = tables.DeviceTable(
            self._image_encoder,
            len(images),
            self._image_rows,
            self._blank_image(),
            lambda numbers: tables.load_ahead(
                lambda number: self.processor(images[number]), numbers, 2 * self._image_encoder.batch_size
            ),
        )
        text_table = tables.DeviceTable(
            self._text_encoder,
            len(texts),
            self._text_rows,
            rows[0],
            lambda numbers: (rows[number] for number in numbers),
        )
        return self._run(image_table, text_table, pairs)

    def fingerprint(self) -> dict[str, Any]:
        """Everything about this scorer that can change a score by more than rounding, ready for JSON.

        What is not in it: the number of devices and the batch size, which change the last bits only.
        """
        return {
            "scorer": "itm_head",
            "scoring_version": SCORING_VERSION,
            "model": self._model_fingerprint,
            "dtype": self.model.dtype.name,
            "head": self.head,
            "first_token": self.first_token,
            "max_text_tokens": self.max_text_tokens,
        }

    @functools.cached_property
    def _model_fingerprint(self) -> str:
        """Identifies config, weights, tokenizer and image processor: 64 hexadecimal digits."""
        return networks.fingerprint(
            self.model,
            processor=dataclasses.asdict(self.processor),
            tokenizer=networks.tokenizer_identity(self.tokenizer),
        )

    def _run(
        self, image_table: tables.DeviceTable, text_table: tables.DeviceTable, pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        split = parallel.split_axis(self.mesh, axis=1)

        def step(image_rows: np.ndarray, text_rows: np.ndarray, _: np.ndarray) -> jax.Array:
            index = np.stack([image_rows, text_rows]).astype(np.int32)
            scores = _score_pairs(
                self._step, self._params, image_table.array, text_table.array, parallel.put(index, split)
            )
            return parallel.take_turns(self.mesh, scores)

        return tables.score_rows(image_table, text_table, pairs, self._size, step)

    def _tokenize(self, texts: Sequence[str]) -> np.ndarray:
        """Token ids and the number of them behind them: int32 [num_texts, tokens + 1]."""
        check_texts(texts)
        encoded = self.tokenizer(texts, truncation=True, max_length=self.max_text_tokens, padding=False)
        log_truncated(count_truncated(encoded), len(texts), self.max_text_tokens)
        # As long as the longest text of the call and no longer: a pair's work grows with it.
        longest = max(map(len, encoded["input_ids"]))
        length = min(-(-longest // _TEXT_STEP) * _TEXT_STEP, self.max_text_tokens)
        rows = np.full((len(texts), length + 1), self.tokenizer.pad_token_id, np.int32)
        for row, ids in zip(rows, encoded["input_ids"], strict=True):
            row[: len(ids)] = ids
            row[-1] = len(ids)
        if self.first_token == "enc":
            rows[:, 0] = self.model.config.text_config.bos_token_id + 1
        return rows

    def _check_vocabulary(self) -> None:
        text = self.model.config.text_config
        if (count := tokenizer_files.num_ids(self.tokenizer)) > text.vocab_size:
            raise InputError(
                f"the tokenizer has {count} tokens, but the text encoder knows {text.vocab_size}: check"
                " that both are of the same model",
                code="mismatched-parts",
            )
        enc = None if text.bos_token_id is None else text.bos_token_id + 1
        if self.first_token == "enc" and (enc is None or enc >= text.vocab_size):
            raise InputError(
                f"the text encoder with {text.vocab_size} token ids has no [ENC], which comes after"
                f" bos_token_id={text.bos_token_id}: choose first_token='cls'",
                code="no-first-token",
            )

    def _default_rows(self, encode: Callable[..., Any], example: np.ndarray) -> int:
        encoded = jax.eval_shape(encode, self._params, example)
        # A batch of pairs may have as many images; with fewer rows it would be cut short.
        return max(self._size.total, table_rows(encoded, _TABLE_BYTES.on(self.mesh)))

    def _blank_image(self) -> np.ndarray:
        return np.zeros((*self.processor.size, 3), np.uint8)
