"""Losses as functions of arrays, and of the parameters of an autoencoder or a denoiser."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.diffusion.schedules import Schedule


def kl_to_standard_normal(mean: jax.Array, logvar: jax.Array) -> jax.Array:
    """KL(N(mean, exp(logvar)) || N(0, 1)), summed over everything but the batch axis: [batch] float32, in nats."""
    mean, logvar = mean.astype(jnp.float32), logvar.astype(jnp.float32)
    kl = 0.5 * (jnp.square(mean) + jnp.exp(logvar) - 1.0 - logvar)
    return kl.sum(axis=tuple(range(1, kl.ndim)))


def autoencoder_loss(
    images: jax.Array, reconstructions: jax.Array, mean: jax.Array, logvar: jax.Array, *, pixel_noise: float
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The negative evidence lower bound of a VAE whose pixels have Gaussian noise of a fixed size.

    Scaled by 2 * pixel_noise^2 / number of pixel values, so that its first term is the mean squared error. A larger
    ``pixel_noise``, in units of [-1, 1], lets the encoder drop more detail and leaves the latents closer to white
    noise. ``images`` and ``reconstructions`` are [batch, height, width, 3] in [-1, 1]. Returns the loss (scalar
    float32) and its parts: ``mse``, ``kl`` (nats an image), ``psnr`` (dB, peak-to-peak 2).
    """
    error = jnp.square(images.astype(jnp.float32) - reconstructions.astype(jnp.float32))
    mse = error.mean()
    kl = kl_to_standard_normal(mean, logvar).mean()
    values_per_image = images[0].size
    loss = mse + 2.0 * pixel_noise**2 / values_per_image * kl
    return loss, {"mse": mse, "kl": kl, "psnr": 10.0 * jnp.log10(4.0 / mse)}


def denoising_loss(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Mean squared error of predictions and targets [batch, h, w, c], in float32: [batch]."""
    error = jnp.square(prediction.astype(jnp.float32) - target.astype(jnp.float32))
    return error.mean(axis=tuple(range(1, error.ndim)))


def of_autoencoder(graphdef: Any, *, pixel_noise: float):
    """loss_fn(params, batch, key) with ``batch["images"]`` uint8 [batch, height, width, 3]."""

    def loss_fn(params, batch, key):
        model = nnx.merge(graphdef, params)
        images = batch["images"].astype(jnp.float32) / 127.5 - 1.0
        mean, logvar = model.encode(images)
        latents = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape, mean.dtype)
        return autoencoder_loss(images, model.decode(latents), mean, logvar, pixel_noise=pixel_noise)

    return loss_fn


def of_denoiser(
    predict: Callable[[Any, jax.Array, jax.Array, jax.Array], jax.Array],
    schedule: Schedule,
    *,
    timestep_range: tuple[int, int],
    timestep_power: float = 1.0,
):
    """The denoising loss (Ho et al. 2020; Salimans and Ho 2022; Liu et al. 2023).

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
        per_example = denoising_loss(prediction, target)
        half = count // 2
        metrics = {"loss_low_noise": per_example[:half].mean(), "loss_high_noise": per_example[half:].mean()}
        return per_example.mean(), metrics

    return loss_fn
