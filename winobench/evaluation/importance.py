"""Timesteps where candidates differ: importance sampling for a race.

Timesteps are sampled with a density p, and each difference is weighted by 1 / p, which leaves its mean. The variance is
least where p is proportional to the root mean squared difference (Kahn and Marshall, "Methods of Reducing Sample Size
in Monte Carlo Computations", 1953). A pilot learns it from some of the benchmark's questions, without their answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.evaluation.plan import Plan
from winobench.evaluation.summary import score_terms
from winobench.metrics import timestep_weights
from winobench.runs import settings
from winobench.scorers import base, samples
from winobench.tasks.base import Task

RULE = options.IMPORTANCE
"""Name among the rules for timesteps."""

PILOT_QUESTIONS, PILOT_SAMPLES = 64, 16
PILOT_RULE = "low_discrepancy"
PILOT_RULES = {RULE: PILOT_RULE, options.ANTITHETIC_IMPORTANCE: options.ANTITHETIC}
"""Rule that learns -> the rule of its pilot."""

_BINS = 10
# No timestep gets less than this share of its uniform probability, so that no weight exceeds two: a question that is
# unlike the pilot's may depend on timesteps without effect there, and a tenth of them still gets a twentieth of the
# samples, which is more than the share that a race allows for by default (Hesterberg, "Weighted Average Importance
# Sampling and Defensive Mixture Distributions", Technometrics 1995).
_AT_LEAST = 0.5
# Timesteps are looked up among this many quantiles of the uniform rule.
_QUANTILES = 1000


def check(sampling: settings.Sampling) -> None:
    """Raises InputError for learned timesteps with an option that they do not go with."""
    rule, is_race = sampling.timesteps, sampling.mode == settings.RACE
    reason = ""
    if rule == RULE and not is_race:
        reason = f"is for a race: choose mode='race', or {options.ANTITHETIC_IMPORTANCE!r}, or another rule."
    elif rule == options.ANTITHETIC_IMPORTANCE and is_race:
        reason = f"is for a fixed number of samples: choose mode='fixed', or {RULE!r}, or another rule."
    elif rule == options.ANTITHETIC_IMPORTANCE and sampling.timestep_weights != timestep_weights.UNIFORM:
        reason = "brings its own weights: leave timestep_weights out, or choose another rule."
    if reason:
        raise InputError(f"timesteps={rule!r} {reason}", code="option-of-others")


def pilot(plan: Plan, tasks: Sequence[Task]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Some questions, evenly spaced among all: rows of errors, int [candidates, terms], and the terms' signs."""
    terms = [parts for task in tasks for parts in score_terms(plan, task.name)]
    chosen = np.unique(np.linspace(0, len(terms) - 1, PILOT_QUESTIONS).round().astype(np.int64))
    columns = [zip(*terms[number], strict=True) for number in chosen]
    return [(np.stack([part.reshape(-1) for part in rows], axis=-1), np.array(signs)) for rows, signs in columns]


def learn(scores: Sequence[np.ndarray], positions: np.ndarray) -> np.ndarray:
    """The density of timesteps that a pilot suggests, from scores [candidates, n] of its questions on n samples.

    ``positions`` [n] in [0, 1) are the samples' places in the range. Returns [10] float64 with the mean 1, of each
    tenth of the range, rounded so that machines agree.
    """
    relative = []
    for matrix in scores:
        # Around their mean, candidates vary by half the squared difference of two.
        spread = np.var(np.asarray(matrix, np.float64), axis=0)
        if spread.mean() > 0:
            relative.append(spread / spread.mean())  # every question counts alike
    if not relative:
        return np.ones(_BINS)
    mean = np.mean(relative, axis=0)
    bins = (np.asarray(positions) * _BINS).astype(np.int64)
    density = np.sqrt([mean[bins == number].mean() for number in range(_BINS)])
    density = _AT_LEAST + (1 - _AT_LEAST) * density / density.mean()
    return np.round(density / density.mean(), 2)


def positions(density: np.ndarray, num_samples: int, seed: int) -> np.ndarray:
    """Quantiles of a density at the points of the rule ``low_discrepancy``: float64 [num_samples] in [0, 1]."""
    cumulated = np.concatenate([[0.0], np.cumsum(density / density.mean()) / _BINS])
    return np.interp(samples.low_discrepancy(num_samples, seed), cumulated, np.linspace(0, 1, _BINS + 1))


def draw(scorer: base.SampledScorer, density: np.ndarray, num_samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Timesteps of a density, and their weights, [num_samples] float64: uniform probability / density.

    They are its quantiles at the points of the rule ``low_discrepancy``: any first n are spread evenly.
    """
    position = positions(density, num_samples, seed)
    density = density / density.mean()
    quantiles = np.asarray(scorer.choose_timesteps(_QUANTILES, seed, "even"))
    timesteps = quantiles[np.minimum((position * _QUANTILES).astype(np.int64), _QUANTILES - 1)]
    bins = np.minimum((position * _BINS).astype(np.int64), _BINS - 1)
    return timesteps, 1 / density[bins]
