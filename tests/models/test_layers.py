"""Layers against definitions in NumPy and JAX; tolerances are float32 rounding unless stated."""

import types

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


class TestAttention:
    @pytest.mark.parametrize("is_causal", [False, True])
    def test_values_and_gradients(self, is_causal):
        query, key, value = normal(2, 5, 3, 8), normal(2, 5, 3, 8, seed=1), normal(2, 5, 3, 8, seed=2)

        def total(attention):
            return lambda *arrays: jnp.sum(jnp.sin(attention(*arrays, is_causal=is_causal)))

        ours, theirs = layers.dot_product_attention, jax.nn.dot_product_attention
        np.testing.assert_allclose(
            ours(query, key, value, is_causal=is_causal), theirs(query, key, value, is_causal=is_causal), atol=1e-6
        )
        gradients = (jax.grad(total(f), (0, 1, 2))(query, key, value) for f in (ours, theirs))
        for a, b in zip(*gradients, strict=True):
            np.testing.assert_allclose(a, b, atol=2e-6)

    def test_padding_is_left_out(self):
        query, key, value = normal(3, 5, 2, 8), normal(3, 5, 2, 8, seed=1), normal(3, 5, 2, 8, seed=2)
        lengths = np.array([1, 3, 5], np.int32)
        result = layers.dot_product_attention(query, key, value, lengths=lengths)
        for row, length in enumerate(lengths):
            part = slice(row, row + 1)
            expected = jax.nn.dot_product_attention(query[part], key[part, :length], value[part, :length])
            np.testing.assert_allclose(result[part], expected, atol=1e-6)

    @pytest.mark.parametrize(
        ("limits", "shape"),
        [
            ((600, 1200, 1200), (2, 12, 3, 8)),  # two whole heads a part
            ((600, 1200, 599), (2, 12, 3, 8)),  # half of a head
            ((600, 1200, 1), (1, 13, 5, 8)),  # single queries, as 13 has no other divisor
        ],
    )
    def test_parts_are_the_whole(self, monkeypatch, limits, shape):
        query, value = normal(*shape), normal(*shape, seed=2)
        # Other keys than queries, and more of them.
        key, value = normal(*shape, seed=1), np.concatenate([value, value[:, :3]], axis=1)
        key = np.concatenate([key, normal(*shape, seed=3)[:, :3]], axis=1)
        call = jax.value_and_grad(lambda *a: jnp.sum(jnp.sin(layers.dot_product_attention(*a))), (0, 1, 2))
        expected = call(query, key, value)
        called = []
        original = layers._attend_in_parts
        monkeypatch.setattr(layers, "_attend_in_parts", lambda *a: called.append(1) or original(*a))
        monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
        for name, limit in zip(("_LARGE_MATRIX", "_MANY_SCORES", "_PART_SCORES"), limits, strict=True):
            monkeypatch.setattr(layers, name, limit)
        for ours, theirs in zip(jax.tree.leaves(call(query, key, value)), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)
        assert called

    def test_large_scores(self):
        """Scores of thousands neither overflow nor lose the winner."""
        query = 100 * normal(1, 4, 1, 8)
        result = layers.dot_product_attention(query, query, normal(1, 4, 1, 8, seed=1))
        np.testing.assert_allclose(result, normal(1, 4, 1, 8, seed=1), atol=1e-6)

    def test_scores_are_float32_in_bfloat16(self):
        """Scores of 1000 and 1001 are equal in bfloat16; their softmax in float32 is not."""
        query = jnp.ones((1, 1, 1, 1), jnp.bfloat16)
        key = jnp.asarray([512, 511], jnp.bfloat16).astype(jnp.float32)[None, :, None, None]
        key = jnp.asarray(np.stack([key, key], -1)[..., 0], jnp.bfloat16)
        value = jnp.asarray([1, 0], jnp.bfloat16)[None, :, None, None]
        query, key = jnp.repeat(query, 4, -1), jnp.repeat(key, 4, -1)  # scores 4 * 512 / 2 and about 2 less
        result = layers.dot_product_attention(query, key, jnp.repeat(value, 4, -1))
        exact = np.asarray(key, np.float64)[0, :, 0].sum(-1) / 2
        expected = 1 / (1 + np.exp(exact[1] - exact[0]))
        assert result.dtype == jnp.bfloat16
        # bfloat16 has steps of 2^-8 under 1.
        np.testing.assert_allclose(np.asarray(result, np.float64), expected, atol=4e-3)

    @pytest.mark.parametrize(
        ("backend", "capability", "dtype", "head_size", "taken"),
        [
            ("gpu", "9.0", jnp.bfloat16, 160, True),
            ("gpu", "8.6", jnp.bfloat16, 160, False),
            ("gpu", "8.6", jnp.float16, 128, True),
            ("gpu", "9.0", jnp.bfloat16, 264, False),
            ("gpu", "9.0", jnp.bfloat16, 20, False),
            ("gpu", "9.0", jnp.float32, 64, False),
            ("gpu", "7.5", jnp.float16, 64, False),
            ("gpu", "gfx90a", jnp.bfloat16, 64, False),
            ("cpu", "9.0", jnp.bfloat16, 64, False),
        ],
    )
    def test_choice_of_cudnn(self, monkeypatch, backend, capability, dtype, head_size, taken):
        device = types.SimpleNamespace(compute_capability=capability)
        monkeypatch.setattr(jax, "default_backend", lambda: backend)
        monkeypatch.setattr(jax, "local_devices", lambda: [device])
        assert layers._cudnn_takes(jax.ShapeDtypeStruct((1, 4, 2, head_size), dtype)) is taken

    def test_kept_keys_and_values(self):
        """Those of a text, computed once, give the same result as passing the text."""
        attention = layers.Attention(12, 3, context_channels=7, rngs=nnx.Rngs(0), **FLOAT32)
        x, text = normal(2, 5, 12), normal(2, 4, 7)
        kept = attention.keys_values(text)
        assert [a.shape for a in kept] == [(2, 4, 3, 4)] * 2
        np.testing.assert_array_equal(attention.attend(x, *kept), attention(x, text))


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

    def test_upsampling_repeats(self):
        upsample = layers.Upsample2D(1, rngs=nnx.Rngs(0), **FLOAT32)
        upsample.conv.kernel[...] = jnp.zeros((3, 3, 1, 1)).at[1, 1].set(1.0)
        x = jnp.arange(6.0).reshape(1, 2, 3, 1)
        expected = np.repeat(np.repeat(x, 2, 1), 2, 2)
        np.testing.assert_array_equal(upsample(x), expected)
        np.testing.assert_array_equal(upsample(x, (4, 6)), expected)
        np.testing.assert_array_equal(upsample(x, (3, 5)), expected[:, :3, :5])
        # One more than twice: the first row and column come three times.
        np.testing.assert_array_equal(upsample(x, (5, 6))[0, :, 0, 0], [0, 0, 0, 3, 3])


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
