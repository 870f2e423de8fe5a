"""Pure NumPy functions from scores to right and wrong answers, and from those to values with confidence intervals."""

from __future__ import annotations

from winobench.metrics.association import association_results
from winobench.metrics.dependence import Dependence
from winobench.metrics.intervals import (
    Design,
    Interval,
    clustered,
    false_discovery_rates,
    family_wise,
    mean_of_means,
    paired_difference,
    wilson,
)
from winobench.metrics.matching import (
    ACCURACY,
    ALL_ANSWERS,
    ALL_TRUE,
    MACRO_ACCURACY,
    OWN_TEXTS,
    RECALL,
    RECALL_1_3_5_10,
    WINOGROUND,
    WINOGROUND_CHANCE,
    WINOGROUND_IMAGE,
    recall,
    recall_chance,
    winoground,
)
from winobench.metrics.metric import Decision, Metric, Metrics, Outcome
from winobench.metrics.ratings import RATING_METRICS, rating_results

_OURS = (
    *(ACCURACY, MACRO_ACCURACY, RECALL, RECALL_1_3_5_10, WINOGROUND, WINOGROUND_IMAGE),
    *(ALL_TRUE, OWN_TEXTS, ALL_ANSWERS),
)
METRICS = Metrics({metric.name: metric for metric in _OURS})
"""What a task may name as its metric, and what other packages plug in under the entry points ``winobench.metrics``."""

__all__ = [
    "METRICS",
    "RATING_METRICS",
    "WINOGROUND_CHANCE",
    "Decision",
    "Dependence",
    "Design",
    "Interval",
    "Metric",
    "Outcome",
    "association_results",
    "clustered",
    "false_discovery_rates",
    "family_wise",
    "mean_of_means",
    "paired_difference",
    "rating_results",
    "recall",
    "recall_chance",
    "wilson",
    "winoground",
]
