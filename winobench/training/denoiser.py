"""Training a denoiser, jointly with its text encoders, on latents and captions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from winobench.diffusion.schedules import Schedule
from winobench.training import losses


def make_loss(
    predict: Callable[[Any, jax.Array, jax.Array, jax.Array], jax.Array],
    schedule: Schedule,
    *,
    timestep_range: tuple[int, int],
    timestep_power: float = 1.0,
):
    """The denoising loss as a function of parameters (Ho et al. 2020; Salimans and Ho 2022; Liu et al. 2023).

    Returns loss_fn(params, batch, key): ``batch["latents"]`` [batch, h, w, c] is scaled, ``batch["input_ids"]`` is
    [batch, length] int32.
    """
    first, last = timestep_range

    def loss_fn(params, batch, key):
        latents = batch["latents"].astype(jnp.float32)
        key_noise, key_timesteps = jax.random.split(key)
        noise = jax.random.normal(key_noise, latents.shape)
        # Stratified over the batch: the same distribution with less variance between steps.
        count = latents.shape[0]
        position = (jnp.arange(count) + jax.random.uniform(key_timesteps, (count,))) / count
        numbers = (first + position ** (1.0 / timestep_power) * (last - first)).astype(jnp.int32)
        timesteps = schedule.timesteps_at(numbers)
        noisy = schedule.add_noise(latents, noise, timesteps)
        target = schedule.target(latents, noise, timesteps)
        prediction = predict(params, noisy, schedule.model_time(timesteps), batch["input_ids"])
        per_example = losses.denoising_loss(prediction, target)
        half = count // 2
        metrics = {"loss_low_noise": per_example[:half].mean(), "loss_high_noise": per_example[half:].mean()}
        return per_example.mean(), metrics

    return loss_fn
