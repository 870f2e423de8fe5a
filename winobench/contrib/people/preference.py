"""Which of two is preferred, pair by pair: shares with intervals, and the sign test."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Hashable, Iterable, Sequence

import scipy.stats

from winobench.metrics.intervals import Interval, clustered

FIRST, SECOND, EQUAL = -1, 1, 0  # what an outcome can be: the first is better, the second is, or neither


@dataclasses.dataclass(frozen=True)
class Preference:
    """Shares of preferences for the second of two over the first."""

    first: int  # pairs in which the first is preferred, and so on
    second: int
    equal: int
    share: Interval | None  # of the decided pairs, those in which the second is preferred; None without any
    p_value: float | None  # of the two-sided sign test over clusters; None where nothing is decided


def summarize(outcomes: Sequence[int], clusters: Iterable[Hashable], *, level: float = 0.95) -> Preference:
    """Counts, the share of the second among decided pairs, and the sign test.

    The share has the interval of `winobench.metrics.intervals.clustered`: two seeds of one prompt are not two prompts.
    The sign test counts each cluster once, for the side that most of its decided pairs prefer. Clusters that are level
    are left out, as ties are.
    """
    clusters = list(clusters)
    if len(clusters) != len(outcomes) or any(outcome not in (FIRST, SECOND, EQUAL) for outcome in outcomes):
        raise ValueError("outcomes are -1, 0 or 1, and each has a cluster.")
    counts = collections.Counter(outcomes)
    decided = [(outcome, cluster) for outcome, cluster in zip(outcomes, clusters, strict=True) if outcome != EQUAL]
    if not decided:
        return Preference(0, 0, counts[EQUAL], None, None)
    share = clustered([outcome == SECOND for outcome, _ in decided], [cluster for _, cluster in decided], level=level)
    sums: collections.Counter[Hashable] = collections.Counter()
    for outcome, cluster in decided:
        sums[cluster] += outcome
    better, worse = (sum(sign * total > 0 for total in sums.values()) for sign in (1, -1))
    p_value = float(scipy.stats.binomtest(better, better + worse).pvalue) if better + worse else None
    return Preference(counts[FIRST], counts[SECOND], counts[EQUAL], share, p_value)


def majority(outcomes: Iterable[int]) -> int:
    """The majority of several judgements of one pair: the side with more votes, or `EQUAL`."""
    total = sum(outcomes)
    return (total > 0) - (total < 0)
