"""Training a denoiser, jointly with its text encoder, on latents and captions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.diffusion.schedules import Schedule
from winobench.training import losses


def make_loss(
    unet_graphdef: Any,
    text_graphdef: Any,
    schedule: Schedule,
    *,
    timestep_range: tuple[int, int],
    timestep_power: float = 1.0,
):
    """The noise- or velocity-prediction loss (Ho et al. 2020; Salimans and Ho 2022) as a function of parameters.

    Args:
      unet_graphdef: of a UNet2DConditionModel.
      text_graphdef: of a CLIPTextModel.
      schedule: the noise schedule, and what is predicted.
      timestep_range: timesteps are drawn from [first, last).
      timestep_power: 1 draws them uniformly; p draws them with density proportional to (t - first)^(p - 1), so that
        values above 1 spend more of the batch on the noisy end, where the text decides most.

    Returns:
      loss_fn(params, batch, key): ``params`` has the entries ``unet`` and ``text_encoder``; ``batch["latents"]``
      [batch, h, w, c] is scaled, ``batch["input_ids"]`` is [batch, length] int32.
    """
    first, last = timestep_range

    def loss_fn(params, batch, key):
        unet = nnx.merge(unet_graphdef, params["unet"])
        text_encoder = nnx.merge(text_graphdef, params["text_encoder"])
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
        text_states = text_encoder(batch["input_ids"]).last_hidden_state
        per_example = losses.denoising_loss(unet(noisy, schedule.model_time(timesteps), text_states), target)
        half = count // 2
        metrics = {"loss_low_noise": per_example[:half].mean(), "loss_high_noise": per_example[half:].mean()}
        return per_example.mean(), metrics

    return loss_fn
