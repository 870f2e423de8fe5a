"""Training an AutoencoderKL on images."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.training import losses


def make_loss(graphdef: Any, *, pixel_noise: float):
    """The loss of an autoencoder as a function of its parameters.

    Returns loss_fn(params, batch, key) with ``batch["images"]`` uint8 [batch, height, width, 3].
    """

    def loss_fn(params, batch, key):
        model = nnx.merge(graphdef, params)
        images = batch["images"].astype(jnp.float32) / 127.5 - 1.0
        mean, logvar = model.encode(images)
        latents = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, mean.shape, mean.dtype)
        return losses.autoencoder_loss(images, model.decode(latents), mean, logvar, pixel_noise=pixel_noise)

    return loss_fn
