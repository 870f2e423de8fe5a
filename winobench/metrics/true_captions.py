"""Several true captions against a false one."""

from __future__ import annotations

import numpy as np

from winobench.metrics.metric import Metric, Outcome


def judge(scores: np.ndarray, targets: np.ndarray | None) -> dict[str, Outcome]:
    """Do all captions but the last one score higher than the last one? ``tie``: the lowest of them equals it.

    ``scores`` are [n, 1, texts, ...], higher = better match. The last text is the false one, and ``targets`` the first.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim < 3 or scores.shape[1] != 1 or scores.shape[2] < 2 or not np.isfinite(scores).all():
        raise ValueError(f"all_true needs finite scores of one image and several texts, got {scores.shape}.")
    if targets is None or (np.asarray(targets) == scores.shape[2] - 1).any():
        raise ValueError("all_true needs targets, and the last text is the false one.")
    margins = scores[:, 0, :-1].min(axis=1) - scores[:, 0, -1]
    return {"all_true": Outcome(margins > 0, margins == 0)}


ALL_TRUE = Metric(
    "all_true",
    judge,
    headline="all_true",
    # The false one is as likely as any other to score lowest.
    chance=lambda shape: {"all_true": 1 / max(shape)},
)
"""SugarCrepe++'s ITT (Dumpala et al. 2024, section 4): every true caption beats the false one."""
