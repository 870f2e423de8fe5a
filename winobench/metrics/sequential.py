"""Deciding early: which candidate will win over the whole budget of samples, after a part of them.

A race (Maron and Moore, "Hoeffding Races", NIPS 1993) compares candidates on common samples, looks at the differences
every now and then, and stops sampling those whose fate is sure. Looking often would make errors more frequent than
the level of one test says; each look therefore has a share of the level, and the shares add up to it (Lan and DeMets,
"Discrete Sequential Boundaries for Clinical Trials", Biometrika 1983, with equal shares at looks that double, and the
union bound in place of the joint distribution).

What is predicted is the decision of the whole budget, not the sign of a mean in the limit: of N samples, n are known,
and the mean of all differs from the mean of these with the variance s^2 / n (1 - n / N), as in sampling without
replacement from a finite population (Cochran, "Sampling Techniques", 3rd edition, Eq. 2.20).
"""

from __future__ import annotations

import numpy as np
from scipy import stats

FIRST_LOOK = 4
"""Samples before the first look."""


def looks(budget: int, first: int = FIRST_LOOK) -> list[int]:
    """Numbers of samples after which a race looks at its differences: first, twice as many, ..., the budget.

    Args:
      budget: N, the samples that an undecided comparison ends with; at least 1.
      first: at least 2, for the spread of one sample is unknown.
    """
    numbers = []
    n = first
    while n < budget:
        numbers.append(n)
        n *= 2
    return [*numbers, budget]


def level_of_a_look(alpha: float, budget: int, first: int = FIRST_LOOK) -> float:
    """Each look's share of ``alpha``; the last one decides by the mean and needs none."""
    return alpha / max(1, len(looks(budget, first)) - 1)


def will_stay_positive(differences: np.ndarray, budget: int, level: float) -> np.ndarray:
    """Is it sure that the mean over the whole budget is positive?

    Under normal differences the probability of a wrong "sure" is at most ``level``, whatever their mean and spread.

    Args:
      differences: [..., n] floats, of the samples known so far.
      budget: N >= n.
      level: one-sided, in (0, 1).

    Returns:
      [...] bool; with n = N, whether the mean is positive; with n = 1 < N, False.
    """
    differences = np.asarray(differences, np.float64)
    n = differences.shape[-1]
    mean = differences.mean(axis=-1)
    if n >= budget:
        return mean > 0
    if n < 2:
        return np.zeros(mean.shape, bool)
    spread = differences.std(axis=-1, ddof=1) * np.sqrt((1 / n) * (1 - n / budget))
    return mean > stats.t.isf(level, n - 1) * spread
