"""Attention against JAX's own; tolerances are float32 rounding unless stated."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from winobench.models import attention

FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32}


def normal(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


@pytest.mark.parametrize("is_causal", [False, True])
def test_values_and_gradients(is_causal):
    query, key, value = normal(2, 5, 3, 8), normal(2, 5, 3, 8, seed=1), normal(2, 5, 3, 8, seed=2)

    def total(function):
        return lambda *arrays: jnp.sum(jnp.sin(function(*arrays, is_causal=is_causal)))

    ours, theirs = attention.dot_product_attention, jax.nn.dot_product_attention
    np.testing.assert_allclose(
        ours(query, key, value, is_causal=is_causal), theirs(query, key, value, is_causal=is_causal), atol=1e-6
    )
    gradients = (jax.grad(total(f), (0, 1, 2))(query, key, value) for f in (ours, theirs))
    for a, b in zip(*gradients, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-6)


def test_padding_is_left_out():
    query, key, value = normal(3, 5, 2, 8), normal(3, 5, 2, 8, seed=1), normal(3, 5, 2, 8, seed=2)
    lengths = np.array([1, 3, 5], np.int32)
    result = attention.dot_product_attention(query, key, value, lengths=lengths)
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
def test_parts_are_the_whole(monkeypatch, limits, shape):
    query, value = normal(*shape), normal(*shape, seed=2)
    # Other keys than queries, and more of them.
    key, value = normal(*shape, seed=1), np.concatenate([value, value[:, :3]], axis=1)
    key = np.concatenate([key, normal(*shape, seed=3)[:, :3]], axis=1)
    call = jax.value_and_grad(lambda *a: jnp.sum(jnp.sin(attention.dot_product_attention(*a))), (0, 1, 2))
    expected = call(query, key, value)
    called = []
    original = attention._attend_in_parts
    monkeypatch.setattr(attention, "_attend_in_parts", lambda *a: called.append(1) or original(*a))
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    for name, limit in zip(("_LARGE_MATRIX", "_MANY_SCORES", "_PART_SCORES"), limits, strict=True):
        monkeypatch.setattr(attention, name, limit)
    for ours, theirs in zip(jax.tree.leaves(call(query, key, value)), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=2e-6)
    assert called


def test_large_scores():
    """Scores of thousands neither overflow nor lose the winner."""
    query = 100 * normal(1, 4, 1, 8)
    result = attention.dot_product_attention(query, query, normal(1, 4, 1, 8, seed=1))
    np.testing.assert_allclose(result, normal(1, 4, 1, 8, seed=1), atol=1e-6)


def test_scores_are_float32_in_bfloat16():
    """Scores of 1000 and 1001 are equal in bfloat16; their softmax in float32 is not."""
    query = jnp.ones((1, 1, 1, 1), jnp.bfloat16)
    key = jnp.asarray([512, 511], jnp.bfloat16).astype(jnp.float32)[None, :, None, None]
    key = jnp.asarray(np.stack([key, key], -1)[..., 0], jnp.bfloat16)
    value = jnp.asarray([1, 0], jnp.bfloat16)[None, :, None, None]
    query, key = jnp.repeat(query, 4, -1), jnp.repeat(key, 4, -1)  # scores 4 * 512 / 2 and about 2 less
    result = attention.dot_product_attention(query, key, jnp.repeat(value, 4, -1))
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
def test_choice_of_cudnn(monkeypatch, backend, capability, dtype, head_size, taken):
    device = types.SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert attention._cudnn_takes(jax.ShapeDtypeStruct((1, 4, 2, head_size), dtype)) is taken


def test_kept_keys_and_values():
    """Those of a text, computed once, give the same result as passing the text."""
    layer = attention.Attention(12, 3, context_channels=7, rngs=nnx.Rngs(0), **FLOAT32)
    x, text = normal(2, 5, 12), normal(2, 4, 7)
    kept = layer.keys_values(text)
    assert [a.shape for a in kept] == [(2, 4, 3, 4)] * 2
    np.testing.assert_array_equal(layer.attend(x, *kept), layer(x, text))
