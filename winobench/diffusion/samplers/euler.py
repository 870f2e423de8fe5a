"""Euler's method along sigma (Karras et al. 2022, Algorithm 2 without churn), as diffusers' EulerDiscreteScheduler."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np

from winobench.base.errors import InputError
from winobench.diffusion.samplers import sigmas, timesteps
from winobench.diffusion.samplers.base import Plan, Row, Sampler, make_plan
from winobench.diffusion.schedules import NoiseSchedule

# Where the schedule's file states nothing.
_SPACING = "linspace"


@dataclasses.dataclass(frozen=True)
class Euler(Sampler):
    """Latents are z + sigma eps. The network is given them divided by sqrt(sigma^2 + 1)."""

    def plan(self, schedule: NoiseSchedule, num_steps: int, *, first: int = 0, evenly: bool = False) -> Plan:
        """The levels may follow Karras et al. (``use_karras_sigmas``), and end above 0."""
        training = sigmas.of_training(schedule)
        steps = timesteps.spaced(schedule, num_steps, usual=_SPACING)
        # Neither has diffusers between float32 ones.
        levels = sigmas.at(training, np.float32(steps))
        interpolation = timesteps.option(schedule, "interpolation_type", "linear")
        if interpolation != "linear":
            raise InputError(
                f"the sampler option interpolation_type is {interpolation!r}, which this sampler does not support: use"
                " ddim",
                code="unsupported-option",
            )
        if sigmas.is_karras(schedule):
            levels, steps = sigmas.karras(schedule, training, levels[0], levels[-1], num_steps)
        levels = np.append(levels, sigmas.last_of(schedule, training))
        return plan_along(schedule, steps, levels, first, {"change": np.diff(np.float32(levels))})

    def step(
        self, kind: str, prediction: jax.Array, latents: jax.Array, row: Row, carry: tuple[()], noise: None
    ) -> tuple[jax.Array, tuple[()]]:
        return latents + row["change"] * slope(prediction, latents, row), carry


def plan_along(
    schedule: NoiseSchedule, steps: np.ndarray, levels: np.ndarray, first: int, tables: dict[str, np.ndarray]
) -> Plan:
    """A plan along sigmas ``[num_steps + 1]`` at timesteps ``[num_steps]``."""
    # In float64, of levels as they are rounded. The other differences from diffusers are its own rounding.
    here = np.float64(np.float32(levels[:-1]))
    variance = here**2 + 1
    if schedule.prediction == "epsilon":
        slopes = {"of_latents": np.zeros_like(here), "of_prediction": np.ones_like(here)}
    else:
        slopes = {"of_latents": here / variance, "of_prediction": 1 / np.sqrt(variance)}
    highest = np.float32(levels).max()
    is_leading = timesteps.spacing_of(schedule, _SPACING) == "leading"
    return make_plan(
        schedule,
        first,
        times=steps,
        tables=slopes | tables,
        start=(np.ones_like(here), here),
        noise_scale=np.sqrt(np.float64(highest) ** 2 + 1) if is_leading else highest,
        input_scale=1 / np.sqrt(variance),
    )


def slope(prediction: jax.Array, latents: jax.Array, row: Row) -> jax.Array:
    """dz/dsigma, by the tables of `plan_along`."""
    return row["of_latents"] * latents + row["of_prediction"] * prediction
