"""Mean of the errors of samples: the one definition, for single scores, evaluations and reports."""

from __future__ import annotations

import dataclasses
from typing import Any

import ml_dtypes
import numpy as np

from winobench.base import options
from winobench.base.errors import InputError

DTYPES = ("float32", "float16", "bfloat16")
"""What each error may be rounded to before the mean. The first is what errors are computed and recorded in."""


@dataclasses.dataclass(frozen=True, eq=False)
class SampleMean:
    """A mean over samples in float64."""

    weights: np.ndarray | None = None  # [n] float64 of the samples, with the mean 1; None for equal ones
    # Each error is rounded to it first, as code does that computes distances in the network's dtype.
    dtype: str = DTYPES[0]

    def terms(self, errors: np.ndarray) -> np.ndarray:
        """Errors [..., n] as they enter the mean: rounded, and weighed."""
        if self.dtype != DTYPES[0]:
            with np.errstate(over="ignore"):
                rounded = errors.astype(np.dtype(getattr(ml_dtypes, self.dtype, self.dtype))).astype(np.float32)
            if np.isinf(rounded).any():
                largest = float(np.abs(errors[np.isinf(rounded)]).max())
                raise InputError(
                    f"reduce_dtype={self.dtype} does not hold an error of {largest:,.0f}: choose error=l2, whose"
                    " numbers are the roots of these",
                    code="dtype-too-small",
                )
            errors = rounded
        return errors if self.weights is None else errors * self.weights

    def __call__(self, errors: np.ndarray) -> np.ndarray:
        """The means of errors [..., n] float32: float64 [...]."""
        means: Any = np.mean(self.terms(errors), axis=-1, dtype=np.float64)
        return means


PLAIN = SampleMean()


def units(timesteps: np.ndarray) -> np.ndarray:
    """The number of the independent unit of each sample, int [n]: two samples of opposite noise are one.

    They are those of the rule ``antithetic``, by which each two neighbours share a timestep.
    """
    number = np.arange(len(timesteps))
    even = len(timesteps) // 2 * 2
    are_pairs = even > 0 and np.array_equal(timesteps[0:even:2], timesteps[1:even:2])
    return number // 2 if are_pairs and len(np.unique(timesteps)) > 1 else number


def choice() -> options.Range:
    return options.choice(*DTYPES)
