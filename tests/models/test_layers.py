"""Group norms against their definition in NumPy; tests/parity has values of all layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from winobench import parallel
from winobench.models import base, layers

FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32}


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


class TestGroupNorm:
    def reference(self, x, groups, epsilon, scale, bias):
        x = x.astype(np.float64)
        grouped = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
        mean = grouped.mean(axis=(1, 3), keepdims=True)
        variance = grouped.var(axis=(1, 3), keepdims=True)
        return ((grouped - mean) / np.sqrt(variance + epsilon)).reshape(x.shape) * scale + bias

    @pytest.mark.parametrize("device", [None, parallel.Device("cpu")])
    def test_large_mean(self, trace_for, device):
        """Mean 1000, spread 1: E[x^2] - E[x]^2 without a shift would be off by several per cent."""
        trace_for(device)
        x = normal(2, 16, 16, 8) + 1000
        norm = layers.GroupNorm(4, 8, epsilon=1e-5, **FLOAT32)
        # float32 holds values near 1000 to 6e-5.
        np.testing.assert_allclose(norm(jnp.asarray(x)), self.reference(x, 4, 1e-5, 1, 0), atol=2e-4)

    @pytest.mark.parametrize("device", [None, parallel.Device("cpu")])
    def test_gradient(self, trace_for, device):
        """Against finite differences in float64 of the definition."""
        trace_for(device)
        norm = layers.GroupNorm(2, 4, epsilon=1e-3, **FLOAT32)
        x, weight, direction = normal(1, 3, 3, 4), normal(1, 3, 3, 4, seed=1), normal(1, 3, 3, 4, seed=2)
        gradient = jax.grad(lambda x: jnp.sum(norm(x) * weight))(jnp.asarray(x))
        step = 1e-5
        ahead, behind = (
            np.sum(self.reference(x + sign * step * direction.astype(np.float64), 2, 1e-3, 1, 0) * weight)
            for sign in (1, -1)
        )
        np.testing.assert_allclose(np.sum(gradient * direction), (ahead - behind) / (2 * step), rtol=1e-4)

    @pytest.mark.parametrize("device", [None, parallel.Device("tpu", "TPU v5 lite")])
    def test_statistics_in_bfloat16(self, trace_for, device):
        """The spread of 8 around 300 is lost if sums are kept in bfloat16 (steps of 2 there)."""
        trace_for(device)
        x = jnp.asarray(normal(1, 32, 32, 8) * 8 + 300, jnp.bfloat16)
        norm = layers.GroupNorm(2, 8, epsilon=1e-5, dtype=jnp.bfloat16, param_dtype=jnp.float32)
        y = norm(x)
        assert y.dtype == jnp.bfloat16
        expected = self.reference(np.asarray(x, np.float64), 2, 1e-5, 1, 0)
        # bfloat16 has steps of 2^-7 between 2 and 4.
        np.testing.assert_allclose(np.asarray(y, np.float64), expected, atol=2e-2)


@pytest.mark.parametrize("mean", [0, 100])
def test_layer_norm_in_bfloat16_on_tpus(trace_for, mean):
    """The variance of one pass is that of float64 to the rounding of the result."""
    trace_for(parallel.Device("tpu", "TPU v5 lite"))
    norm = base.layer_norm(64, dtype=jnp.bfloat16, param_dtype=jnp.float32, rngs=nnx.Rngs(0))
    norm.scale[...], norm.bias[...] = normal(64), normal(64, seed=1)
    x = jnp.asarray(normal(5, 64, seed=2) * 2 + mean, jnp.bfloat16)
    values = np.float64(x)
    exact = (values - values.mean(-1, keepdims=True)) / np.sqrt(values.var(-1, keepdims=True) + 1e-5)
    y = norm(x)
    assert y.dtype == jnp.bfloat16
    np.testing.assert_allclose(np.float64(y), exact * normal(64) + normal(64, seed=1), rtol=2.0**-8, atol=2e-3)
