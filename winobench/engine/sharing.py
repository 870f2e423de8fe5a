"""Shared work of the texts about one image and one sample: noisy latents, and layers before the first cross-attention.

The programs have fixed shapes: a batch of n texts has m noisy latents at most.

With sharing and without, an error differs by rounding. All triples of an evaluation (``among``), not only the remaining
ones, decide which of the two computes it: an interrupted or distributed run gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from winobench.engine import tables

# Each number is a program to be compiled. More texts than the last one save little more.
_TEXTS = (2, 4, 8)
# Sharing saves some hundredths of a pass. A second program costs seconds, and at first a minute.
WORTH_A_PROGRAM = 1000


def order(triples: np.ndarray, shared: np.ndarray | None = None) -> np.ndarray:
    """Rows of ``triples``, int [n, 3], (image, text, sample), in order: int [n].

    Shared ones (bool [n]) come first, then by image in order of first use, by sample, and by text.
    """
    images, texts, samples = triples.T
    first, _ = tables.first_uses(images)
    rank = np.empty(int(images.max()) + 1, np.int64)
    rank[first] = np.arange(len(first))
    alone = np.zeros(len(triples), bool) if shared is None else ~shared
    return np.lexsort((texts, samples, rank[images], alone))


def texts_to_share(triples: np.ndarray) -> int:
    """The group size that saves most, for int triples [n, 3], (image, text, sample); 1 if nothing can be saved.

    A size that leaves other triples alone has to save `WORTH_A_PROGRAM` triples, as these need a second program.
    """
    _, num_texts = _num_texts(triples)
    saved = {1: 0.0}
    for texts in _TEXTS:
        enough = num_texts >= texts
        of_size = np.count_nonzero(enough) * (1 - 1 / texts)
        if of_size >= WORTH_A_PROGRAM or enough.all():
            saved[texts] = of_size
    return max(saved, key=saved.__getitem__)


class Shared:
    """The triples that are computed with sharing: their image and sample have enough texts among all triples."""

    def __init__(self, among: np.ndarray, texts: int):
        self.texts = texts
        if texts > 1:
            keys, num_texts = _num_texts(among)
            self._keys, place = np.unique(keys, return_index=True)
            self._enough = num_texts[place] >= texts

    def of(self, triples: np.ndarray) -> np.ndarray:
        """Bool [n]: which of some of the triples, int [n, 3]."""
        if self.texts == 1:
            return np.zeros(len(triples), bool)
        return self._enough[np.searchsorted(self._keys, _keys(triples))]


def _keys(triples: np.ndarray) -> np.ndarray:
    """A number of each triple's image and sample, int64 [n]."""
    images, _, samples = triples.T.astype(np.int64)
    return images << 32 | samples


def _num_texts(triples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`_keys`, and how many texts each triple's image and sample have, int [n]."""
    keys = _keys(triples)
    _, number, count = np.unique(keys, return_inverse=True, return_counts=True)
    return keys, count[number]


def room(size: int, texts: int) -> int | None:
    """Number of noisy latents that fit on a device. None without a program with sharing."""
    latents = (size - 2) // texts + 2
    return None if texts == 1 or latents >= size else latents


def cut(triples: np.ndarray, shared: np.ndarray, parts: int, size: int, texts: int) -> Iterator[np.ndarray]:
    """Cuts triples in `order`, int [n, 3], with ``shared``, bool [n], into batches that each fit one program.

    Yields int [parts x size], rows of ``triples``; -1 for empty places, which follow a row on their device or on one
    before.
    """
    keys = _keys(triples)
    new = np.ones(len(triples), bool)  # where another image or sample begins
    new[1:] = keys[1:] != keys[:-1]
    begins = np.flatnonzero(new)
    number = np.cumsum(new) - 1
    at_once = room(size, texts)
    start = 0
    for end, limit in ((int(shared.sum()), at_once), (len(triples), None)):
        while start < end:
            batch = np.full((parts, size), -1, np.int64)
            for part in batch:
                stop = min(start + size, end)
                if limit is not None and stop > start and number[stop - 1] - number[start] >= limit:
                    stop = int(begins[number[start] + limit])
                part[: stop - start] = np.arange(start, stop)
                start = stop
            yield batch.reshape(-1)


def group(columns: np.ndarray, parts: int, texts: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Groups equal adjacent columns [k, parts x n], such as image, sample and timestep of each text.

    Returns the different columns [k, parts x m], and each text's index among its device's m, int32 [parts x n]. All
    columns, and None, where a device has more than m, or m would save nothing.
    """
    of_device = columns.reshape(len(columns), parts, -1)
    size = of_device.shape[2]
    at_once = room(size, texts)
    if at_once is None:
        return columns, None
    new = np.ones((parts, size), bool)
    new[:, 1:] = (of_device[:, :, 1:] != of_device[:, :, :-1]).any(axis=0)
    numbers = np.cumsum(new, axis=1) - 1
    if numbers.max() >= at_once:
        return columns, None
    # Room that is left is filled up with the first column.
    columns_of = np.zeros((parts, at_once), np.int64)
    part, column = np.nonzero(new)
    columns_of[part, numbers[part, column]] = column
    different = np.take_along_axis(of_device, columns_of[None], axis=2)
    return different.reshape(len(columns), -1), numbers.reshape(-1).astype(np.int32)
