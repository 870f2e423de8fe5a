"""Scorers that read an image and a text together: tables of both, and one pass for each pair."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, PartitionSpec
from jax.typing import ArrayLike

from winobench import parallel
from winobench.base.texts import checked_list, checked_texts
from winobench.data.patches import PatchProcessor
from winobench.data.processors import ImageProcessor
from winobench.engine import tables
from winobench.engine.batch_size import BatchSize
from winobench.engine.limits import Limit, table_rows
from winobench.models.snapshots import HasSnapshots
from winobench.scorers import common
from winobench.scorers.networks import NetworkFunction

PAIRS = Limit(32, cpu=4)
"""Pairs that each device works on at once."""

# The same of images and of texts.
_IMAGES = Limit(16, cpu=2)
_TEXTS = Limit(64, cpu=16)
# Memory of the tables of images and of texts. At full size an image's keys and values take 42 MB in float32 for BLIP.
_TABLE_BYTES = Limit(1 << 32, cpu=1 << 29)
# Texts are padded to a multiple of this.
TEXT_STEP = 8


class PairScorer(HasSnapshots):
    """Encodes each image and each text once, into tables on the devices, and computes a score for each pair of rows."""

    # None while new ones are made.
    _params: Any
    _image_encoder: Any
    _text_encoder: Any

    def __init__(
        self,
        processor: ImageProcessor | PatchProcessor,
        mesh: Mesh,
        *,
        example_text: Any,
        batch_size: int | None,
        rows: int | None,
    ):
        """Puts the model on the devices. ``example_text``: a longest text, as `_tokenize` gives it."""
        self.processor = processor
        self.mesh = mesh
        self._example_text = example_text
        pairs = common.positive("batch_size", PAIRS.on(mesh) if batch_size is None else batch_size)
        self._size = BatchSize(pairs, mesh, "pair")
        self._text_size = BatchSize(_TEXTS.on(mesh), mesh, "text")
        self._image_size: BatchSize | None = None
        self._image_rows = self._text_rows = None if rows is None else common.positive("table_rows", rows)
        self.snapshot()

    def _encode_with(
        self,
        encode_image: NetworkFunction,
        encode_text: NetworkFunction,
        params: list[jax.Array],
        image_spec: PartitionSpec | None = None,
    ) -> None:
        """Prepares the tables' encoders. ``image_spec``: a device's part of the images' table. All when None."""
        self._params = params
        if self._image_rows is None:
            self._image_rows = self._default_rows(encode_image, self.processor.blank)
            self._text_rows = self._default_rows(encode_text, self._example_text)
        if self._image_size is None:
            self._image_size = BatchSize(images_at_once(self._image_rows, self.mesh), self.mesh, "image")
        spec = image_spec or PartitionSpec()
        self._text_encoder = tables.Encoder(encode_text, params, self.mesh, self._text_size)
        self._image_encoder = tables.Encoder(encode_image, params, self.mesh, self._image_size, spec=spec)

    @property
    def batch_size(self) -> int:
        """Pairs that each device works on at once. Less than at first if its memory did not hold that many."""
        return self._size.per_device

    def score(self, images: Sequence[Any], texts: Sequence[str]) -> np.ndarray:
        """Scores every text for every image. Those that are given more than once are scored once.

        Args:
          images: anything that `winobench.data.images.open_image` takes.
          texts: strings.

        Returns:
          float32 [num_images, num_texts], higher = better match.

        Raises:
          InputError: for an empty list, an unreadable image, a text that is not a string, or a score that is not
            finite.
        """
        images, texts = checked_list("images", images), checked_texts(texts)
        first_image, image_of = common.distinct([common.image_key(image) for image in images])
        first_text, text_of = common.distinct(texts)
        images, texts = [images[i] for i in first_image], [texts[i] for i in first_text]
        scores = common.over_grid((len(images), len(texts)), lambda pairs: self.iter_scores(images, texts, pairs))
        return common.finite_scores(scores[np.ix_(image_of, text_of)])

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
          An iterator over (int [b], rows of ``pairs``, their float32 scores [b]), each row once, in their order.

        Raises:
          InputError: at once for an empty list, or an argument that is not as described. While iterating for an image
            that cannot be read.
        """
        images, texts = checked_list("images", images), checked_texts(texts)
        pairs = common.checked_pairs(pairs, len(images), len(texts))
        snapshot = self.snapshot()
        rows = snapshot._tokenize(texts)
        image_table = tables.DeviceTable(
            snapshot._image_encoder,
            len(images),
            snapshot._image_rows,
            snapshot.processor.blank,
            lambda numbers: tables.load_ahead(
                lambda number: snapshot.processor(images[number]), numbers, 2 * snapshot._image_encoder.batch_size
            ),
        )
        text_table = tables.DeviceTable(
            snapshot._text_encoder,
            len(texts),
            snapshot._text_rows,
            rows[0],
            lambda numbers: (rows[number] for number in numbers),
        )
        return snapshot._run(image_table, text_table, pairs)

    @abc.abstractmethod
    def _tokenize(self, texts: Sequence[str]) -> Sequence[Any]:
        """Each text as an array, or a pytree of arrays, of the same shapes."""

    @abc.abstractmethod
    def _step(self, images: Any, texts: Any, index: jax.Array) -> jax.Array:
        """One float32 score for each column of ``index``, int32 [2, n]: row of the images' table, of the texts'."""

    def _run(
        self, image_table: tables.DeviceTable, text_table: tables.DeviceTable, pairs: np.ndarray
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        split = parallel.split_axis(self.mesh, axis=1)

        def step(image_rows: np.ndarray, text_rows: np.ndarray, _: np.ndarray) -> jax.Array:
            index = np.stack([image_rows, text_rows]).astype(np.int32)
            scores = self._step(image_table.array, text_table.array, parallel.put(index, split))
            return parallel.wait_if_cpu(self.mesh, scores)

        return tables.score_rows(image_table, text_table, pairs, self._size, step)

    def _default_rows(self, encode: NetworkFunction, example: Any) -> int:
        batch = jax.tree.map(lambda array: np.asarray(array)[None], example)
        return usual_rows(jax.eval_shape(encode, self._params, batch), self._size.total, self.mesh)


def usual_rows(encoded: Any, batch_size: int, mesh: Mesh) -> int:
    """Default number of a table's rows on each device."""
    room = _TABLE_BYTES.on(mesh)
    # A batch of pairs may have as many images. With fewer rows it would be cut short. Where images are so large (a
    # third of a gigabyte for a LLaVA of 7 billion parameters), that is the lesser evil.
    return max(min(batch_size, table_rows(encoded, 2 * room)), table_rows(encoded, room))


def images_at_once(rows: int, mesh: Mesh) -> int:
    """Images that each device encodes at once: at most the rows of the table of all devices."""
    return min(_IMAGES.on(mesh), math.ceil(rows / parallel.data_parallelism(mesh)))


def token_rows(ids: Sequence[Sequence[int]], pad: int, longest: int, step: int = TEXT_STEP) -> np.ndarray:
    """Texts in tokens as rows of one width: int32 [num_texts, tokens + 1]. The last number counts a text's tokens."""
    # The width of the call's longest text: a pair's work grows with it.
    width = min(-(-max(map(len, ids)) // step) * step, longest)
    rows = np.full((len(ids), width + 1), pad, np.int32)
    for row, tokens in zip(rows, ids, strict=True):
        row[: len(tokens)] = tokens
        row[-1] = len(tokens)
    return rows
