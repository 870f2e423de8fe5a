"""Torch's operations on JAX arrays, where torchax's own or XLA's would not do."""

import jax
import numpy as np
import pytest
from numpy import s_

from winobench.torch_modules import bridge


@pytest.mark.parametrize(
    "key",
    [s_[2:], s_[:, 1:3], s_[:, -2:, 1:], s_[0:2, :, 3:2], s_[:], s_[..., 1:3], s_[1, :, 2], s_[::2, 1:]],
    ids=str,
)
def test_assignments_are_those_of_numpy(key):
    array = np.random.default_rng(0).standard_normal((3, 4, 5)).astype(np.float32)
    value = np.random.default_rng(1).standard_normal(array[key].shape).astype(np.float32)
    wanted = array.copy()
    wanted[key] = value

    def assigned(array, value):
        with bridge.tracing():
            tensor = bridge.as_torch(array)
            tensor[key] = bridge.as_torch(value)
            return bridge.as_jax(tensor)

    np.testing.assert_array_equal(jax.jit(assigned)(array, value), wanted)


@pytest.mark.parametrize("shape", [(1, 24, 4, 4), (3, 24, 1, 4), (2, 24, 4, 4)], ids=str)
def test_rotating_a_part_in_place(shape):
    """As CogView4 does. XLA for CPUs (jaxlib 0.10.2) gets `at[].set` wrong where a dimension has length 1."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    def products(x):
        with bridge.tracing():
            tensor = bridge.as_torch(x).transpose(1, 2)
            tensor = tensor / (tensor.square().mean(-1, keepdim=True) + 1e-5).sqrt()
            turned = tensor + 0
            turned[:, :, 8:] = turned[:, :, 8:] + turned[:, :, 8:].flip(-1)
            return bridge.as_jax(turned @ tensor.transpose(2, 3))

    with jax.default_matmul_precision("highest"):
        got = jax.jit(products)(x)
    rows = x.transpose(0, 2, 1, 3) / np.sqrt(np.mean(x**2, axis=-1) + 1e-5).transpose(0, 2, 1)[..., None]
    turned = np.concatenate([rows[:, :, :8], rows[:, :, 8:] + rows[:, :, 8:, ::-1]], axis=2)
    np.testing.assert_allclose(got, turned @ rows.swapaxes(2, 3), rtol=1e-4, atol=1e-4)
