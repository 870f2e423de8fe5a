"""Draws latents with classifier-free guidance, in one compiled loop: DDIM, and Euler's method for flow models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.diffusion import schedules
from winobench.errors import InputError

Denoiser = Callable[[Any, jax.Array, jax.Array, Any], jax.Array]


def ddim_timesteps(schedule: schedules.NoiseSchedule, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The timesteps of a DDIM run, and the timestep that each step goes to.

    ``trailing`` is computed in whole numbers: in floating point, 62 of the step counts from 1 to 1,000 get a step too
    many, at timestep -1. Where a timestep lies exactly between two, diffusers' rounding errors decide; the even one is
    taken here. A step goes to its timestep minus ``T // num_steps``, diffusers' rule, which with ``trailing`` and
    ``linspace`` is not always the next step's timestep.

    The schedule's own sampler options ``timestep_spacing`` (``leading`` unless the file says otherwise; Lin et al.
    2023, Table 2) and ``steps_offset`` are respected, whichever sampler its file names.

    Args:
      schedule: the noise schedule.
      num_steps: number of steps, from 1 to the number of timesteps.

    Returns:
      (timesteps, next timesteps), int32 ``[num_steps]`` each, falling; a next timestep below 0 is the picture itself.

    Raises:
      InputError: if there are not that many timesteps.
    """
    total = schedule.num_train_timesteps
    if isinstance(num_steps, bool) or not isinstance(num_steps, int | np.integer):
        raise InputError(
            f"the number of sampling steps is {num_steps!r}, but it must be a whole number", code="wrong-type"
        )
    if not 1 <= num_steps <= total:
        raise InputError(
            f"the number of sampling steps is {num_steps}, but it must be from 1 to {total}", code="out-of-range"
        )
    options = dict(schedule.sampler_options)
    spacing = options.get("timestep_spacing") or "leading"
    if spacing == "leading":
        steps = np.arange(num_steps)[::-1] * (total // num_steps) + (options.get("steps_offset") or 0)
        # An offset of 1 has nowhere to go when every timestep is used.
        steps = np.minimum(steps, total - 1)
    elif spacing == "trailing":
        steps = _rounded(total * np.arange(num_steps, 0, -1), num_steps) - 1
    elif spacing == "linspace":
        steps = np.linspace(0, total - 1, num_steps).round()[::-1]
    else:
        raise InputError(
            f"the sampler option timestep_spacing is {spacing!r}, but must be leading, trailing or linspace",
            code="unknown-name",
        )
    steps = steps.astype(np.int32)
    return steps, steps - total // num_steps


def _rounded(numerators: np.ndarray, denominator: int) -> np.ndarray:
    """Fractions to the nearest whole number, halves to the even one, as NumPy rounds: int64, exactly."""
    whole, rest = np.divmod(numerators.astype(np.int64), denominator)
    return whole + ((2 * rest > denominator) | ((2 * rest == denominator) & (whole % 2 == 1)))


def ddim_step(
    schedule: schedules.NoiseSchedule,
    prediction: jax.Array,
    noisy: jax.Array,
    timestep: jax.Array,
    next_timestep: jax.Array,
) -> jax.Array:
    """One deterministic step (Song et al. 2021, Eq. 12 with sigma = 0). Latents are not clipped.

    Args:
      schedule: the noise schedule.
      prediction: the network's answer, ``[B, h, w, c]``.
      noisy: the latents at ``timestep``, like ``prediction``.
      timestep: int scalar.
      next_timestep: int scalar, smaller; below 0 for the last step.

    Returns:
      The latents at ``next_timestep``, float32.
    """
    table = schedule.alphas_cumprod
    timesteps = jnp.broadcast_to(timestep, prediction.shape[:1])
    noise = schedule.as_noise(prediction, noisy, timesteps)
    clean = schedule.as_latents(prediction, noisy, timesteps)
    to_one = dict(schedule.sampler_options).get("set_alpha_to_one", schedule.scheduler_class != "PNDMScheduler")
    last = 1.0 if to_one else table[0]
    remaining = jnp.where(next_timestep < 0, last, jnp.asarray(table)[jnp.maximum(next_timestep, 0)])
    return jnp.sqrt(remaining) * clean + jnp.sqrt(1.0 - remaining) * noise


def ddim_sample(
    denoiser: Denoiser,
    params: Any,
    schedule: schedules.NoiseSchedule,
    noise: jax.Array,
    text_states: Any,
    empty_states: Any | None,
    *,
    num_steps: int,
    guidance_scale: float | jax.Array = 1.0,
) -> jax.Array:
    """Draws latents. Pure: call it inside of a ``jax.jit``, with ``schedule`` and ``num_steps`` static.

    Args:
      denoiser: ``(params, noisy latents [n, h, w, c], times float32 [n], conditions) -> prediction``.
      params: passed on to the denoiser.
      schedule: the noise schedule.
      noise: float32 ``[B, h, w, c]``, standard normal.
      text_states: conditions, arrays ``[B, ...]``.
      empty_states: those of the empty text, ``[1, ...]`` or ``[B, ...]``; None for sampling without guidance, which
        halves the work.
      num_steps: number of steps.
      guidance_scale: w in prediction = empty + w (text - empty) (Ho and Salimans 2022); 1 is no guidance.

    Returns:
      Latents, float32 ``[B, h, w, c]``, scaled as in training: divide by the VAE's scaling factor before decoding.
    """
    predict = _guided(denoiser, params, schedule, text_states, empty_states, guidance_scale)

    def step(latents: jax.Array, times: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        timestep, next_timestep = times
        return ddim_step(schedule, predict(latents, timestep), latents, timestep, next_timestep), None

    latents, _ = jax.lax.scan(step, jnp.asarray(noise, jnp.float32), ddim_timesteps(schedule, num_steps))
    return latents


def flow_sample(
    denoiser: Denoiser,
    params: Any,
    schedule: schedules.Schedule,
    noise: jax.Array,
    text_states: Any,
    empty_states: Any | None,
    *,
    levels: jax.Array,
    guidance_scale: float | jax.Array = 1.0,
) -> jax.Array:
    """Draws latents of a flow model by Euler's method: z_s' = z_s + (s' - s) v. Pure.

    Args:
      denoiser: as of `ddim_sample`.
      params: passed on to the denoiser.
      schedule: a `winobench.diffusion.flow_schedule.FlowSchedule`.
      noise: as of `ddim_sample`.
      text_states: as of `ddim_sample`.
      empty_states: as of `ddim_sample`.
      levels: float32 ``[num_steps + 1]``, falling, of `FlowSchedule.sampling_levels`.
      guidance_scale: as of `ddim_sample`.

    Returns:
      Latents, float32 ``[B, h, w, c]``, scaled as in training.
    """
    predict = _guided(denoiser, params, schedule, text_states, empty_states, guidance_scale)

    def step(latents: jax.Array, levels: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        level, next_level = levels
        return latents + (next_level - level) * predict(latents, level), None

    latents, _ = jax.lax.scan(step, jnp.asarray(noise, jnp.float32), (levels[:-1], levels[1:]))
    return latents


def _guided(
    denoiser: Denoiser,
    params: Any,
    schedule: schedules.Schedule,
    text_states: Any,
    empty_states: Any | None,
    guidance_scale: float | jax.Array,
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """(latents, timestep) -> float32 prediction; with and without the text in one batch."""
    states = text_states
    if empty_states is not None:
        states = jax.tree.map(
            lambda empty, text: jnp.concatenate([jnp.broadcast_to(empty, text.shape), text]), empty_states, text_states
        )

    def predict(latents: jax.Array, timestep: jax.Array) -> jax.Array:
        inputs = latents if empty_states is None else jnp.concatenate([latents, latents])
        timesteps = jnp.broadcast_to(timestep, inputs.shape[:1])
        prediction = denoiser(params, inputs, schedule.model_time(timesteps), states).astype(jnp.float32)
        if empty_states is None:
            return prediction
        empty, text = jnp.split(prediction, 2)
        return empty + guidance_scale * (text - empty)

    return predict
