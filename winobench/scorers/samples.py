"""Samples of an evaluation: which noise and which timestep belong to sample i.

Both depend on the seed and on i alone, never on batch, device or number of processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from winobench.base import options, random_numbers
from winobench.base.errors import InputError
from winobench.diffusion.schedules import Schedule

DEFAULT_NUM_SAMPLES = 32

# The streams of a seed.
_NOISE_STREAM, _TIMESTEP_STREAM, _ORDER_STREAM = 0, 1, 2

# Samples whose timesteps are sampled by one call: a fixed shape, so that the number of samples compiles nothing.
_BLOCK = 1024

# The published loop steps through range(10, 990, int(1000 / n)).
_PUBLISHED_SPAN = 1000


def check_seed(seed: int) -> int:
    return options.SEED.check("the seed", seed)


def noise_key(seed: int) -> jax.Array:
    """The random key of the noise of all samples."""
    return jax.random.fold_in(random_numbers.seed_key(check_seed(seed)), _NOISE_STREAM)


class Antithetic(NamedTuple):
    """In place of a key: sample 2k has the key's noise, and sample 2k + 1 minus the noise of sample 2k."""

    key: jax.Array


def noise_source(seed: int, *rules: Any) -> jax.Array | Antithetic:
    """The key that `draw_noise` takes, by a seed and by the timesteps and noise of a call."""
    key = noise_key(seed)
    return Antithetic(key) if any(has_partners(rule) for rule in rules) else key


def has_partners(rule: Any) -> bool:
    """Whether a rule gives two samples opposite noise."""
    return isinstance(rule, str) and rule == options.ANTITHETIC


def draw_noise(key: jax.Array | Antithetic, sample_index: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Standard normal noise, float32 [n, *shape]. Row k depends on the key and ``sample_index[k]`` alone."""
    if isinstance(key, Antithetic):
        is_second = sample_index % 2 == 1
        noise = draw_noise(key.key, sample_index - is_second, shape)
        return jnp.where(is_second.reshape(-1, *[1] * len(shape)), -noise, noise)
    return jax.vmap(lambda index: random_numbers.normal(jax.random.fold_in(key, index), shape))(sample_index)


@jax.jit
def _uniform_block(key: jax.Array, first: jax.Array) -> jax.Array:
    """Numbers in [0, 1), one for each of the samples first, first + 1, ...: float32 [_BLOCK]."""
    index = first + jnp.arange(_BLOCK)
    return jax.vmap(lambda i: random_numbers.uniform(jax.random.fold_in(key, i), ()))(index)


def _uniform(seed: int, num_samples: int, stream: int = _TIMESTEP_STREAM) -> np.ndarray:
    key = jax.random.fold_in(random_numbers.seed_key(seed), stream)
    blocks = [jax.device_get(_uniform_block(key, np.int32(first))) for first in range(0, num_samples, _BLOCK)]
    return np.concatenate(blocks)[:num_samples].astype(np.float64)


def visiting_order(num_samples: int, seed: int) -> np.ndarray:
    """The order in which a race meets its samples, int64 [num_samples], independent of noise and timesteps."""
    # Two numbers a sample: of 32-bit floats alone, two of a thousand may be equal.
    return np.lexsort(_uniform(check_seed(seed), 2 * num_samples, _ORDER_STREAM).reshape(num_samples, 2).T)


def low_discrepancy(count: int, seed: int) -> np.ndarray:
    """Points that spread evenly over [0, 1), any first n of them: float64 [count]. Shifted by a random number."""
    return (_van_der_corput(count) + _uniform(seed, 1)) % 1.0


def _van_der_corput(count: int) -> np.ndarray:
    """The binary digits of 0, 1, 2, ... mirrored at the point: float64 [count] in [0, 1)."""
    numbers = np.arange(count, dtype=np.uint64)
    position, weight = np.zeros(count), 0.5
    while numbers.any():
        position += weight * (numbers & np.uint64(1))
        numbers >>= np.uint64(1)
        weight /= 2
    return position


def choose_timesteps(
    rule: str | ArrayLike | Sequence[float],
    num_samples: int | None,
    *,
    seed: int = 0,
    num_train_timesteps: int = 1000,
    timestep_range: tuple[int, int] | None = None,
) -> np.ndarray:
    """The timestep of each sample: int32 [num_samples], or [length of the range] for ``published``.

    Args:
      rule: ``uniform`` samples each timestep independently, so that the first 16 of 32 samples equal a run of 16;
        ``low_discrepancy`` keeps that and spreads the first n evenly over the range for every n (van der Corput's
        sequence in base 2, shifted by a random number: Cranley and Patterson, 1976); ``antithetic`` takes each of its
        timesteps for two samples with opposite noise (Hammersley and Morton, 1956); ``stratified`` takes one timestep
        from each of num_samples equal parts of the range; ``even`` takes the middle of each part; ``published`` is
        range(10, 990, int(1000 / num_samples)), whose length is often not num_samples, as in the published code.
        An integer array is taken as it is.
    """
    seed = check_seed(seed)
    first, end = check_timestep_range(timestep_range, num_train_timesteps)
    if not isinstance(rule, str):
        return _given(rule, num_samples, num_train_timesteps)
    if rule not in options.TIMESTEP_RULES:
        raise InputError(
            f"timesteps is {rule!r}, but it must be one of {', '.join(options.TIMESTEP_RULES)}, or an array",
            code="unknown-name",
        )
    count = DEFAULT_NUM_SAMPLES if num_samples is None else check_num_samples(num_samples)
    if rule == "published":
        if count > _PUBLISHED_SPAN:
            raise InputError(
                f"num_samples is {count}, but timesteps='published' allows at most {_PUBLISHED_SPAN}: choose fewer, or"
                " another rule",
                code="out-of-range",
            )
        timesteps = np.arange(10, 990, int(_PUBLISHED_SPAN / count), dtype=np.int32)
        if timesteps[-1] >= num_train_timesteps:
            raise InputError(
                f"timesteps='published' reaches {timesteps[-1]}, but this model has {num_train_timesteps} timesteps:"
                " choose another rule",
                code="out-of-range",
            )
        return timesteps
    if rule == "uniform":
        position = _uniform(seed, count)
    elif rule == "low_discrepancy":
        position = low_discrepancy(count, seed)
    elif rule == options.ANTITHETIC:
        position = np.repeat(low_discrepancy((count + 1) // 2, seed), 2)[:count]
    else:
        offset = _uniform(seed, count) if rule == "stratified" else 0.5
        position = (np.arange(count) + offset) / count
    timesteps = first + np.floor(position * (end - first)).astype(np.int64)
    # A position just under 1 may be rounded up to it.
    return np.minimum(timesteps, end - 1).astype(np.int32)


def choose_of_schedule(
    schedule: Schedule,
    rule: str | ArrayLike | Sequence[float],
    num_samples: int | None,
    *,
    seed: int = 0,
    timestep_range: tuple[int, int] | None = None,
    left_out: int = 0,
) -> np.ndarray:
    """`choose_timesteps` of any schedule: for a continuous one float32 noise levels, chosen among its T levels."""
    total = schedule.num_train_timesteps
    if not schedule.is_continuous or (isinstance(rule, str) and rule != "published"):
        numbers = choose_timesteps(
            rule, num_samples, seed=seed, num_train_timesteps=total, timestep_range=timestep_range
        )
        return schedule.timesteps_at(numbers)
    check_seed(seed)
    check_timestep_range(timestep_range, total)
    if isinstance(rule, str):
        return schedule.published_levels(DEFAULT_NUM_SAMPLES if num_samples is None else num_samples, left_out)
    return _given(rule, num_samples, None)


def draws_from_range(timesteps: str | ArrayLike) -> bool:
    """Whether a range of timesteps has an effect. Published and listed timesteps ignore it."""
    return isinstance(timesteps, str) and timesteps != "published"


def check_num_samples(num_samples: int) -> int:
    return options.NUM_SAMPLES.check("num_samples", num_samples)


def check_timestep_range(timestep_range: tuple[int, int] | None, num_train_timesteps: int) -> tuple[int, int]:
    """The first timestep of the range and the one after its last."""
    if timestep_range is None:
        return 0, num_train_timesteps
    return options.span(num_train_timesteps).check("timestep_range", timestep_range)


def check_noise(noise: ArrayLike, latent_shape: tuple[int, ...]) -> np.ndarray:
    """Given noise as an array [num_samples, h, w, c]."""
    if isinstance(noise, jax.Array) and jnp.issubdtype(noise.dtype, jax.dtypes.prng_key):
        noise = jax.random.key_data(noise)
    noise = np.asarray(noise)
    expected = f"[num_samples, {', '.join(map(str, latent_shape))}]"
    if noise.shape[1:] != latent_shape or noise.ndim != 4 or not len(noise):
        raise InputError(
            f"noise has the shape {list(noise.shape)}, but this model needs {expected}, channels last, or a seed",
            code="wrong-shape",
        )
    if not np.issubdtype(noise.dtype, np.floating):
        raise InputError(
            f"noise has the type {noise.dtype}, but it must be an array of floats {expected}", code="wrong-shape"
        )
    return noise


def padded_noise(noise: np.ndarray, num_samples: int) -> np.ndarray:
    """Noise from `check_noise` as float32, with rows of zeros behind it: a table of few different sizes."""
    if len(noise) != num_samples:
        raise InputError(
            f"noise holds {len(noise)} samples, but there are {num_samples} timesteps: give one for each",
            code="wrong-shape",
        )
    # A power of two, so that other numbers of samples seldom compile again.
    rows = max(64, 1 << (len(noise) - 1).bit_length())
    padded = np.zeros((rows, *noise.shape[1:]), np.float32)
    padded[: len(noise)] = noise
    return padded


def _given(values: ArrayLike | Sequence[float], num_samples: int | None, num_train_timesteps: int | None) -> np.ndarray:
    """Listed timesteps as int32, or without a number of them noise levels as float32."""
    timesteps = np.asarray(values)
    total, of_levels = num_train_timesteps or 0, num_train_timesteps is None
    item = "noise level, a number above 0 and up to 1" if of_levels else "whole number, the timestep"
    kind = np.floating if of_levels else np.integer
    if timesteps.ndim != 1 or not timesteps.size or not np.issubdtype(timesteps.dtype, kind):
        raise InputError(
            f"timesteps is an array of shape {timesteps.shape} and type {timesteps.dtype}, but this model's must be a"
            f" list of at least one {item}, of each sample",
            code="wrong-shape",
        )
    low, high = timesteps.min(), timesteps.max()
    if not (low > 0 and high <= 1 if of_levels else low >= 0 and high < total):  # NaN compares as false
        allowed = "noise levels above 0 and up to 1" if of_levels else f"0 to {total - 1}"
        raise InputError(
            f"timesteps runs from {low:.7g} to {high:.7g}, but this model's timesteps are {allowed}",
            code="out-of-range",
        )
    if num_samples is not None and check_num_samples(num_samples) != len(timesteps):
        raise InputError(
            f"timesteps lists {len(timesteps)} timesteps, but num_samples is {num_samples}: leave num_samples out",
            code="two-numbers-of-samples",
        )
    return timesteps.astype(np.float32 if of_levels else np.int32)
