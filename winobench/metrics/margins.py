"""Margins of right answers over the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np


def margins(targets: Sequence[int | None], scores: Sequence[np.ndarray]) -> np.ndarray:
    """Margin of each example's right answer over the best other one, [n]. It is 0 without a right answer.

    On the diagonal of two images and two texts, the smallest of the four differences.
    """
    ahead = np.zeros(len(scores))
    for numbers, alike in by_shape(scores):
        flat = alike.reshape(len(numbers), -1)
        has_target = np.array([targets[number] is not None for number in numbers], bool)
        if has_target.any() and flat.shape[1] > 1:
            rows = np.flatnonzero(has_target)
            right = np.array([targets[numbers[row]] for row in rows])
            others = flat[rows]
            others[np.arange(len(rows)), right] = -np.inf
            ahead[np.array(numbers)[rows]] = flat[rows, right] - others.max(axis=1)
        if not has_target.all() and alike.shape[1:] == (2, 2):
            rows = np.flatnonzero(~has_target)
            own = np.diagonal(alike[rows], axis1=1, axis2=2)
            others = np.stack([alike[rows, 0, 1], alike[rows, 1, 0]], axis=1)
            ahead[np.array(numbers)[rows]] = np.minimum((own - others).min(axis=1), (own - others[:, ::-1]).min(axis=1))
    return ahead


def alike(shapes: Sequence[Hashable]) -> list[list[int]]:
    """The numbers of questions of equal shapes, shape after shape."""
    found: dict[Hashable, list[int]] = {}
    for number, shape in enumerate(shapes):
        found.setdefault(shape, []).append(number)
    return list(found.values())


def by_shape(scores: Sequence[np.ndarray]) -> Iterator[tuple[list[int], np.ndarray]]:
    """The numbers of the questions of each shape, and their scores as one array [questions, images, texts]."""
    for numbers in alike([matrix.shape for matrix in scores]):
        yield numbers, np.stack([scores[number] for number in numbers])
