"""Random numbers are JAX's own under its usual settings, and the same under any others."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winobench.base import random_numbers
from winobench.diffusion import generation
from winobench.models import functional
from winobench.scorers import samples


@contextlib.contextmanager
def set_to(name, value):
    before = getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        yield
    finally:
        jax.config.update(name, before)


@pytest.fixture(scope="module")
def usual():
    return drawn()


def drawn():
    keys = generation.image_keys([5, 2**32 - 1], None, 2)
    return [
        samples.draw_noise(samples.noise_key(3), jnp.arange(2), (2, 2, 1)),
        samples.visiting_order(4, 3),
        generation._drawn(keys[0], (2, 3)),
        generation._drawn(keys[1], (2, 3)),
        random_numbers.gumbel(random_numbers.seed_key(1), (4,)),
    ]


@pytest.mark.parametrize("seed", [0, 2**32 - 1])
def test_they_are_jaxs_own(seed):
    ours, theirs = random_numbers.seed_key(seed), jax.random.key(seed)
    np.testing.assert_array_equal(jax.random.key_data(ours), jax.random.key_data(theirs))
    for name in ("normal", "uniform", "gumbel"):
        np.testing.assert_array_equal(
            getattr(random_numbers, name)(ours, (2, 3)), getattr(jax.random, name)(theirs, (2, 3))
        )


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_default_prng_impl", "rbg"),
        ("jax_threefry_partitionable", False),
        ("jax_random_seed_offset", 7),
        ("jax_enable_x64", True),
        ("jax_high_dynamic_range_gumbel", True),
    ],
)
def test_no_setting_changes_them(usual, name, value):
    with set_to(name, value):
        after = drawn()
    for old, new in zip(usual, after, strict=True):
        assert old.dtype == new.dtype
        np.testing.assert_array_equal(old, new)


def test_the_precision_of_products_is_the_networks_own():
    with set_to("jax_default_matmul_precision", "bfloat16"), functional.precision(jnp.bfloat16):
        assert jax.config.jax_default_matmul_precision is None
    with functional.precision(jnp.float32):
        assert jax.config.jax_default_matmul_precision == "highest"
