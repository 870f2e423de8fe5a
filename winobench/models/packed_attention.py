"""Attention of TPUs on [rows, positions, heads * head_size], as dense layers write and read them: no head is moved.

JAX's own kernels take [rows, heads, positions, head_size]. With heads of 64, half of each register is then empty, and
arrays are copied before and behind the kernel.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

_LANES, _SUBLANES = 128, 8
_LOWEST = -1e30
# Keys and queries of one product, at most, and what a product costs next to them, as so many more. Fewer queries take
# more cycles (5% with 512), but less memory.
_KEYS, _QUERIES, _STEP = 512, (1024, 512), 64
# Bytes of the memory on the chip that the arrays of a step take, at most, and what the compiler may use.
_MEMORY, _LIMIT = 32 << 20, 48 << 20


def takes(query: jax.Array, key: jax.Array) -> bool:
    """Whether the kernel takes queries and keys [B, positions, heads, size]. Float32 is left to JAX's kernel."""
    heads, size = query.shape[2:]
    fits = _blocks(query.shape[1], key.shape[1], heads * size, size, query.dtype).memory <= _MEMORY
    return query.dtype == jnp.bfloat16 and size % _SUBLANES == 0 and fits


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    ends: jax.Array,
    *,
    heads: int,
    scale: float,
    interpret: bool = False,
) -> jax.Array:
    """query [B, T, heads * size], key and value [B, S, heads * size], ends int32 [B] -> the shape of query.

    Keys from ``ends`` on, at least 1, are padding. Scores and softmax are float32.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    batch, length, width = query.shape
    size, num_keys = width // heads, key.shape[1]
    of_queries, block, keys, group, _ = _blocks(length, num_keys, width, size, query.dtype)
    at_once = group // size
    rows = size + _SUBLANES
    scratch = (
        ((at_once, of_queries, size), query.dtype),
        ((at_once, keys, size), key.dtype),
        ((at_once, rows, keys), value.dtype),
        ((2, block, of_queries), jnp.float32),
        ((at_once, rows, of_queries), jnp.float32),
    )
    return pl.pallas_call(
        functools.partial(_kernel, scale * math.log2(math.e), size, block),
        grid=(batch, width // group, pl.cdiv(length, of_queries)),
        in_specs=[
            pl.BlockSpec((1, of_queries, group), lambda row, part, step: (row, step, part)),
            pl.BlockSpec((1, keys, group), lambda row, part, step: (row, 0, part)),
            pl.BlockSpec((1, keys, group), lambda row, part, step: (row, 0, part)),
            pl.BlockSpec(memory_space=pltpu.SMEM),
        ],
        out_specs=pl.BlockSpec((1, of_queries, group), lambda row, part, step: (row, step, part)),
        out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
        scratch_shapes=[pltpu.VMEM(*one) for one in scratch],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=_LIMIT
        ),
        cost_estimate=pl.CostEstimate(
            flops=4 * batch * width * length * num_keys,
            transcendentals=batch * heads * length * keys,
            bytes_accessed=2 * (query.nbytes + key.nbytes),
        ),
        interpret=interpret,
        # Plans have cycles for each name: the products of wide heads take longer, the steps of few keys most of all.
        name="packed_attention" + ("_short" if keys == block else "_wide" if size > 96 else ""),
    )(query, key, value, ends)


def _kernel(factor, size, block, q_ref, k_ref, v_ref, ends_ref, out_ref, q_own, k_own, v_own, scores, sums):
    """Scores are [keys, queries]. Each head's sum of weights is a row of its product with the values.

    The products of the next keys, or the next head, are next to the exponentials of these.
    """
    from jax.experimental import pallas as pl

    heads, keys, _ = k_own.shape
    chunks = keys // block
    of_head = [slice(head * size, (head + 1) * size) for head in range(heads)]

    end = ends_ref[pl.program_id(0)]

    @pl.when(pl.program_id(2) == 0)
    def _():
        first = k_ref[0, :1].astype(jnp.float32)

        def take(chunk, _):
            start = pl.multiple_of(chunk * block, block)
            at = pl.ds(start, block)

            def kept(shape, axis):
                return jax.lax.broadcasted_iota(jnp.int32, shape, axis) + start < end

            # What is padding has the scores of the first key, so as not to change the maximum, and no weight.
            k = k_ref[0, at].astype(jnp.float32)
            k = jnp.where(kept(k.shape, 0), k, first)
            v = v_ref[0, at].astype(jnp.float32)
            v = jnp.where(kept(v.shape, 0), v, 0).T
            ones = jnp.where(kept((_SUBLANES, block), 1), 1.0, 0.0)
            for head, own in enumerate(of_head):
                k_own[head, at] = k[:, own].astype(k_own.dtype)
                v_own[head, :, at] = jnp.concatenate([v[own], ones], axis=0).astype(v_own.dtype)

        jax.lax.fori_loop(0, chunks, take, None)

    for head, own in enumerate(of_head):
        q_own[head] = q_ref[0].astype(jnp.float32)[:, own].astype(q_own.dtype)
    sums[...] = jnp.zeros_like(sums)

    def of(unit):
        head, chunk = jax.lax.div(unit, chunks), jax.lax.rem(unit, chunks)
        return head, chunk, pl.ds(pl.multiple_of(chunk * block, block), block)

    def score(unit, buffer):
        head, _, at = of(unit)
        found = _product(k_own[head, at], q_own[head], 1)
        scores[buffer] = found
        return jnp.max(found, axis=0, keepdims=True)

    def add(unit, buffer, largest, before):
        head, chunk, at = of(unit)
        before = jnp.where(chunk == 0, _LOWEST, before)
        now = jnp.maximum(before, largest)
        weights = jnp.exp2((scores[buffer] - now) * factor).astype(v_own.dtype)
        sums[head] = sums[head] * jnp.exp2((before - now) * factor) + _product(v_own[head, :, at], weights, 0)
        return now

    def two(turn, state):
        largest, before = state
        unit = 2 * turn
        following = score(unit + 1, 1)
        before = add(unit, 0, largest, before)
        largest = score(unit + 2, 0)
        return largest, add(unit + 1, 1, following, before)

    units = heads * chunks
    turns = (units - 1) // 2
    largest = score(0, 0)
    largest, before = jax.lax.fori_loop(0, turns, two, (largest, jnp.full_like(largest, _LOWEST)))
    if units % 2 == 0:
        following = score(units - 1, 1)
    before = add(2 * turns, 0, largest, before)
    if units % 2 == 0:
        add(units - 1, 1, following, before)
    out = jnp.concatenate([sums[head, :size] / sums[head, size : size + 1] for head in range(heads)], axis=0)
    out_ref[0] = out.T.astype(out_ref.dtype)


def _product(a, b, axis):
    """a [m, n] times b, whose given axis has as many as a's second: float32."""
    return jax.lax.dot_general(a, b, (((1,), (axis,)), ((), ())), preferred_element_type=jnp.float32)


class _Blocks(NamedTuple):
    queries: int  # of a step
    keys: int  # of a product
    padded: int  # keys with padding
    features: int  # of a step: whole heads, and whole registers or all
    memory: int  # bytes on the chip


def _blocks(queries: int, keys: int, width: int, size: int, dtype: Any) -> _Blocks:
    """The largest blocks that fit. Where none do, the smallest."""
    block = _block(keys, _KEYS)
    padded = keys + -keys % block
    unit = math.lcm(size, _LANES)
    parts = [width, *(features for features in range(width - 1, 0, -1) if features % unit == width % features == 0)]
    for of_queries in (_block(queries, limit) for limit in _QUERIES):
        for features in parts:
            heads, lanes = features // size, features + -features % _LANES
            windows = 4 * (of_queries + padded) * lanes
            own = heads * ((of_queries + padded) * (size + -size % _LANES) + padded * (size + 2 * _SUBLANES))
            products = of_queries * (2 * block + heads * (size + _SUBLANES))
            memory = (windows + own) * jnp.dtype(dtype).itemsize + products * 4
            blocks = _Blocks(of_queries, block, padded, features, memory)
            if memory <= _MEMORY:
                return blocks
    return blocks


def _block(positions: int, limit: int) -> int:
    """The size of blocks that cost least."""
    sizes = range(_LANES, min(positions + -positions % _LANES, limit) + 1, _LANES)
    return min(sizes, key=lambda size: (-(-positions // size) * (size + _STEP), -size))
