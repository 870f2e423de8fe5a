"""Intervals of any statistic: the bias-corrected and accelerated bootstrap (Efron 1987), and a skewed jackknife's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np

from winobench.metrics.intervals import reaches, unbiased_third

_NEAR_END = 1e-12  # of a range: nearer to its ends no number is transformed


def interval(
    sizes: Sequence[int],
    statistic: Callable[..., np.ndarray],
    *,
    level: float,
    num_resamples: int,
    seed: int,
    batch: int,
    span: tuple[float, float],
) -> tuple[float, float]:
    """Ends of the interval of a statistic of one or several sets, of which each is resampled by itself.

    They are the bootstrap's, or `skewed`'s where these are further out: with heavy tails the bootstrap alone is too
    narrow. ``statistic`` takes int [..., size] of each set, the members that were sampled, and returns [...].
    """
    import scipy.stats  # late: it takes most of a second, and listings of tasks need none of it

    def of_last_axis(*drawn: np.ndarray, axis: int) -> np.ndarray:
        del axis  # always the last
        return statistic(*drawn)

    def ends(method: str) -> tuple[float, float]:
        bounds = scipy.stats.bootstrap(
            [np.arange(size) for size in sizes],
            of_last_axis,
            n_resamples=num_resamples,
            batch=batch,
            vectorized=True,
            confidence_level=level,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval
        return float(bounds.low), float(bounds.high)

    with warnings.catch_warnings():
        # What scipy warns of is answered below.
        warnings.simplefilter("ignore")
        bounds = ends("BCa")
        bounds = bounds if all(map(math.isfinite, bounds)) else ends("percentile")
    others = skewed(sizes, statistic, level=level, batch=batch, span=span)
    return (min(bounds[0], others[0]), max(bounds[1], others[1])) if others else bounds


def skewed(
    sizes: Sequence[int],
    statistic: Callable[..., np.ndarray],
    *,
    level: float,
    batch: int,
    span: tuple[float, float],
) -> tuple[float, float] | None:
    """Ends of the jackknife's interval with Student's quantile and skewness, on the scale of Fisher's z.

    None where the statistic is undefined without one member, or does not change.
    """
    import scipy.special  # late: listings and help need none of it

    everyone = [np.arange(size)[None] for size in sizes]
    least, greatest = span

    def transformed(*drawn: np.ndarray) -> np.ndarray:
        share = 2 * (statistic(*drawn) - least) / (greatest - least) - 1
        return np.arctanh(np.clip(share, _NEAR_END - 1, 1 - _NEAR_END))

    variance = third = spread = 0.0
    for number, size in enumerate(sizes):
        if size < 2:
            return None
        parts, others = [], np.arange(size - 1)
        for rows in np.split(np.arange(size), np.arange(batch, size, batch)):
            without = others + (others >= rows[:, None])  # [rows, size - 1] the numbers of all members but one
            parts.append(transformed(*everyone[:number], without, *everyone[number + 1 :]))
        values = np.concatenate(parts)
        influence = (size - 1) * (values.mean() - values)
        of_set = float(np.sum(influence**2)) / (size * (size - 1))
        variance += of_set
        spread += of_set**2 / (size - 1)
        third += unbiased_third(size) * float(np.sum(influence**3)) / size**3
    if not (math.isfinite(variance) and variance > 0):
        return None
    student = scipy.special.stdtrit(variance**2 / spread, 0.5 + level / 2)
    below, above = reaches(third, variance, student)
    value, error = transformed(*everyone)[0], math.sqrt(variance)
    ends = np.tanh([value - below * error, value + above * error])
    low, high = least + (greatest - least) * (ends + 1) / 2
    return float(low), float(high)
