"""DPM-Solver++(2M) (Lu et al. 2022, arXiv 2211.01095, Algorithm 2), as diffusers' DPMSolverMultistepScheduler."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base.errors import InputError
from winobench.diffusion.samplers import sigmas, timesteps
from winobench.diffusion.samplers.base import Plan, Row, Sampler, check_num_steps, make_plan
from winobench.diffusion.schedules import NoiseSchedule

# The first value is implemented. diffusers reads the others, of other solvers' files, as the first.
_SUPPORTED = {
    "algorithm_type": ("dpmsolver++", "deis"),
    "solver_type": ("midpoint", "logrho", "bh1", "bh2"),
    "solver_order": (2,),
    "thresholding": (False,),
}
# Of a run with fewer steps, the last one is of first order.
_FEW = 15


def dpm_timesteps(schedule: NoiseSchedule, num_steps: int) -> np.ndarray:
    """The timesteps of a run: int64 ``[num_steps]``, falling.

    ``leading`` and ``linspace``, the usual one, space one more and drop the last. ``lambda_min_clipped`` leaves out
    timesteps with hardly any signal.
    """
    total = schedule.num_train_timesteps
    spacing = timesteps.spacing_of(schedule, "linspace")
    num_steps = check_num_steps(num_steps, total if spacing == "trailing" else total - 1, "dpm_solver's num_steps")
    signal = schedule.alphas_cumprod
    lowest = timesteps.option(schedule, "lambda_min_clipped", -np.inf)
    with np.errstate(divide="ignore"):
        log_ratios = 0.5 * (np.log(signal) - np.log1p(-signal))
    last = total - int(np.searchsorted(log_ratios[::-1], lowest))
    if spacing == "linspace":
        steps = np.linspace(0, last - 1, num_steps + 1).round()[::-1][:-1].astype(np.int64)
    elif spacing == "leading":
        steps = np.arange(num_steps + 1)[::-1][:-1] * (last // (num_steps + 1))
        steps = np.minimum(steps + timesteps.option(schedule, "steps_offset", 0), total - 1)
    else:
        steps = timesteps.trailing(last, total, num_steps)
    if len(steps) < num_steps or (np.diff(steps) >= 0).any():
        raise InputError(
            f"dpm_solver's num_steps is {num_steps}, but the noise schedule leaves it fewer timesteps",
            code="too-few-timesteps",
        )
    return steps


@dataclasses.dataclass(frozen=True)
class DpmSolver(Sampler):
    """Second order by the prediction of the step before, by the midpoint rule. Files with others are refused."""

    def plan(self, schedule: NoiseSchedule, num_steps: int, *, first: int = 0, evenly: bool = False) -> Plan:
        timesteps.check_unsupported(schedule, **_SUPPORTED)
        training = sigmas.of_training(schedule)
        steps = dpm_timesteps(schedule, num_steps)
        levels = sigmas.at(training, steps)
        if sigmas.is_karras(schedule):
            levels, positions = sigmas.karras(schedule, training, training[-1], training[0], num_steps)
            # Timesteps are whole here. Cosines' timesteps are cut off, not rounded.
            steps = (positions if schedule.beta_schedule == "squaredcos_cap_v2" else positions.round()).astype(np.int64)
        levels = np.float64(np.float32(np.append(levels, sigmas.last_of(schedule, training))))
        signal = 1 / np.sqrt(levels**2 + 1)
        noise = levels * signal
        if schedule.prediction == "epsilon":
            clean = {"clean_of_latents": 1 / signal[:-1], "clean_of_prediction": -levels[:-1]}
        else:
            clean = {"clean_of_latents": signal[:-1], "clean_of_prediction": -noise[:-1]}
        return make_plan(
            schedule,
            first,
            times=steps,
            tables=clean | _updates(schedule, levels, signal, noise, first),
            start=(signal[:-1], noise[:-1]),
        )

    def carry(self, latents: jax.Array) -> jax.Array:
        """The clean latents of the step before. The first step does not read them."""
        return jnp.zeros_like(latents)

    def step(
        self, kind: str, prediction: jax.Array, latents: jax.Array, row: Row, carry: jax.Array, noise: None
    ) -> tuple[jax.Array, jax.Array]:
        clean = row["clean_of_latents"] * latents + row["clean_of_prediction"] * prediction
        towards = row["of_clean"] * clean + row["of_change"] * (clean - carry)
        return row["of_latents"] * latents + towards, clean


def _updates(
    schedule: NoiseSchedule, levels: np.ndarray, signal: np.ndarray, noise: np.ndarray, first: int
) -> dict[str, np.ndarray]:
    """The factors of latents, of clean latents, and of their change since the step before."""
    num_steps = len(levels) - 1
    with np.errstate(divide="ignore"):
        log_ratios = -np.log(levels)
    lengths = np.diff(log_ratios)  # h of the paper. Infinite where the run ends without noise
    share = -np.expm1(-lengths) * signal[1:]
    # Half of D1: the change over the step before, scaled to this one's length.
    change = np.zeros(num_steps)
    change[1:-1] = 0.5 * share[1:-1] * lengths[1:-1] / lengths[:-2]
    if num_steps > 1 and not _ends_with_first_order(schedule, num_steps):
        change[-1] = 0.5 * share[-1] * lengths[-1] / lengths[-2]
    change[first] = 0
    return {"of_latents": noise[1:] / noise[:-1], "of_clean": share, "of_change": change}


def _ends_with_first_order(schedule: NoiseSchedule, num_steps: int) -> bool:
    return bool(
        timesteps.option(schedule, "euler_at_final", False)
        or (timesteps.option(schedule, "lower_order_final", True) and num_steps < _FEW)
        or timesteps.option(schedule, "final_sigmas_type", "zero") == "zero"
    )
