"""Confidence intervals for proportions, also where examples that share an image are not independent."""

from __future__ import annotations

import statistics
from typing import NamedTuple

import numpy as np
import scipy.special

# Outcomes of the rarer kind (right or wrong) that weigh as much as the prior belief in fully dependent clusters. Any
# positive value keeps an all-right or all-wrong sample from claiming independence; one is the smallest whole number,
# and with it the interval kept its coverage in the simulation of tests/metrics/test_intervals.py.
_PRIOR_OUTCOMES = 1.0


class Interval(NamedTuple):
    """A value in [0, 1] and the ends of its two-sided confidence interval."""

    value: float
    low: float
    high: float


def wilson(successes: float, total: float, level: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion of independent outcomes.

    Its width is never zero: 0 of n gives [0, z^2 / (n + z^2)]. ``total`` may be an effective sample size and need not
    be whole.

    Args:
      successes: number of successes, from 0 to ``total``.
      total: number of outcomes, above 0.
      level: coverage, between 0 and 1.

    Raises:
      ValueError: an argument is out of its range.

    Source: E. B. Wilson, "Probable inference, the law of succession, and statistical inference", JASA 22 (1927).
    """
    if not total > 0 or not 0 <= successes <= total:
        raise ValueError(f"wilson needs 0 <= successes <= total and total > 0, got {successes} of {total}.")
    z = _normal_quantile(level)
    value = successes / total
    centre = (value + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * np.sqrt(value * (1 - value) / total + z * z / (4 * total * total))
    # At the ends the closed form is exact only up to rounding.
    low = 0.0 if successes == 0 else float(max(0.0, centre - half))
    high = 1.0 if successes == total else float(min(1.0, centre + half))
    return Interval(float(value), low, high)


def clustered(outcomes, clusters, *, strata=None, level: float = 0.95) -> Interval:
    """Interval for a proportion whose outcomes come in clusters, such as all questions about one image.

    The proportion's variance is estimated between clusters, turned into an effective number of independent outcomes,
    and that number is given to Wilson's interval. With one outcome a cluster the result *is* Wilson's interval.

    With ``strata`` the value is the plain mean of the strata's proportions (a macro mean over sub-tasks), each outcome
    weighs 1 / (number of strata x size of its stratum), and deviations are taken from the stratum's own proportion;
    a cluster may reach into several strata, as an image does that serves every sub-task.

    Small samples, where a plain between-cluster variance misleads:

    * It is 0 where all outcomes agree, and unreliable where few disagree. So the design effect is averaged with its
      largest possible value (every cluster answers as one, so that the effective number is Kish's effective number of
      clusters), weighted by the number of outcomes of the rarer kind against one. An all-right sample therefore counts
      its images, not its questions, and the width is never zero. (A wrong answer among right ones of the same image is
      evidence that an image's answers are no copies, so 699 of 700 may well have the narrower interval.)
    * The design effect is never taken to be below 1: chance agreement does not narrow the interval.
    * The variance itself is estimated from few clusters, so the effective number is reduced by the squared ratio of
      the normal to Student's quantile with one degree of freedom less than there are clusters (Korn and Graubard).

    Args:
      outcomes: [n] bool or 0/1.
      clusters: [n] labels of any hashable or integer kind; equal labels share a cluster.
      strata: None, or [n] labels.
      level: coverage, between 0 and 1.

    Raises:
      ValueError: nothing to average, or lengths differ.

    Sources: K.-Y. Liang and S. L. Zeger, Biometrika 73 (1986), for the variance; L. Kish, "Survey sampling" (1965),
    for the design effect; E. L. Korn and B. I. Graubard, Survey Methodology 24 (1998), for the effective sample size
    and its degrees of freedom; N. Dean and M. Pagano, J. Survey Statistics and Methodology 3 (2015), who find Wilson's
    interval at an effective size among the best for clustered proportions.
    """
    outcomes = np.asarray(outcomes, np.float64)
    cluster_ids = _codes(clusters)
    stratum_ids = np.zeros(len(outcomes), np.int64) if strata is None else _codes(strata)
    if outcomes.ndim != 1 or not len(outcomes):
        raise ValueError("clustered needs at least one outcome, in one dimension.")
    if not len(outcomes) == len(cluster_ids) == len(stratum_ids):
        raise ValueError(
            f"clustered got {len(outcomes)} outcomes, {len(cluster_ids)} clusters and {len(stratum_ids)} strata."
        )
    sizes = np.bincount(stratum_ids)
    weights = 1.0 / (len(sizes) * sizes[stratum_ids])
    strata_values = np.bincount(stratum_ids, outcomes) / sizes
    value = float(strata_values.mean())
    num_clusters = int(cluster_ids.max()) + 1

    independent = 1.0 / np.sum(weights**2)  # effective number of outcomes if all were independent
    if num_clusters == len(outcomes):
        effective = independent
    else:
        dependent = 1.0 / np.sum(np.bincount(cluster_ids, weights) ** 2)  # if every cluster answered as one
        worst_effect = independent / dependent
        effect = worst_effect
        if num_clusters > 1 and 0 < value < 1:
            totals = np.bincount(cluster_ids, weights * (outcomes - strata_values[stratum_ids]))
            variance = num_clusters / (num_clusters - 1) * np.sum(totals**2)
            observed = max(1.0, variance * independent / (value * (1 - value)))
            rarer = min(outcomes.sum(), len(outcomes) - outcomes.sum())
            effect = (rarer * observed + _PRIOR_OUTCOMES * worst_effect) / (rarer + _PRIOR_OUTCOMES)
        effective = independent / effect
        if num_clusters > 1:
            student = float(scipy.special.stdtrit(num_clusters - 1, 0.5 + level / 2))
            effective *= (_normal_quantile(level) / student) ** 2
    return wilson(value * effective, effective, level)._replace(value=value)


def _normal_quantile(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}.")
    return statistics.NormalDist().inv_cdf(0.5 + level / 2)


def _codes(labels) -> np.ndarray:
    """Numbers equal labels alike, from 0 on in order of appearance."""
    numbers: dict = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)
