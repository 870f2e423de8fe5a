"""Right or wrong, from scores: accuracy, recall at k, and Winoground's text, image and group score.

A score says how well an image and a text match; higher is better. A tie is never resolved in the model's favour: the
right answer counts only if it would count in every order of equal scores. (The published code takes NumPy's first
maximum, which is the right answer wherever that is listed first.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np


class Outcome(NamedTuple):
    """What became of each example under one metric.

    Attributes:
      correct: [num_examples] bool.
      tie: [num_examples] bool, the answer hung on equal scores; such an example may still be wrong or right whatever
        their order.
    """

    correct: np.ndarray
    tie: np.ndarray


_Metric = TypeVar("_Metric", bound=Callable)


@dataclasses.dataclass(frozen=True)
class Decision:
    """Which comparisons of candidates decide a question under a metric: what a race has to settle, and no more.

    Attributes:
      tops: the sets of best candidates that the metric asks for: (1, 5) for the best one and the five best. A question
        is one image and some texts, or one text and some images, with a target. Empty for the diagonal.
    """

    tops: tuple[int, ...] = ()

    @property
    def is_diagonal(self) -> bool:
        """Whether n images and n texts belong together in order, and each pair is compared with the wrong ones."""
        return not self.tops

    @property
    def asks_for(self) -> str:
        """The questions that it fits, in words."""
        return "as many images as texts, two at least" if self.is_diagonal else "one image or one text"

    def fits(self, shape: tuple[int, int]) -> bool:
        """Whether a question of so many images and texts is one that it decides."""
        return shape[0] == shape[1] > 1 if self.is_diagonal else min(shape) == 1


def decided_by(decision: Decision) -> Callable[[_Metric], _Metric]:
    """Marks a metric, so that a race can be run for it: ``@decided_by(Decision(tops=(1,)))``."""

    def mark(metric: _Metric) -> _Metric:
        metric.decision = decision
        return metric

    return mark


def recall(scores, targets, k: int = 1) -> Outcome:
    """Is the right candidate among the ``k`` best, whatever the order of equal scores?

    ``tie`` marks the examples whose set of ``k`` best is not determined: the k-th and the next best score are equal.

    Args:
      scores: [num_examples, num_candidates] floats, higher = better.
      targets: [num_examples] int, index of the right candidate.
      k: at least 1.

    Raises:
      ValueError: a score is not finite (comparisons with NaN would make any answer right), shapes disagree, or a
        target is no candidate.
    """
    scores = _finite(scores, 2)
    targets = np.asarray(targets)
    if targets.size and targets.dtype.kind not in "iu":
        raise ValueError(f"recall needs targets that are whole numbers, got {targets.dtype}.")
    targets = targets.astype(np.int64)
    num_examples, num_candidates = scores.shape
    if targets.shape != (num_examples,):
        raise ValueError(f"recall got scores of {num_examples} examples and targets of shape {targets.shape}.")
    if not _is_whole(k) or k < 1 or (num_examples and (targets.min() < 0 or targets.max() >= num_candidates)):
        raise ValueError(f"recall at {k} needs k >= 1 and targets from 0 to {num_candidates - 1}.")
    right = np.take_along_axis(scores, targets[:, None], axis=1)
    at_least_as_good = np.sum(scores >= right, axis=1)  # the right one included
    if k < num_candidates:
        best_first = -np.sort(-scores, axis=1)
        tie = best_first[:, k - 1] == best_first[:, k]
    else:
        tie = np.zeros(num_examples, bool)
    return Outcome(at_least_as_good <= k, tie)


def winoground(scores) -> dict[str, Outcome]:
    """Text, image and group score of examples with n images and n texts that belong together in order.

    ``text``: for each image its own text scores higher than any other one. ``image``: for each text its own image
    scores higher. ``group``: both. A tie is an equality in any comparison that the score needs.

    Args:
      scores: [num_examples, n images, n texts] floats, higher = better; n is 2 in Winoground.

    Raises:
      ValueError: another shape, or a score that is not finite.

    Source: T. Thrush et al., "Winoground", CVPR 2022, Eq. 1-3.
    """
    scores = _finite(scores, 3)
    size = scores.shape[1]
    if scores.shape[1:] != (size, size) or size < 2:
        raise ValueError(f"winoground needs as many images as texts an example, two at least, got {scores.shape[1:]}.")
    one, other = np.nonzero(~np.eye(size, dtype=bool))
    own = scores[:, one, one]
    text_margins = own - scores[:, one, other]
    image_margins = own - scores[:, other, one]
    text = Outcome((text_margins > 0).all(axis=1), (text_margins == 0).any(axis=1))
    image = Outcome((image_margins > 0).all(axis=1), (image_margins == 0).any(axis=1))
    return {"text": text, "image": image, "group": Outcome(text.correct & image.correct, text.tie | image.tie)}


def recall_chance(num_candidates: int, k: int = 1) -> float:
    """The recall at ``k`` of guessing, in [0, 1].

    Raises:
      ValueError: there are no candidates, or ``k`` is below 1.
    """
    if not (_is_whole(num_candidates) and _is_whole(k)) or num_candidates < 1 or k < 1:
        raise ValueError(f"recall_chance needs a candidate and k >= 1, got {num_candidates!r} and {k!r}.")
    return min(1.0, k / num_candidates)


WINOGROUND_CHANCE = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}
"""Winoground's scores under independent continuous random scores (of the 24 orders of four scores, 4 win the group)."""


@decided_by(Decision(tops=(1,)))
def score_accuracy(scores: Sequence[np.ndarray], targets: Sequence[int | None]) -> dict[str, Outcome]:
    """``accuracy``: is the right candidate the best one? For the arguments see ``METRICS``."""
    return {"accuracy": _ragged_recall(scores, targets, 1)}


@decided_by(Decision(tops=(1, 5)))
def score_recall(scores: Sequence[np.ndarray], targets: Sequence[int | None]) -> dict[str, Outcome]:
    """``recall@1`` and ``recall@5``. For the arguments see ``METRICS``."""
    return {f"recall@{k}": _ragged_recall(scores, targets, k) for k in (1, 5)}


@decided_by(Decision())
def score_winoground(scores: Sequence[np.ndarray], targets: Sequence[int | None]) -> dict[str, Outcome]:
    """``text``, ``image`` and ``group``; the right answer is the diagonal. For the arguments see ``METRICS``."""
    if any(target is not None for target in targets):
        raise ValueError("winoground's right answer is the diagonal: its examples have the target None.")
    return winoground(np.stack(scores))


def _ragged_recall(scores: Sequence[np.ndarray], targets: Sequence[int | None], k: int) -> Outcome:
    """``recall`` over examples [images, texts] that may differ in their number of candidates."""
    correct, tie = np.zeros(len(scores), bool), np.zeros(len(scores), bool)
    by_size: dict[int, list[int]] = {}
    for index, (matrix, target) in enumerate(zip(scores, targets, strict=True)):
        if min(matrix.shape) != 1 or target is None:
            raise ValueError(f"example {index}: a target and one image or one text are needed, got {matrix.shape}.")
        by_size.setdefault(matrix.size, []).append(index)
    for indices in by_size.values():
        rows = np.stack([np.ravel(scores[index]) for index in indices])
        correct[indices], tie[indices] = recall(rows, [targets[index] for index in indices], k)
    return Outcome(correct, tie)


def _is_whole(number) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _finite(scores, ndim: int) -> np.ndarray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim != ndim:
        raise ValueError(f"scores need {ndim} dimensions, got shape {scores.shape}.")
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinity.")
    return scores
