"""Questions about images, each with two answers, one of which is right for one image and the other for another one."""

from __future__ import annotations

import numpy as np

from winobench.metrics.matching import all_ahead
from winobench.metrics.metric import Metric, Outcome


def right_pairs(shape: tuple[int, int]) -> np.ndarray:
    """[images, texts] bool: is the text a right answer of the image?"""
    image, text = np.indices(shape)
    return text % 2 == image


def judge(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    """Does every image get its right answer to every question? ``tie``: two answers of an image score the same.

    ``scores`` are [n, images, texts, ...], higher = better match, for one or two images. Texts 2j and 2j + 1 are a
    question's two answers: of image i, 0 or 1, text 2j + i is the right one.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 3 or scores.shape[1] not in (1, 2) or scores.shape[2] < 2 or scores.shape[2] % 2:
        raise ValueError(f"all_answers needs one or two images and pairs of texts, got {scores.shape[1:3]}.")
    if targets is not None or not np.isfinite(scores).all():
        raise ValueError("all_answers needs finite scores and no targets: places say what is right.")
    image, text = np.nonzero(right_pairs(scores.shape[1:3]))
    return {"all_answers": all_ahead(scores[:, image, text] - scores[:, image, text ^ 1])}


ALL_ANSWERS = Metric(
    "all_answers",
    judge,
    headline="all_answers",
    pairs=right_pairs,
    # Answers are guessed one by one.
    chance=lambda shape: {"all_answers": (1 / 2) ** (shape[0] * shape[1] // 2)},
)
"""NaturalBench's I-Acc and G-Acc (Li et al. 2024, section 3): all questions about one image, or about both."""
