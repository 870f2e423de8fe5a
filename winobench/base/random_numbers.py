"""Random numbers that depend on their key alone.

JAX's own also depend on settings of the program, none of which may change the noise that a score is recorded with.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

GENERATOR = "threefry2x32"
"""Of all keys."""


def seed_key(seed: int) -> jax.Array:
    """The key of a seed from 0 to 2**32 - 1."""
    data: Any = np.array([0, seed], np.uint32)  # JAX's annotation has its own arrays alone
    return jax.random.wrap_key_data(data, impl=GENERATOR)


def normal(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal numbers, float32 of this shape."""
    with jax.threefry_partitionable(True):
        return jax.random.normal(key, shape, jnp.float32)


def uniform(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Numbers in [0, 1), float32 of this shape."""
    with jax.threefry_partitionable(True):
        return jax.random.uniform(key, shape, jnp.float32)


def gumbel(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Numbers of Gumbel's distribution, float32 of this shape."""
    with jax.threefry_partitionable(True):
        return jax.random.gumbel(key, shape, jnp.float32, mode="low")
