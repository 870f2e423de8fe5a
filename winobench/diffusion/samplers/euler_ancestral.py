"""Euler's method with fresh noise at every step, as diffusers' EulerAncestralDiscreteScheduler."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import jax
import numpy as np

from winobench.diffusion.samplers import euler, sigmas, timesteps
from winobench.diffusion.samplers.base import Plan, Row, Sampler
from winobench.diffusion.schedules import NoiseSchedule


@dataclasses.dataclass(frozen=True)
class EulerAncestral(Sampler):
    """Goes further down than Euler's method does, and up again by noise, to the level where it should be."""

    is_random: ClassVar = True

    def plan(self, schedule: NoiseSchedule, num_steps: int, *, first: int = 0, evenly: bool = False) -> Plan:
        steps = timesteps.spaced(schedule, num_steps, usual="linspace")
        levels = np.append(sigmas.at(sigmas.of_training(schedule), np.float32(steps)), 0)
        current, following = np.float64(np.float32(levels[:-1])), np.float64(np.float32(levels[1:]))
        up = np.sqrt(following**2 * (current**2 - following**2) / current**2)
        down = np.sqrt(following**2 - up**2)
        return euler.plan_along(schedule, steps, levels, first, {"change": down - current, "up": up})

    def step(
        self, kind: str, prediction: jax.Array, latents: jax.Array, row: Row, carry: tuple[()], noise: jax.Array
    ) -> tuple[jax.Array, tuple[()]]:
        return latents + row["change"] * euler.slope(prediction, latents, row) + row["up"] * noise, carry
