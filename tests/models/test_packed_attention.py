"""TPU attention on heads where dense layers leave them, interpreted, against plain products in float32."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.test_attention import normal
from tests.parity.harness import QUICK_COMPILATION
from winobench.models import attention, fused_attention, joint_blocks, packed_attention, plain_attention


def plain(query, key, value, lengths, heads):
    split = (jnp.swapaxes(x.reshape(*x.shape[:2], heads, -1), 1, 2) for x in (query, key, value))
    result = plain_attention.attend(*split, lengths=lengths[:, None])
    return jnp.swapaxes(result, 1, 2).reshape(query.shape)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("queries", "keys", "heads", "size", "whole"),
    [
        (130, 300, 4, 64, False),  # two parts of two heads, two blocks of queries, three of keys, all with padding
        (64, 77, 5, 64, True),  # heads that fill no registers
        (128, 256, 1, 128, True),  # an even number of products
        *((64, 200, 3, size, True) for size in (40, 72, 80, 88, 96, 160)),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_kernel_is_the_plain_form(queries, keys, heads, size, whole, dtype, monkeypatch):
    monkeypatch.setattr(packed_attention, "_KEYS", 128)
    monkeypatch.setattr(packed_attention, "_QUERIES", (128,))
    if not whole:
        monkeypatch.setattr(packed_attention, "_MEMORY", 0)
    query = 3 * normal(2, queries, heads * size)
    key, value = normal(2, keys, heads * size, seed=1), normal(2, keys, heads * size, seed=2)
    query, key, value = (x.astype(dtype) for x in (query, key, value))
    ends = jnp.array([keys, keys // 3], jnp.int32)
    # What is behind the ends does not count, even if it is no number.
    spoilt = jnp.where(jnp.arange(keys)[:, None] < ends[:, None, None], jnp.stack([key, value]), jnp.nan)
    ours = packed_attention.attend(query, [spoilt], ends[None], heads=heads, scale=size**-0.5, interpret=True)
    wanted = plain(*(x.astype(jnp.float32) for x in (query, key, value)), ends, heads)
    tolerance = 5e-6 if dtype == jnp.float32 else 1e-2
    assert ours.dtype == dtype
    np.testing.assert_allclose(ours.astype(jnp.float32), wanted, rtol=tolerance, atol=tolerance)


PADDING = jnp.ones((1, 1, 1, 300), bool)


@pytest.mark.parametrize(
    ("positions", "heads", "size", "keywords", "packed"),
    [
        ((4096, 4096), 5, 64, {}, True),
        ((4096, 77), 5, 64, {}, True),
        ((256, 256), 20, 64, {"lengths": jnp.array([9])}, True),
        ((4096, 4096), 8, 40, {}, True),
        ((4608, 4608), 24, 128, {}, True),
        ((1024, 300), 16, 72, {"mask": PADDING}, True),
        ((1024, 300), 16, 72, {"mask": jnp.zeros((1, 1, 1, 300))}, False),
        ((256, 256), 20, 64, {"is_causal": True}, False),
        ((256, 256), 20, 64, {"scale": -1.0}, False),
        ((4096, 4096), 16, 72, {}, False),  # more than the memory on the chip holds
        ((256, 256), 4, 36, {}, False),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
def test_which_kernel_takes_what(positions, heads, size, keywords, packed, dtype, monkeypatch):
    seen = []

    def kernel(name):
        return lambda *arrays, **_: seen.append(name) or arrays[1 if name == "packed" else 0]

    monkeypatch.setattr(fused_attention, "_packed", kernel("packed"))
    monkeypatch.setattr(fused_attention, "_split", kernel("split"))
    arrays = [jax.ShapeDtypeStruct((1, n, heads, size), dtype) for n in (positions[0], positions[1], positions[1])]
    jax.eval_shape(lambda *arrays: fused_attention.flash(*arrays, **keywords), *arrays)
    assert seen == ["packed" if packed and dtype == jnp.bfloat16 else "split"]


def test_gradient_is_that_of_split_heads(monkeypatch):
    """Forward alone it is one kernel, with a gradient the other."""
    seen = []

    def split(query, key, value, *, lengths, scale):
        seen.append(scale)
        return attention._whole(query, key, value, lengths=lengths, scale=scale)

    monkeypatch.setattr(fused_attention, "_split", split)
    query, key, value = (normal(2, 256, 2, 8, seed=seed).astype(jnp.bfloat16) for seed in range(3))
    lengths = jnp.array([256, 100])

    def total(function):
        return lambda *arrays: jnp.sum(jnp.sin(function(*arrays, lengths=lengths).astype(jnp.float32)))

    ours = jax.grad(total(fused_attention.flash), (0, 1, 2))(query, key, value)
    wanted = jax.grad(total(attention._whole), (0, 1, 2))(query, key, value)
    assert seen == [8**-0.5]
    jax.tree.map(np.testing.assert_array_equal, ours, wanted)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("tokens", "size", "is_normed", "is_rotated", "lengths"),
    [
        ((20, 150), 128, True, True, None),  # FLUX
        ((20, 150), 64, False, False, None),  # Stable Diffusion 3
        ((20, 150), 64, True, False, None),  # Stable Diffusion 3.5
        ((150,), 128, True, True, (150, 40)),  # Z-Image, each row with its own rotations
    ],
)
def test_norms_and_rotations_are_part_of_the_kernel(tokens, size, is_normed, is_rotated, lengths, monkeypatch):
    interpreted = functools.partial(packed_attention.attend, interpret=True)
    monkeypatch.setattr(packed_attention, "attend", interpreted)
    monkeypatch.setattr(packed_attention, "_KEYS", 128)
    monkeypatch.setattr(joint_blocks, "_one_kernel_takes", lambda streams, heads: is_packed)
    heads, rows = 2, () if lengths is None else (2,)
    streams = []
    for seed, count in enumerate(tokens):
        parts = tuple(normal(2, count, heads * size, seed=10 * seed + n) for n in range(3))
        scales = tuple(1 + normal(size, seed=seed + n) for n in (5, 6)) if is_normed else None
        angles = normal(*rows, count, 1, size // 2, seed=seed)
        turns = (np.cos(angles), np.sin(angles)) if is_rotated else None
        streams.append(joint_blocks.Stream(parts, scales, 1e-6 if is_normed else None, turns))
    lengths = None if lengths is None else jnp.array(lengths, jnp.int32)

    def total(streams):
        result = joint_blocks.attended(streams, heads, lengths)
        return sum(jnp.sum(jnp.sin(part)) for part in result), result

    results = []
    for is_packed in (False, True):
        gradient = jax.grad(lambda parts: total(with_parts(streams, parts)), has_aux=True)
        parts = [stream.parts for stream in streams]
        gradients, result = jax.jit(gradient, compiler_options=QUICK_COMPILATION)(parts)
        results.append((gradients, result if is_packed is False else joint_blocks.attended(streams, heads, lengths)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), *results)


def with_parts(streams, parts):
    return [stream._replace(parts=each) for stream, each in zip(streams, parts, strict=True)]
