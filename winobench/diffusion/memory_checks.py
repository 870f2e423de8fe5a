"""What a device must hold at least, checked before anything is computed: the first layers at full size."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from winobench.base import memory


def check_encoding(config: Any, image_size: int, batch_size: int, device: jax.Device) -> None:
    """Raises InputError if a device cannot hold what an autoencoder's first layer reads and writes of a batch."""
    # Other networks than ours need not say how wide they are.
    channels = 3 + 2 * getattr(config, "block_out_channels", (0,))[0]
    memory.check(
        f"encoding an image of {image_size:,} x {image_size:,} pixels" if batch_size == 1 else f"{batch_size:,} images",
        2 * batch_size * image_size**2 * channels,  # two bytes a number, in half precision
        "lower image_size",
        device,
    )


def check_denoising(denoiser: Any, latent_shape: tuple[int, ...], batch_size: int, device: jax.Device) -> None:
    """Raises InputError if a device cannot hold what a denoiser's first layer reads and writes of a batch."""
    height, width, channels = latent_shape
    width_of_first = getattr(getattr(denoiser, "config", None), "width_per_position", channels)
    memory.check(
        f"a batch of {batch_size:,} with latents of {height:,} x {width:,} x {channels:,}",
        batch_size * height * width * (channels + 2 * width_of_first) * jnp.dtype(denoiser.dtype).itemsize,
        "lower batch_size",
        device,
    )
