"""What the texts about one image and one sample have in common, so that it is computed once for all of them.

They meet the same noisy latents, and so does all that a network does ahead of its first cross-attention. The programs
that make use of it have fixed shapes: a batch of n texts has room for m noisy latents, where m follows from how many
texts there are about each.

With sharing and without, an error differs by rounding. Which of the two computes it is therefore decided by all triples
that there are to score (``among``), not by those that happen to be left: a run that was interrupted, or shared by
processes, gives the same bits as one that was not.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from winobench.engine import tables

# With more texts than the last number, little is left to be saved. Each number is a program to be compiled.
_TEXTS = (2, 4, 8)


def order(triples: np.ndarray, shared: np.ndarray | None = None) -> np.ndarray:
    """The order in which all texts about an image and a sample follow each other.

    Args:
      triples: int [n, 3], (image, text, sample).
      shared: bool [n], which of them are to be computed with sharing. Those come first.

    Returns:
      int [n], rows of ``triples``: by image in order of first use, then by sample, then by text.
    """
    images, texts, samples = triples.T
    first, _ = tables.first_uses(images)
    rank = np.empty(int(images.max()) + 1, np.int64)
    rank[first] = np.arange(len(first))
    alone = np.zeros(len(triples), bool) if shared is None else ~shared
    return np.lexsort((texts, samples, rank[images], alone))


def texts_to_share(triples: np.ndarray) -> int:
    """For how many texts about each image and sample it saves the most to be prepared; 1 if nothing can be saved.

    Args:
      triples: int [n, 3], (image, text, sample), at least one.
    """
    _, num_texts = _num_texts(triples)
    saved = {texts: np.count_nonzero(num_texts >= texts) * (1 - 1 / texts) for texts in _TEXTS}
    best = max(saved, key=saved.__getitem__)
    return best if saved[best] else 1


class Shared:
    """Which triples are computed with sharing: those whose image and sample have enough texts among all triples."""

    def __init__(self, among: np.ndarray, texts: int):
        """
        Args:
          among: int [m, 3], all triples (image, text, sample).
          texts: from `texts_to_share`.
        """
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
    """How many noisy latents a device has room for; None where there is no program with sharing."""
    places = (size - 2) // texts + 2
    return None if texts == 1 or places >= size else places


def cut(triples: np.ndarray, shared: np.ndarray, parts: int, size: int, texts: int) -> Iterator[np.ndarray]:
    """Cuts triples into batches, each of which has a program that all of it fits into.

    Args:
      triples: int [n, 3], (image, text, sample), in `order`.
      shared: bool [n], from `Shared`.

    Yields:
      int [parts x size], rows of ``triples``; -1 for places that stay empty, which all have a row before them on their
      device, or on a device before.
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
    """Takes together equal columns that follow each other.

    Args:
      columns: [k, parts x n], what the texts of a batch are about, such as image, sample and timestep.

    Returns:
      The different columns [k, parts x m], and for each text which of its device's m it is about, int32 [parts x n].
      All columns as they were, and None, where a device has more than m, or m would save nothing.
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
    place = np.zeros((parts, at_once), np.int64)
    part, column = np.nonzero(new)
    place[part, numbers[part, column]] = column
    different = np.take_along_axis(of_device, place[None], axis=2)
    return different.reshape(len(columns), -1), numbers.reshape(-1).astype(np.int32)
