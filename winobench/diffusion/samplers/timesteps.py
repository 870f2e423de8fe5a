"""Which timesteps a run visits, by the options that a scheduler's file has for it (Lin et al. 2023, Table 2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from winobench.base.errors import InputError
from winobench.diffusion.samplers.base import check_num_steps
from winobench.diffusion.schedules import NoiseSchedule

SPACINGS = ("leading", "trailing", "linspace")


def option(schedule: NoiseSchedule, name: str, usual: Any) -> Any:
    value = dict(schedule.sampler_options).get(name)
    return usual if value is None else value


def check_unsupported(schedule: NoiseSchedule, **supported: tuple[Any, ...]) -> None:
    for name, values in supported.items():
        value = option(schedule, name, values[0])
        if value not in values:
            raise InputError(
                f"the sampler option {name} is {value!r}, which this sampler does not support: name another sampler, or"
                f" set it to {values[0]!r} in scheduler_config.json",
                code="unsupported-option",
            )


def spacing_of(schedule: NoiseSchedule, usual: str) -> str:
    spacing = option(schedule, "timestep_spacing", usual) or usual
    if spacing not in SPACINGS:
        raise InputError(
            f"the sampler option timestep_spacing is {spacing!r}, but must be leading, trailing or linspace",
            code="unknown-name",
        )
    return spacing


def spaced(schedule: NoiseSchedule, num_steps: int, *, usual: str) -> np.ndarray:
    """The timesteps of a run, falling, between whole ones where they are evenly spaced.

    ``trailing`` is computed in whole numbers: in floating point, 62 of the step counts from 1 to 1,000 get a step too
    many, at timestep -1. Halves go to the even timestep. Returns float64 ``[num_steps]``, from 0 to T - 1.
    """
    total = schedule.num_train_timesteps
    num_steps = check_num_steps(num_steps, total)
    spacing = spacing_of(schedule, usual)
    if spacing == "leading":
        steps = np.arange(num_steps)[::-1] * (total // num_steps) + option(schedule, "steps_offset", 0)
        # An offset of 1 has nowhere to go when every timestep is used.
        return np.minimum(steps, total - 1).astype(np.float64)
    if spacing == "trailing":
        return trailing(total, total, num_steps).astype(np.float64)
    return np.linspace(0, total - 1, num_steps)[::-1]


def trailing(last: int, total: int, num_steps: int) -> np.ndarray:
    """Every (total / num_steps)-th timestep from ``last`` - 1 down, rounded: int64, at most ``num_steps`` of them."""
    numerators = last * num_steps - total * np.arange(num_steps)
    # Halves to the even number, as NumPy rounds, but exactly.
    whole, rest = np.divmod(numerators[numerators > 0].astype(np.int64), num_steps)
    return whole + ((2 * rest > num_steps) | ((2 * rest == num_steps) & (whole % 2 == 1))) - 1
