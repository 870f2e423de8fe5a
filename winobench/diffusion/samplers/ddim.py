"""DDIM without noise (Song et al. 2021, Eq. 12 with sigma = 0), as diffusers' DDIMScheduler."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import options
from winobench.diffusion.samplers import timesteps
from winobench.diffusion.samplers.base import Plan, Row, Sampler, make_plan
from winobench.diffusion.schedules import NoiseSchedule

_BOUND = options.number(above=0, high=1e6)


def ddim_timesteps(schedule: NoiseSchedule, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The timesteps of a DDIM run and the timestep after each step, int32 ``[num_steps]`` each, falling.

    By diffusers' rule a step goes to its timestep minus ``T // num_steps``, which is not always the next step's
    timestep. Below 0 is the image itself.
    """
    steps = timesteps.spaced(schedule, num_steps, usual="leading").round().astype(np.int32)
    return steps, steps - schedule.num_train_timesteps // num_steps


@dataclasses.dataclass(frozen=True)
class Ddim(Sampler):
    """DDIM, which clips the clean latents of each step if the schedule's file sets ``clip_sample``."""

    def plan(self, schedule: NoiseSchedule, num_steps: int, *, first: int = 0, evenly: bool = False) -> Plan:
        steps, following = ddim_timesteps(schedule, num_steps)
        to_one = timesteps.option(schedule, "set_alpha_to_one", schedule.scheduler_class != "PNDMScheduler")
        table = schedule.alphas_cumprod
        last = np.float32(1) if to_one else table[0]
        remaining = np.where(following < 0, last, table[np.maximum(following, 0)])
        timesteps.check_unsupported(schedule, thresholding=(False,))
        clipped = {name: np.full(num_steps, bound) for name, bound in self.identity(schedule).items()}
        rates = {"signal": schedule.signal_rates[steps], "noise": schedule.noise_rates[steps]}
        following_rates = {"next_signal": np.sqrt(remaining), "next_noise": np.sqrt(np.float32(1) - remaining)}
        return make_plan(
            schedule,
            first,
            times=schedule.model_times[steps],
            tables=rates | following_rates | clipped,
            start=(rates["signal"], rates["noise"]),
        )

    def identity(self, schedule: NoiseSchedule) -> dict[str, Any]:
        if not timesteps.option(schedule, "clip_sample", False):
            return {}
        bound = timesteps.option(schedule, "clip_sample_range", 1.0)
        return {"clip_sample": _BOUND.check("the sampler option clip_sample_range", bound)}

    def step(
        self, kind: str, prediction: jax.Array, latents: jax.Array, row: Row, carry: tuple[()], noise: None
    ) -> tuple[jax.Array, tuple[()]]:
        signal, noise_rate = row["signal"], row["noise"]
        if kind == "epsilon":
            clean, noise = (latents - noise_rate * prediction) / signal, prediction
        else:
            clean = signal * latents - noise_rate * prediction
            noise = signal * prediction + noise_rate * latents
        if "clip_sample" in row:
            clean = jnp.clip(clean, -row["clip_sample"], row["clip_sample"])
        return row["next_signal"] * clean + row["next_noise"] * noise, carry
