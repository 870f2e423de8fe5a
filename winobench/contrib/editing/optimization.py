"""Optimises latents towards a text, on the denoising error itself (Krojer et al. 2023, Appendix C, Figure 6)."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from winobench.base.errors import InputError
from winobench.diffusion.schedules import Schedule
from winobench.models import functional
from winobench.scorers import denoising

TIMESTEPS = ("fixed", "several", "random")
"""``fixed``: the middle of the schedule at every step (the paper); ``several``: that many evenly spaced ones at once;
``random``: one sampled for each step."""

_SEVERAL = 5
# Of [0, 1], the rest of a schedule is nearly clean or nearly noise and has little of the content.
_RANGE = (0.1, 0.9)


def step_timesteps(schedule: Schedule, rule: str, num_steps: int, seed: int) -> np.ndarray:
    """The timesteps of each step's error: ``[num_steps, k]``, int32, or float32 levels of a flow model."""
    if rule == "fixed":
        shares = np.full((num_steps, 1), 0.5)
    elif rule == "several":
        shares = np.broadcast_to(np.linspace(*_RANGE, _SEVERAL), (num_steps, _SEVERAL))
    elif rule == "random":
        shares = np.random.default_rng(seed).uniform(*_RANGE, (num_steps, 1))
    else:
        raise InputError(f"timesteps is {rule!r}, but it must be one of {', '.join(TIMESTEPS)}")
    numbers = np.minimum((shares * schedule.num_train_timesteps).astype(np.int32), schedule.num_train_timesteps - 1)
    return schedule.timesteps_at(numbers)


def optimize_latents(
    denoiser: denoising.Denoiser,
    schedule: Schedule,
    params: Any,
    latents: jax.Array,
    conditions: Any,
    key: jax.Array,
    timesteps: jax.Array,
    learning_rate: jax.Array | float = 0.05,
    *,
    dtype: str = "float32",
) -> jax.Array:
    """Moves each row of latents so that its text predicts the noise better: Adam on the denoising error. Pure.

    Noise is sampled again for each step and timestep, the same for all rows. Latents are float32 ``[n, h, w, c]``,
    as in training; conditions a tree of ``[n, ...]``, timesteps ``[num_steps, k]``. A step's loss is the mean over k.
    """
    adam = optax.adam(learning_rate)
    count, per_step = timesteps.shape

    def loss(moved: jax.Array, number: jax.Array, times: jax.Array) -> jax.Array:
        about = {"dtype": dtype, "first": number * per_step}
        return jnp.sum(mean_errors(denoiser, schedule, params, moved, conditions, key, times, **about))

    def step(carry: tuple[jax.Array, Any], inputs: tuple[jax.Array, jax.Array]) -> tuple[tuple[jax.Array, Any], None]:
        moved, state = carry
        updates, state = adam.update(jax.grad(loss)(moved, *inputs), state)
        return (moved + updates, state), None

    start = jnp.asarray(latents, jnp.float32)
    with functional.precision(dtype):
        (moved, _), _ = jax.lax.scan(step, (start, adam.init(start)), (jnp.arange(count), timesteps))
    return moved


def mean_errors(
    denoiser: denoising.Denoiser,
    schedule: Schedule,
    params: Any,
    latents: jax.Array,
    conditions: Any,
    key: jax.Array,
    timesteps: jax.Array,
    *,
    dtype: str = "float32",
    first: jax.Array | int = 0,
) -> jax.Array:
    """Mean errors of rows over timesteps ``[k]``, each with its noise from sample ``first`` on: ``[n]``, squared L2."""
    rows, (count, per_row) = jnp.arange(len(latents)), (len(latents), len(timesteps))
    triples = denoising.Triples(
        image=jnp.repeat(rows, per_row),
        text=jnp.repeat(rows, per_row),
        sample=jnp.tile(first + jnp.arange(per_row), count),
        timestep=jnp.tile(timesteps, count),
    )
    with functional.precision(dtype):
        errors = denoising.denoising_errors(denoiser, params, schedule, latents, conditions, triples, key, dtype=dtype)
        return errors.reshape(count, per_row).mean(axis=1)
