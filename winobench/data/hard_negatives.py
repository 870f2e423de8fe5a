"""Training sets with hard negatives: records, their sources, and batches of them.

An image may belong to many rows, as the image itself or as a negative, and is stored and encoded once. The negatives
are of the row's caption, not of the image's other captions: of a scene with a red cube, "A red object." is still true
when its objects have exchanged their shapes.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from winobench.base.errors import InputError
from winobench.data import array_records, prepared

if TYPE_CHECKING:
    from grain.sources import RandomAccessDataSource

Tokenizer = Callable[[Sequence[str]], Any]
"""Texts -> int32 [num_texts, ...], an array or a tree of arrays, such as `Pipeline.tokenize`."""

_TEXTS_AT_ONCE = 4096
_MANY = 2**62


class Row(NamedTuple):
    """A record: an image, a true caption, and negatives of the caption, at least one of each kind."""

    image: int  # number of the image
    caption: str
    negative_captions: tuple[str, ...]  # false of the image
    negative_images: tuple[int, ...]  # numbers of images that the caption is not true of


class Source(Protocol):
    """A training set whose images are not yet encoded."""

    @property
    def images(self) -> Sequence[Any]:
        """`winobench.data.images.ImageSource`s by number, opened on request, by several threads."""

    @property
    def rows(self) -> Sequence[Row]: ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 that changes whenever a row or a pixel could."""

    def verify(self) -> None:
        """Raises InputError where a file is damaged. Called once, before the images are encoded."""


class EncodedSource(Protocol):
    """A training set whose images are latents, such as `winobench.training.latent_cache.LatentSet`."""

    @property
    def latents(self) -> RandomAccessDataSource[np.ndarray]:
        """Float16 [h, w, c] by number, scaled as in training. Read by several threads."""

    @property
    def rows(self) -> Sequence[Row]: ...


class PreparedSource:
    """A training set that ``winobench prepare`` has prepared.

    It is stored like a task: an example holds the image and then its negatives, the caption and then its negatives.
    """

    def __init__(self, folder: str | os.PathLike):
        self._set = prepared.PreparedSet(folder)

    @property
    def fingerprint(self) -> str:
        return self._set.fingerprint

    @functools.cached_property
    def images(self) -> Sequence[prepared.PreparedImage]:
        """Nothing is read before an image is opened."""
        return [self._set.image(number) for number in range(self._set.num_images)]

    @functools.cached_property
    def rows(self) -> Sequence[Row]:
        """Read at once, about half a kilobyte each."""
        return [
            Row(
                example.images[0].number,
                example.texts[0],
                example.texts[1:],
                tuple(image.number for image in example.images[1:]),
            )
            for example in self._set.examples()
        ]

    def verify(self) -> None:
        self._set.verify()


def batches(
    source: EncodedSource,
    tokenizer: Tokenizer,
    *,
    batch_size: int,
    seed: int,
    first_batch: int = 0,
    part: int = 0,
    num_parts: int = 1,
    num_threads: int = 2,
) -> Iterator[dict[str, np.ndarray]]:
    """Endless shuffled batches for `winobench.training.hard_negatives`.

    The negatives and the random caption of a row are sampled from (seed, epoch, row) alone, and the order of rows from
    (seed, epoch): batch n depends on (seed, n), so a resumed run sees the same batches. An epoch's last rows share a
    batch with the first ones of the next. The random caption is from another row, sampled evenly among captions of
    other images. ``part`` is one of ``num_parts`` equal runs of rows of each batch, where several processes share them.

    Yields ``latents`` and ``negative_latents``, float32 [batch_size / num_parts, h, w, c], scaled as in training, and
    ``input_ids``, ``negative_ids`` and ``random_ids``, int32 [batch_size / num_parts, length].
    """
    import grain
    import jax

    if batch_size < 1 or batch_size % num_parts:
        raise InputError(
            f"a batch of {batch_size} has no {num_parts} equal parts: make batch_size a multiple of that",
            code="indivisible-batch",
        )

    texts = _Texts.of(source.rows)
    parts = [
        tokenizer(texts.texts[start : start + _TEXTS_AT_ONCE]) for start in range(0, len(texts.texts), _TEXTS_AT_ONCE)
    ]
    ids = jax.tree.map(lambda *leaves: np.concatenate(leaves).astype(np.int32), *parts)
    count = len(source.rows)

    def of_text(number: int) -> Any:
        return jax.tree.map(lambda leaf: leaf[number], ids)

    def take(index: int, row: int) -> dict[str, np.ndarray]:
        *numbers, image = texts.draw(np.random.default_rng((seed, index // count, row)), row)
        return {
            "latents": source.latents[source.rows[row].image].astype(np.float32),
            "negative_latents": source.latents[image].astype(np.float32),
            **dict(zip(("input_ids", "negative_ids", "random_ids"), map(of_text, numbers), strict=True)),
        }

    # As good as endless. Grain cannot cut up a source without a length.
    dataset = grain.MapDataset.source(range(count)).seed(seed).shuffle().repeat(_MANY // count)
    # A part is a small batch, and of these every num_parts-th belongs to it.
    dataset = dataset.map_with_index(take).batch(batch_size // num_parts)[part::num_parts]
    return array_records.iterate_from(dataset, first_batch, num_threads=num_threads)


@dataclasses.dataclass(frozen=True)
class _Texts:
    """The distinct texts of a training set and where they belong."""

    rows: Sequence[Row]
    texts: list[str]  # the distinct captions and negative captions
    captions: np.ndarray  # int64 [num_rows], numbers of texts
    negatives: list[list[int]]  # of each row, numbers of texts
    own: dict[int, set[int]]  # image -> the numbers of its captions

    @classmethod
    def of(cls, rows: Sequence[Row]) -> _Texts:
        numbers: dict[str, int] = {}
        captions, negatives = [], []
        own: dict[int, set[int]] = collections.defaultdict(set)
        for position, row in enumerate(rows):
            if not row.negative_captions or not row.negative_images:
                raise InputError(
                    f"row {position} of the training set, {row.caption!r}, has no negative"
                    f" {'image' if row.negative_captions else 'caption'}: leave the row out",
                    code="no-negative",
                )
            captions.append(numbers.setdefault(row.caption, len(numbers)))
            own[row.image].add(captions[-1])
            negatives.append([numbers.setdefault(text, len(numbers)) for text in row.negative_captions])
        num_captions = len(set(captions))
        if max((len(texts) for texts in own.values()), default=0) >= num_captions:
            raise InputError(
                f"the training set's {len(rows)} rows have {num_captions} different captions, all of one image: there"
                " is not a random caption for it, so add captions of other images",
                code="no-other-caption",
            )
        return cls(rows, list(numbers), np.asarray(captions), negatives, dict(own))

    def draw(self, generator: np.random.Generator, row: int) -> tuple[int, int, int, int]:
        """Numbers of the caption, a negative caption, a random caption, and of a negative image."""
        negatives, images = self.negatives[row], self.rows[row].negative_images
        negative = negatives[generator.integers(len(negatives))]
        image = images[generator.integers(len(images))]
        own = self.own[self.rows[row].image]
        # Ends: `of` has made sure that some caption is not among an image's own.
        while (other := int(self.captions[generator.integers(len(self.captions))])) in own:
            pass
        return int(self.captions[row]), negative, other, int(image)
