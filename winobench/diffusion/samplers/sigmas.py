"""Noise levels as k-diffusion counts them: sigma, noise over signal, along which Euler's method and DPM-Solver go."""

from __future__ import annotations

import numpy as np

from winobench.base.errors import InputError
from winobench.diffusion.samplers import timesteps
from winobench.diffusion.schedules import RHO, NoiseSchedule

# What diffusers puts instead of no signal at all, so that sigma is finite: 4096.
_LEAST_SIGNAL = np.float32(2**-24)


def of_training(schedule: NoiseSchedule) -> np.ndarray:
    """sqrt((1 - abar) / abar) of each timestep: float32 ``[T]``, rising, from float32 as diffusers computes it."""
    signal = schedule.alphas_cumprod
    if schedule.rescale_betas_zero_snr:
        signal = np.append(signal[:-1], _LEAST_SIGNAL)
    return np.sqrt((np.float32(1) - signal) / signal)


def at(training: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """The levels at timesteps, which may lie between two: float64, like ``steps``."""
    return np.interp(steps, np.arange(len(training)), training)


def is_karras(schedule: NoiseSchedule) -> bool:
    for name in ("use_exponential_sigmas", "use_beta_sigmas", "use_lu_lambdas"):
        if timesteps.option(schedule, name, False):
            raise InputError(
                f"the sampler option {name} is set, which this sampler does not support: use ddim",
                code="unsupported-option",
            )
    return bool(timesteps.option(schedule, "use_karras_sigmas", False))


def karras(
    schedule: NoiseSchedule, training: np.ndarray, highest: float, lowest: float, num_steps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Levels that are even in their 7th root (Karras et al. 2022, Eq. 5), and the timesteps that they are at.

    Returns (levels, timesteps), float64 ``[num_steps]`` each, falling.
    """
    highest = timesteps.option(schedule, "sigma_max", float(highest))
    lowest = timesteps.option(schedule, "sigma_min", float(lowest))
    ends = highest ** (1 / RHO), lowest ** (1 / RHO)
    levels = np.linspace(*ends, num_steps) ** RHO
    return levels, np.interp(np.log(levels), np.log(training), np.arange(len(training)))


def last_of(schedule: NoiseSchedule, training: np.ndarray) -> float:
    """The level that a run ends at (``final_sigmas_type``): 0, or the first timestep's."""
    kind = timesteps.option(schedule, "final_sigmas_type", "zero")
    if kind not in ("zero", "sigma_min"):
        raise InputError(
            f"the sampler option final_sigmas_type is {kind!r}, but must be zero or sigma_min", code="unknown-name"
        )
    return 0.0 if kind == "zero" else float(training[0])
