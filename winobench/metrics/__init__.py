"""Pure NumPy functions from scores to right and wrong answers, and from those to values with confidence intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from winobench.metrics.association import association_results
from winobench.metrics.dependence import Dependence
from winobench.metrics.intervals import (
    Design,
    Interval,
    PairedDifference,
    clustered,
    false_discovery_rates,
    family_wise,
    paired_difference,
    wilson,
)
from winobench.metrics.matching import (
    WINOGROUND_CHANCE,
    Decision,
    Outcome,
    decided_by,
    recall,
    recall_chance,
    score_accuracy,
    score_recall,
    score_winoground,
    winoground,
)

Metric = Callable[[Sequence[np.ndarray], Sequence[int | None]], Mapping[str, Outcome]]

METRICS: dict[str, Metric] = {
    "accuracy": score_accuracy,
    "macro_accuracy": score_accuracy,
    "recall": score_recall,
    "winoground": score_winoground,
}
"""What a task may name as its metric.

A metric takes the examples' score matrices, each [images, texts] with higher = better, and their targets (an index
along the longer axis, or None for the diagonal), and returns one or more named outcomes, the headline first.
``macro_accuracy`` also makes the report give the mean over the task's groups, which differs from the mean over
examples where groups differ in size.

A metric that `decided_by` marks also says which comparisons decide a question. A race needs that; all else works
without.
"""


def decision_of(metric: str) -> Decision | None:
    """Which comparisons decide a question under a metric of ``METRICS``; None if it does not say."""
    return getattr(METRICS.get(metric), "decision", None)


__all__ = [
    "METRICS",
    "WINOGROUND_CHANCE",
    "Decision",
    "Dependence",
    "Design",
    "Interval",
    "Metric",
    "Outcome",
    "PairedDifference",
    "association_results",
    "clustered",
    "decided_by",
    "decision_of",
    "false_discovery_rates",
    "family_wise",
    "paired_difference",
    "recall",
    "recall_chance",
    "wilson",
    "winoground",
]
