"""Layers against definitions in NumPy and JAX; tolerances are float32 rounding unless stated."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from winobench.models import layers

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

    @pytest.mark.parametrize("shape", [(2, 5, 4, 12), (3, 7, 12)])
    @pytest.mark.parametrize("groups", [1, 3, 12])
    def test_definition(self, shape, groups):
        norm = layers.GroupNorm(groups, 12, epsilon=1e-3, **FLOAT32)
        norm.scale[...] = normal(12, seed=1)
        norm.bias[...] = normal(12, seed=2)
        x = normal(*shape)
        expected = self.reference(x, groups, 1e-3, normal(12, seed=1), normal(12, seed=2))
        np.testing.assert_allclose(norm(jnp.asarray(x)), expected, atol=2e-6)

    def test_large_mean(self):
        """Mean 1000, spread 1: E[x^2] - E[x]^2 without a shift would be off by several per cent."""
        x = normal(2, 16, 16, 8) + 1000
        norm = layers.GroupNorm(4, 8, epsilon=1e-5, **FLOAT32)
        # float32 holds values near 1000 to 6e-5.
        np.testing.assert_allclose(norm(jnp.asarray(x)), self.reference(x, 4, 1e-5, 1, 0), atol=2e-4)

    def test_gradient(self):
        """Against finite differences in float64 of the definition."""
        norm = layers.GroupNorm(2, 4, epsilon=1e-3, **FLOAT32)
        x, weight, direction = normal(1, 3, 3, 4), normal(1, 3, 3, 4, seed=1), normal(1, 3, 3, 4, seed=2)
        gradient = jax.grad(lambda x: jnp.sum(norm(x) * weight))(jnp.asarray(x))
        step = 1e-5
        ahead, behind = (
            np.sum(self.reference(x + sign * step * direction.astype(np.float64), 2, 1e-3, 1, 0) * weight)
            for sign in (1, -1)
        )
        np.testing.assert_allclose(np.sum(gradient * direction), (ahead - behind) / (2 * step), rtol=1e-4)

    def test_statistics_in_bfloat16(self):
        """The spread of 1 around 300 is lost if sums are kept in bfloat16 (steps of 2 there)."""
        x = jnp.asarray(normal(1, 32, 32, 8) * 8 + 300, jnp.bfloat16)
        norm = layers.GroupNorm(2, 8, epsilon=1e-5, dtype=jnp.bfloat16, param_dtype=jnp.float32)
        y = norm(x)
        assert y.dtype == jnp.bfloat16
        expected = self.reference(np.asarray(x, np.float64), 2, 1e-5, 1, 0)
        # bfloat16 has steps of 2^-7 between 2 and 4.
        np.testing.assert_allclose(np.asarray(y, np.float64), expected, atol=2e-2)


class TestConvolution:
    @pytest.mark.parametrize(("size", "stride", "padding"), [(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, ((0, 1), (0, 1)))])
    def test_definition(self, size, stride, padding):
        convolution = layers.Conv2d(3, 4, size, stride=stride, padding=padding, rngs=nnx.Rngs(0), **FLOAT32)
        kernel, bias = normal(size, size, 3, 4, seed=1), normal(4, seed=2)
        convolution.kernel[...], convolution.bias[...] = kernel, bias
        x = normal(2, 6, 5, 3)
        sides = ((padding, padding),) * 2 if isinstance(padding, int) else padding
        padded = np.pad(x, ((0, 0), *sides, (0, 0)))
        rows, columns = ((n - size) // stride + 1 for n in padded.shape[1:3])
        expected = np.stack(
            [
                [
                    np.tensordot(padded[:, i : i + size, j : j + size], kernel, 3) + bias
                    for j in range(0, columns * stride, stride)
                ]
                for i in range(0, rows * stride, stride)
            ]
        ).transpose(2, 0, 1, 3)
        np.testing.assert_allclose(convolution(jnp.asarray(x)), expected, atol=1e-5)


class TestTimestepEmbedding:
    def test_definition(self):
        timesteps = np.array([0.0, 3.5, 999.0])
        angles = timesteps[:, None] * 10000.0 ** -(np.arange(4) / (4 - 1))
        expected = np.concatenate([np.sin(angles), np.cos(angles), np.zeros((3, 1))], axis=1)
        found = layers.timestep_embedding(jnp.asarray(timesteps), 9, flip_sin_to_cos=False, freq_shift=1)
        # The sine of an angle near 1000, which float32 holds to 6e-5.
        np.testing.assert_allclose(found, expected, atol=1e-4)

    def test_flip(self):
        timesteps = jnp.arange(5)
        sines_first = layers.timestep_embedding(timesteps, 8, flip_sin_to_cos=False, freq_shift=0)
        cosines_first = layers.timestep_embedding(timesteps, 8, flip_sin_to_cos=True, freq_shift=0)
        np.testing.assert_array_equal(np.roll(sines_first, 4, axis=1), cosines_first)
        assert cosines_first[0].tolist() == [1] * 4 + [0] * 4
