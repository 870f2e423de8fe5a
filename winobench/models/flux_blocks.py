"""Parts shared by the transformers of FLUX.1 and FLUX.2: patches, positions of several axes, times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.models import layers
from winobench.models.joint_blocks import Rotations

PATCH = 2
"""Latent pixels along one side of a patch, which is one token."""


_TIME_FACTOR = 1000.0
_LARGEST_HALF = 65504.0


def to_patches(latents: jax.Array, *, channels_last: bool = False) -> jax.Array:
    """Latents [n, h, w, c] -> patches [n, h / 2, w / 2, 4 c], in the order (c, row, column), or (row, column, c)."""
    batch, height, width, channels = latents.shape
    if height % PATCH or width % PATCH:
        raise ValueError(f"latents of {height} x {width} do not divide into patches of {PATCH} x {PATCH}")
    x = latents.reshape(batch, height // PATCH, PATCH, width // PATCH, PATCH, channels).swapaxes(2, 3)
    return (x if channels_last else jnp.moveaxis(x, -1, 3)).reshape(*x.shape[:3], -1)


def from_patches(patches: jax.Array, *, channels_last: bool = False) -> jax.Array:
    """The inverse of `to_patches`: [n, h / 2, w / 2, 4 c] -> [n, h, w, c]."""
    batch, rows, columns, width = patches.shape
    shape = (PATCH, PATCH, width // PATCH**2)
    x = patches.reshape(batch, rows, columns, *(shape if channels_last else np.roll(shape, 1)))
    x = (x if channels_last else jnp.moveaxis(x, 3, -1)).swapaxes(2, 3)
    return x.reshape(batch, rows * PATCH, columns * PATCH, -1)


def rotations(positions: np.ndarray, sizes: Sequence[int], theta: float) -> Rotations:
    """Rotary embeddings of positions [tokens, axes], each axis of which turns its own features (Su et al., 2021).

    Angles are float64 and their cosines are rounded once, as in the published models. Only a table of the positions
    that occur is a constant of the program, from which tokens take their rows.
    """
    table = [[], []]
    for axis, size in enumerate(sizes):
        frequencies = float(theta) ** -(np.arange(0, size, 2, dtype=np.float64) / size)
        own = positions[:, axis]
        angles = np.outer(np.arange(own.max(initial=0) + 1), frequencies)
        for parts, wave in zip(table, (np.cos, np.sin), strict=True):
            parts.append(jnp.asarray(wave(angles).astype(np.float32))[own])
    cosines, sines = (jnp.concatenate(parts, axis=-1)[:, None] for parts in table)
    return cosines, sines


def kept_finite(x: jax.Array) -> jax.Array:
    """x with its infinities in float16 at the largest number, as in the published models. Others as they are."""
    return jnp.clip(x, -_LARGEST_HALF, _LARGEST_HALF) if x.dtype == jnp.float16 else x


def time_waves(times: jax.Array, features: int, dtype: Any) -> jax.Array:
    """Times (or guidance) float32 [n], before the factor 1000 -> their sinusoidal embedding [n, features]."""
    angles = _TIME_FACTOR * times.astype(jnp.float32)
    return layers.timestep_embedding(angles, features, flip_sin_to_cos=True, freq_shift=0).astype(dtype)


def check_guidance(guidance: jax.Array | None, wanted: bool) -> None:
    """Raises ValueError unless guidance is given to a network that embeds it, and to no other."""
    if (guidance is not None) != wanted:
        wants = "takes guidance [n]" if wanted else "takes no guidance"
        raise ValueError(f"this transformer {wants} (guidance_embeds={wanted})")
