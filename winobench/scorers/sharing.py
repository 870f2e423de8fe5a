"""What the texts about one image and one sample have in common, so that it is computed once for all of them.

They meet the same noisy latents, and so does all that a network does ahead of its first cross-attention. The programs
that make use of it have fixed shapes: a batch of n texts has room for m noisy latents, where m follows from how many
texts there are about each.
"""

from __future__ import annotations

import numpy as np

from winobench.scorers import tables

# With more texts than the last number, little is left to be saved; each number is a program to be compiled.
_TEXTS = (2, 4, 8)


def order(triples: np.ndarray) -> np.ndarray:
    """The order in which all texts about an image and a sample follow each other.

    Args:
      triples: int [n, 3], (image, text, sample).

    Returns:
      int [n], rows of ``triples``: by image in order of first use, then by sample, then by text.
    """
    images, texts, samples = triples.T
    first, _ = tables.first_uses(images)
    rank = np.empty(int(images.max()) + 1, np.int64)
    rank[first] = np.arange(len(first))
    return np.lexsort((texts, samples, rank[images]))


def texts_to_share(triples: np.ndarray) -> int:
    """For how many texts about each image and sample it saves the most to be prepared; 1 if nothing can be saved.

    Args:
      triples: int [n, 3], (image, text, sample), at least one.
    """
    images, _, samples = triples.T.astype(np.int64)
    _, number, count = np.unique(images * (samples.max() + 1) + samples, return_inverse=True, return_counts=True)
    texts_beside = count[number]
    saved = {texts: np.count_nonzero(texts_beside >= texts) * (1 - 1 / texts) for texts in _TEXTS}
    best = max(saved, key=saved.__getitem__)
    return best if saved[best] else 1


def group(columns: np.ndarray, parts: int, texts: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Takes together equal columns that follow each other.

    Args:
      columns: [k, parts x n], what the texts of a batch are about, such as image, sample and timestep.
      parts: devices, each of which has n texts in a row.
      texts: how many texts about each there should be. A device has room for m different columns, as many as n in a
        row can have then, wherever they begin.

    Returns:
      The different columns [k, parts x m], and for each text which of its device's m it is about, int32 [parts x n].
      All columns as they were, and None, where a device has more than m, or m would save nothing.
    """
    of_device = columns.reshape(len(columns), parts, -1)
    size = of_device.shape[2]
    room = (size - 2) // texts + 2
    if texts == 1 or room >= size:
        return columns, None
    new = np.ones((parts, size), bool)
    new[:, 1:] = (of_device[:, :, 1:] != of_device[:, :, :-1]).any(axis=0)
    numbers = np.cumsum(new, axis=1) - 1
    if numbers.max() >= room:
        return columns, None
    # Room that is left is filled up with the first column.
    place = np.zeros((parts, room), np.int64)
    part, column = np.nonzero(new)
    place[part, numbers[part, column]] = column
    different = np.take_along_axis(of_device, place[None], axis=2)
    return different.reshape(len(columns), -1), numbers.reshape(-1).astype(np.int32)
