"""The bias-corrected and accelerated bootstrap (Efron, "Better bootstrap confidence intervals", JASA 1987)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np


def interval(
    sizes: Sequence[int],
    statistic: Callable[..., np.ndarray],
    *,
    level: float,
    num_resamples: int,
    seed: int,
    batch: int,
) -> tuple[float, float]:
    """Ends of the interval of a statistic of one or several sets, of which each is resampled by itself.

    Args:
      sizes: of each set; what is drawn are numbers of its members.
      statistic: (int [..., size] of each set, the members that were drawn) -> [...].
      level: of the interval.
      num_resamples: of the bootstrap.
      seed: of the resamples.
      batch: resamples that are computed together.

    Returns:
      Both ends; those of the percentile interval where BCa's are undefined.
    """
    import scipy.stats  # late: it takes most of a second, and listings of tasks need none of it

    def of_last_axis(*drawn: np.ndarray, axis: int) -> np.ndarray:
        del axis  # always the last
        return statistic(*drawn)

    def ends(method: str) -> tuple[float, float]:
        found = scipy.stats.bootstrap(
            [np.arange(size) for size in sizes],
            of_last_axis,
            n_resamples=num_resamples,
            batch=batch,
            vectorized=True,
            confidence_level=level,
            method=method,
            rng=np.random.default_rng(seed),
        ).confidence_interval
        return float(found.low), float(found.high)

    with warnings.catch_warnings():
        # What scipy warns of is answered below.
        warnings.simplefilter("ignore")
        found = ends("BCa")
        return found if all(map(math.isfinite, found)) else ends("percentile")
