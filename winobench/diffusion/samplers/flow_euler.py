"""Euler's method for flow models (Liu et al. 2023), as diffusers' FlowMatchEulerDiscreteScheduler."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import numpy as np

from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.samplers.base import Plan, Row, Sampler, check_num_steps, make_plan


@dataclasses.dataclass(frozen=True)
class FlowEuler(Sampler):
    """z_s' = z_s + (s' - s) v."""

    is_continuous: ClassVar = True

    def plan(self, schedule: FlowSchedule, num_steps: int, *, first: int = 0, evenly: bool = False) -> Plan:
        num_steps = check_num_steps(num_steps, schedule.num_train_timesteps)
        levels = schedule.sampling_levels(num_steps, evenly=evenly)
        return make_plan(
            schedule,
            first,
            times=levels[:-1] * np.float32(schedule.num_train_timesteps),
            tables={"change": np.diff(levels)},
            start=(1 - levels[:-1], levels[:-1]),
        )

    def identity(self, schedule: FlowSchedule) -> dict[str, Any]:
        return schedule.run_options

    def step(
        self, kind: str, prediction: jax.Array, latents: jax.Array, row: Row, carry: tuple[()], noise: None
    ) -> tuple[jax.Array, tuple[()]]:
        return latents + row["change"] * prediction, carry
