"""Weights of timesteps in a score: the published weightings of noise levels, and weights learned from errors.

A score is the mean over samples of weight times error. Weights have the mean 1, so that scores keep their size. They
are applied to recorded errors: another weighting needs no pass of a network.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.base.files import user_path

UNIFORM = "uniform"  # all timesteps count alike

LEVEL_RULES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "sigma_sqrt": lambda levels: levels**-2.0,
    "cosmap": lambda levels: 2 / (np.pi * (1 - 2 * levels + 2 * levels**2)),
    "logit_normal": lambda levels: (
        np.exp(-0.5 * np.log(levels / (1 - levels)) ** 2) / (np.sqrt(2 * np.pi) * levels * (1 - levels))
    ),
}
"""Name -> weights of noise levels in (0, 1): the training weightings of Stable Diffusion 3 (Esser et al. 2024, "Scaling
Rectified Flow Transformers for High-Resolution Image Synthesis", section 3.1), by which Self-Bench weights its errors;
`logit_normal` is the density with mean 0 and deviation 1."""

_LEAST, _MOST = 1e-30, 1e30  # of the largest weight: beyond, sums and products leave the range of floats
_NEAR_ONE = 1 - 1e-6  # a level of 1 has no logit


@dataclasses.dataclass(frozen=True)
class Curve:
    """Learned weights: a step function of the timestep, or of the noise level."""

    edges: tuple[float, ...]  # [k - 1] ascending. A step reaches from one, included, to the next
    weights: tuple[float, ...]  # [k], not negative

    def __call__(self, timesteps: np.ndarray) -> np.ndarray:
        return np.asarray(self.weights)[np.searchsorted(self.edges, timesteps, side="right")]

    def described(self) -> dict[str, list[float]]:
        """The record, which `parse` reads."""
        return {name: list(values) for name, values in dataclasses.asdict(self).items()}


def parse(given: str | os.PathLike | Mapping[str, Any] | None) -> str | Curve:
    """Parses an option's value."""
    if given is None or given == UNIFORM:
        return UNIFORM
    if isinstance(given, str) and given in LEVEL_RULES:
        return given
    if not isinstance(given, Mapping):
        path = user_path(given)
        if not os.path.isfile(path):
            raise InputError(
                f"timestep_weights is {options.quote(given)}, but must be one of"
                f" {', '.join((UNIFORM, *LEVEL_RULES))}, or a file that winobench report --fit_timesteps wrote",
                code="bad-timestep-weights",
            )
        given = json_files.read(path, "name a file that winobench report --fit_timesteps wrote")
    fields: Mapping[str, Any] = given if isinstance(given, Mapping) else {}
    edges: Any = fields.get("edges")
    weights: Any = fields.get("weights")
    numbers = _are_numbers(edges) and _are_numbers(weights)
    if not numbers or len(weights) != len(edges) + 1 or edges != sorted(edges) or not _can_weight(weights):
        raise InputError(
            "timestep weights need 'edges' in ascending order and one more of 'weights', none below 0, the"
            f" largest from {_LEAST:g} to {_MOST:g}: name a file that winobench report --fit_timesteps wrote",
            code="bad-timestep-weights",
        )
    return Curve(tuple(map(float, edges)), tuple(map(float, weights)))


def described(weighting: str | Curve) -> str | dict[str, list[float]]:
    """The record, which `parse` reads."""
    return weighting if isinstance(weighting, str) else weighting.described()


def sample_weights(weighting: str | Curve, timesteps: Sequence[float]) -> np.ndarray | None:
    """The weights of samples at timesteps [n] (integers, or noise levels above 0 and up to 1).

    Float64 [n] with the mean 1; None for uniform weights.
    """
    if weighting == UNIFORM:
        return None
    values = np.asarray(timesteps)
    if isinstance(weighting, str) and values.dtype.kind != "f":
        raise InputError(
            f"timestep_weights={weighting} is of a flow model's noise levels, and this model has timesteps: choose"
            f" {UNIFORM}, or a file that winobench report --fit_timesteps wrote for it",
            code="option-of-others",
        )
    rule = LEVEL_RULES[weighting] if isinstance(weighting, str) else weighting
    weights = rule(np.minimum(values, _NEAR_ONE) if isinstance(weighting, str) else values).astype(np.float64)
    if not _can_weight(weights):
        raise InputError(
            "the timestep weights are 0 at all of these timesteps, or no numbers that can be averaged: use a file that"
            " was fitted on them",
            code="bad-timestep-weights",
        )
    return weights / weights.mean()


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) in (int, float) and abs(value) <= _MOST for value in values)


def _can_weight(weights: Iterable[float]) -> bool:
    """Whether none is negative, infinite or NaN, and the largest can be averaged."""
    weights = list(weights)
    return all(0 <= weight <= _MOST for weight in weights) and max(weights) >= _LEAST
