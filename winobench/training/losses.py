"""Losses as pure functions of predictions and targets. They know nothing of networks or files."""

from __future__ import annotations

import jax
import jax.numpy as jnp


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
    ``pixel_noise`` lets the encoder drop more detail and leaves the latents closer to white noise.

    Args:
      images: [batch, height, width, 3] in [-1, 1].
      reconstructions: the decoder's output, same shape.
      mean: posterior mean, [batch, h, w, latent_channels].
      logvar: posterior log variance, same shape as ``mean``.
      pixel_noise: standard deviation that the decoder may be wrong by at no cost, in units of [-1, 1].

    Returns:
      The loss (scalar float32) and its parts: ``mse``, ``kl`` (nats an image), ``psnr`` (dB, peak-to-peak 2).
    """
    error = jnp.square(images.astype(jnp.float32) - reconstructions.astype(jnp.float32))
    mse = error.mean()
    kl = kl_to_standard_normal(mean, logvar).mean()
    values_per_image = images[0].size
    loss = mse + 2.0 * pixel_noise**2 / values_per_image * kl
    return loss, {"mse": mse, "kl": kl, "psnr": 10.0 * jnp.log10(4.0 / mse)}


def denoising_loss(prediction: jax.Array, target: jax.Array) -> jax.Array:
    """Mean squared error between the denoiser's output and its target (noise or velocity), reduced in float32.

    Args:
      prediction: [batch, h, w, c].
      target: same shape.

    Returns:
      Per-example losses, [batch] float32.
    """
    error = jnp.square(prediction.astype(jnp.float32) - target.astype(jnp.float32))
    return error.mean(axis=tuple(range(1, error.ndim)))
