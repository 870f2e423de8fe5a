"""Right or wrong, from scores of how well images and texts match, higher = better.

A tie is never resolved in the model's favour: the right answer counts only if it would count in every order of equal
scores. (The published code takes NumPy's first maximum, which is the right answer wherever that is listed first.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from winobench.metrics.metric import Alone, Decision, Metric, Outcome


def recall(scores, targets, k: int = 1) -> Outcome:
    """Is the right candidate among the ``k`` best, in any order of equal scores?

    ``scores`` are [num_examples, num_candidates, ...], higher = better. Trailing axes are judged each by itself.
    ``tie`` marks the examples whose set of ``k`` best is not determined: the k-th and the next best score are equal.
    """
    scores = _finite(scores, 2)
    targets = np.asarray(targets)
    if targets.size and targets.dtype.kind not in "iu":
        raise ValueError(f"recall needs targets that are whole numbers, got {targets.dtype}.")
    targets = targets.astype(np.int64)
    num_examples, num_candidates = scores.shape[:2]
    if targets.shape != (num_examples,):
        raise ValueError(f"recall got scores of {num_examples} examples and targets of shape {targets.shape}.")
    if not _is_whole(k) or k < 1 or (num_examples and (targets.min() < 0 or targets.max() >= num_candidates)):
        raise ValueError(f"recall at {k} needs k >= 1 and targets from 0 to {num_candidates - 1}.")
    right = np.take_along_axis(scores, targets.reshape(-1, *[1] * (scores.ndim - 1)), axis=1)
    correct = np.sum(scores >= right, axis=1) <= k  # the right one included
    if k >= num_candidates:
        return Outcome(correct, np.zeros_like(correct))
    best_first = -np.sort(-scores, axis=1)
    return Outcome(correct, best_first[:, k - 1] == best_first[:, k])


def winoground(scores) -> dict[str, Outcome]:
    """Text, image and group score of examples [num, n images, n texts, ...] that belong together in order.

    ``text``: for each image its own text scores higher than any other one. ``image``: for each text its own image
    scores higher. ``group``: both. A tie is an equality in any comparison that the score needs.

    Source: T. Thrush et al., "Winoground", CVPR 2022, Eq. 1-3.
    """
    scores = _finite(scores, 3)
    size = scores.shape[1]
    if scores.shape[1:3] != (size, size) or size < 2:
        raise ValueError(f"winoground needs as many images as texts an example, two at least, got {scores.shape[1:3]}.")
    mine, other = np.nonzero(1 - np.eye(size))
    own = scores[:, mine, mine]
    text, image = _all_ahead(own - scores[:, mine, other]), _all_ahead(own - scores[:, other, mine])
    return {"text": text, "image": image, "group": Outcome(text.correct & image.correct, text.tie | image.tie)}


def _all_ahead(margins: np.ndarray) -> Outcome:
    """Whether all margins [n, margins, ...] of the right answers are positive, and whether one is 0."""
    return Outcome(np.all(margins > 0, axis=1), np.any(margins == 0, axis=1))


def recall_chance(num_candidates: int, k: int = 1) -> float:
    """The recall at ``k`` of guessing, in [0, 1]."""
    if not (_is_whole(num_candidates) and _is_whole(k)) or num_candidates < 1 or k < 1:
        raise ValueError(f"recall_chance needs a candidate and k >= 1, got {num_candidates!r} and {k!r}.")
    return min(1.0, k / num_candidates)


WINOGROUND_CHANCE = {"text": 1 / 4, "image": 1 / 4, "group": 1 / 6}
"""Winoground's scores under independent continuous random scores (of the 24 orders of four scores, 4 win the group)."""


def _ranks(scores: np.ndarray, targets: np.ndarray | None) -> np.ndarray:
    """[n, candidates, ...] of [n, images, texts, ...], of which one is one."""
    if targets is None or min(scores.shape[1:3]) != 1:
        raise ValueError(f"a target and one image or one text are needed, got {scores.shape[1:3]}.")
    return scores.reshape(len(scores), -1, *scores.shape[3:])


def _judge_accuracy(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    return {"accuracy": recall(_ranks(scores, targets), targets)}


def _judge_winoground(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    if targets is not None:
        raise ValueError("winoground's right answer is the diagonal: its examples have the target None.")
    return winoground(scores)


def _judge_alone(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    """The right candidate must score above 0 (``p_c``), and all others below (``p_f``). 0 is a tie, and wrong."""
    ranks = _ranks(scores, targets)
    is_right = np.arange(ranks.shape[1]) == np.asarray(targets)[:, None]
    is_right = is_right.reshape(*is_right.shape, *[1] * (ranks.ndim - 2))
    return {"p_c": _all_ahead(np.where(is_right, ranks, np.inf)), "p_f": _all_ahead(np.where(is_right, np.inf, -ranks))}


def _combined(answers: Mapping[str, np.ndarray]) -> dict[str, tuple[str, ...]]:
    """VALSE's acc and min(p_c, p_f)."""
    smaller = min(("p_c", "p_f"), key=lambda name: answers[name].mean())
    return {"acc": ("p_c", "p_f"), "min_p": (smaller,)}


def _alone_chance(shape: tuple[int, int]) -> dict[str, float]:
    """Of who tosses a coin for each candidate: one of them is right, and all others have to be refused."""
    right, others = 1 / 2, (1 / 2) ** (max(shape) - 1)
    return {"p_c": right, "p_f": others, "acc": (right + others) / 2, "min_p": min(right, others)}


ACCURACY = Metric(
    "accuracy",
    _judge_accuracy,
    headline="accuracy",
    chance=lambda shape: {"accuracy": recall_chance(max(shape))},
    decision=Decision(tops=(1,)),
    alone=Alone(_judge_alone, _combined, _alone_chance),
)
"""Alone: VALSE's p_c, p_f, acc and min(p_c, p_f), of lxmert_valse_eval.py (Parcalabescu et al. 2022)."""
MACRO_ACCURACY = dataclasses.replace(ACCURACY, name="macro_accuracy", averages_groups=True)
"""Accuracy, and its mean over the task's groups."""


def _recall_at(name: str, tops: tuple[int, ...]) -> Metric:
    def judge(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
        ranks = _ranks(scores, targets)
        return {f"recall@{k}": recall(ranks, targets, k) for k in tops}

    def chance(shape: tuple[int, int]) -> dict[str, float]:
        return {f"recall@{k}": recall_chance(max(shape), k) for k in tops}

    return Metric(name, judge, headline="recall@1", chance=chance, decision=Decision(tops))


RECALL = _recall_at("recall", (1, 5))
RECALL_1_3_5_10 = _recall_at("recall_1_3_5_10", (1, 3, 5, 10))
"""The recalls of CREPE (Ma et al. 2023, crepe_eval_utils.py, ``get_one2many_metrics``)."""

WINOGROUND = Metric(
    "winoground",
    _judge_winoground,
    headline="group",
    shown=("text", "image", "group"),
    chance=lambda shape: WINOGROUND_CHANCE if shape == (2, 2) else {},
    decision=Decision(),
)
WINOGROUND_IMAGE = dataclasses.replace(WINOGROUND, name="winoground_image", headline="image")
"""The same with the image score as the headline, as MMVP-VLM (Tong et al. 2024, evaluate_vlm.py) and COLA (Ray et al.
2023) count pairs: each of two texts finds its image."""


def _judge_own_texts(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    """Text i must score higher than every other text for image i. Texts beyond the images are wrong for all of them."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 3 or not 1 <= scores.shape[1] <= scores.shape[2] or scores.shape[2] < 2:
        raise ValueError(f"own_texts needs at least as many texts as images, two at least, got {scores.shape[1:3]}.")
    if targets is not None or not np.isfinite(scores).all():
        raise ValueError("own_texts needs finite scores and no targets: its right answer is the diagonal.")
    image, other = np.nonzero(1 - np.eye(*scores.shape[1:3]))
    return {"own_texts": _all_ahead(scores[:, image, image] - scores[:, image, other])}


OWN_TEXTS = Metric(
    "own_texts",
    _judge_own_texts,
    headline="own_texts",
    chance=lambda shape: {"own_texts": (1 / shape[1]) ** shape[0]},  # images are guessed one by one
)
"""What'sUp's pair and set accuracy (Kamath et al. 2023, section 3): all images of a group find their own caption."""


def _right_answers(shape: tuple[int, int]) -> np.ndarray:
    """[images, texts] bool: texts 2j and 2j + 1 are the answers to question j, of which image i has text 2j + i."""
    image, text = np.indices(shape)
    return text % 2 == image


def _judge_all_answers(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 3 or scores.shape[1] not in (1, 2) or scores.shape[2] < 2 or scores.shape[2] % 2:
        raise ValueError(f"all_answers needs one or two images and pairs of texts, got {scores.shape[1:3]}.")
    if targets is not None or not np.isfinite(scores).all():
        raise ValueError("all_answers needs finite scores and no targets: positions decide.")
    image, text = np.nonzero(_right_answers(scores.shape[1:3]))
    return {"all_answers": _all_ahead(scores[:, image, text] - scores[:, image, text ^ 1])}


ALL_ANSWERS = Metric(
    "all_answers",
    _judge_all_answers,
    headline="all_answers",
    pairs=_right_answers,
    chance=lambda shape: {"all_answers": (1 / 2) ** (shape[0] * shape[1] // 2)},  # answers are guessed one by one
)
"""NaturalBench's I-Acc and G-Acc (Li et al. 2024, section 3): all questions about one image, or about both."""


def _judge_all_true(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    """All texts but the last one must score higher than the last one. Targets are the first text."""
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 3 or scores.shape[1] != 1 or scores.shape[2] < 2 or not np.isfinite(scores).all():
        raise ValueError(f"all_true needs finite scores of one image and several texts, got {scores.shape}.")
    if targets is None or (np.asarray(targets) == scores.shape[2] - 1).any():
        raise ValueError("all_true needs targets, and the last text is the false one.")
    margins = scores[:, 0, :-1].min(axis=1) - scores[:, 0, -1]
    return {"all_true": Outcome(margins > 0, margins == 0)}


ALL_TRUE = Metric(
    "all_true",
    _judge_all_true,
    headline="all_true",
    chance=lambda shape: {"all_true": 1 / max(shape)},  # the false one is as likely as any other to score lowest
)
"""SugarCrepe++'s ITT (Dumpala et al. 2024, section 4): every true caption beats the false one."""


def _is_whole(number) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _finite(scores, ndim: int) -> np.ndarray:
    scores = np.asarray(scores, np.float64)
    if scores.ndim < ndim:
        raise ValueError(f"scores need {ndim} dimensions, got shape {scores.shape}.")
    if not len(scores):
        raise ValueError("scores hold no example.")
    if not np.isfinite(scores).all():
        raise ValueError("scores hold NaN or infinity.")
    return scores
