"""Attention of TPUs on [rows, positions, heads * head_size], as dense layers write and read them: no head is moved.

JAX's own kernels take [rows, heads, positions, head_size]. With heads of 64, half of each register is then empty, and
arrays are copied before and behind the kernel. Norms and rotations of heads are part of the kernel for the same reason.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
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


def takes(queries: int, keys: Sequence[int], heads: int, size: int, dtype: Any, *, are_rotated: bool = False) -> bool:
    """Whether the kernel takes so many queries, and keys of each stream. Float32 is left to JAX's kernel."""
    fits = _blocks(queries, keys, heads * size, size, dtype, 2 * size * are_rotated).memory <= _MEMORY
    return fits and dtype == jnp.bfloat16 and size % (_LANES if are_rotated else _SUBLANES) == 0


def attend(
    query: jax.Array,
    streams: Sequence[tuple[jax.Array, jax.Array]],
    ends: jax.Array,
    *,
    heads: int,
    scale: float,
    turns: Sequence[jax.Array] | None = None,
    epsilon: float | None = None,
    interpret: bool = False,
) -> jax.Array:
    """query [B, T, heads * size], keys and values [B, S, heads * size] of each stream -> the shape of query.

    Keys from ``ends``, int32 [streams, B], on are padding: at least one of each stream is not. Scores and softmax are
    float32, and so are norms and rotations. With ``epsilon``, heads of queries and keys are divided by their root mean
    square. ``turns``, of the queries and of each stream's keys, are `turned_by`'s.
    """
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu

    batch, length, width = query.shape
    size, num_keys = width // heads, [key.shape[1] for key, _ in streams]
    per_token = 0 if turns is None or turns[0].shape[1] == 1 else turns[0].shape[2]
    blocks = _blocks(length, num_keys, width, size, query.dtype, per_token)
    at_once, rows, keys = blocks.features // size, size + _SUBLANES, sum(blocks.padded)
    of_query = pl.BlockSpec((1, blocks.queries, blocks.features), lambda row, part, step: (row, step, part))

    def of_keys(padded):
        return pl.BlockSpec((1, padded, blocks.features), lambda row, part, step: (row, 0, part))

    def of_turns(turns, positions, has_steps):
        own_rows, own_tokens = (axis > 1 for axis in turns.shape[:2])

        def index(row, part, step):
            return (row if own_rows else 0, step if has_steps and own_tokens else 0, 0)

        return pl.BlockSpec((1, positions if own_tokens else 1, turns.shape[2]), index)

    turn_specs = [] if turns is None else [of_turns(turns[0], blocks.queries, True)]
    turn_specs += [of_turns(*of, False) for of in zip((turns or [None])[1:], blocks.padded, strict=False)]
    scratch = (
        ((at_once, blocks.queries, size), query.dtype),
        ((at_once, keys, size), query.dtype),
        ((at_once, rows, keys), query.dtype),
        ((2, blocks.keys, blocks.queries), jnp.float32),
        ((at_once, rows, blocks.queries), jnp.float32),
    )
    return pl.pallas_call(
        functools.partial(_kernel, scale * math.log2(math.e), size, blocks, epsilon, turns is not None),
        grid=(batch, width // blocks.features, pl.cdiv(length, blocks.queries)),
        in_specs=[
            of_query,
            *(of_keys(padded) for padded in blocks.padded for _ in range(2)),
            *turn_specs,
            pl.BlockSpec(memory_space=pltpu.SMEM),
        ],
        out_specs=of_query,
        out_shape=jax.ShapeDtypeStruct(query.shape, query.dtype),
        scratch_shapes=[pltpu.VMEM(*shape_and_dtype) for shape_and_dtype in scratch],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"), vmem_limit_bytes=_LIMIT
        ),
        cost_estimate=pl.CostEstimate(
            flops=4 * batch * width * length * sum(num_keys),
            transcendentals=batch * heads * length * keys,
            bytes_accessed=2 * (query.nbytes + sum(key.nbytes for key, _ in streams)),
        ),
        interpret=interpret,
        name=_name(blocks, keys, size, length, per_token > 0),
    )(query, *(array for stream in streams for array in stream), *(turns or ()), ends)


def _name(blocks: _Blocks, keys: int, size: int, queries: int, are_rotated: bool) -> str:
    """Name of the kernel. Plans have the cycles of each."""
    if are_rotated:
        kind = "_turned" + "_short" * (queries <= blocks.queries)
    else:
        kind = "_short" if keys == blocks.keys else "_wide" if size > 96 else ""
    return "packed_attention" + kind


def turned_by(scale: jax.Array | None, turns: tuple[jax.Array, jax.Array] | None, size: int) -> jax.Array | None:
    """Factors of a head's numbers, float32 [1 or B, 1 or tokens, size or 2 * size].

    Behind the factors of the numbers themselves are factors of the pair's other one, where pairs of features are turned
    by angles, whose cosines and sines are [tokens, 1, size / 2] float32, or with B before it. A norm's ``scale`` [size]
    comes first.
    """
    own = jnp.ones(size) if scale is None else scale.astype(jnp.float32)
    if turns is None:
        return None if scale is None else own[None, None]
    cosines, sines = (jnp.repeat(wave[..., 0, :], 2, axis=-1) for wave in turns)
    others = own.reshape(-1, 2)[:, ::-1].reshape(-1) * jnp.tile(jnp.array([-1.0, 1.0]), size // 2)
    factors = jnp.concatenate([cosines * own, sines * others], axis=-1)
    return factors if factors.ndim == 3 else factors[None]


def _kernel(factor, size, blocks, epsilon, has_turns, *refs):
    """Attends from a block of queries to all keys, head by head and chunk by chunk. Scores are [keys, queries].

                 queries
               +---------+  scores of a chunk of keys: two buffers, so that the product for the next chunk
      k_own  x |  q_own  |  (or the next head) runs next to the exponentials of this one
               +---------+
                    |  weights = exp2(scores - largest score so far)
               +---------+
      v_own  x | weights |  is added to `sums` [size + 8, queries]: values, and behind them eight rows of ones,
               +---------+  which give each query's sum of weights

    `k_own` and `v_own` hold all streams' keys and values by head. The first block of queries fills them.
    """
    from jax.experimental import pallas as pl

    count, block = len(blocks.padded), blocks.keys
    q_ref, *refs = refs
    streams, refs = [refs[2 * n : 2 * n + 2] for n in range(count)], refs[2 * count :]
    q_turn, *k_turns = refs[: count + 1] if has_turns else [None] * (count + 1)
    ends_ref, out_ref, q_own, k_own, v_own, scores, sums = refs[(count + 1) * has_turns :]
    heads = k_own.shape[0]
    row, prepare = pl.program_id(0), functools.partial(_prepared, size, epsilon)

    @pl.when(pl.program_id(2) == 0)
    def _():
        for stream, padded in enumerate(blocks.padded):
            take = functools.partial(
                _take_keys, block, prepare, ends_ref, (stream, row), (*streams[stream], k_turns[stream]), (k_own, v_own)
            )
            offset = sum(blocks.padded[:stream])
            jax.lax.fori_loop(0, padded // block, lambda chunk, _, take=take, offset=offset: take(offset, chunk), None)

    q, turn = q_ref[0].astype(jnp.float32), _turn(q_turn, slice(None))
    for head in range(heads):
        q_own[head] = prepare(q[:, head * size : (head + 1) * size], turn).astype(q_own.dtype)
    sums[...] = jnp.zeros_like(sums)
    _sum_weighted_values(factor, block, q_own, k_own, v_own, scores, sums)
    out = jnp.concatenate([sums[head, :size] / sums[head, size : size + 1] for head in range(heads)], axis=0)
    out_ref[0] = out.T.astype(out_ref.dtype)


def _prepared(size, epsilon, x, turn):
    """A head's queries or keys, normed and rotated."""
    from jax.experimental.pallas import tpu as pltpu

    if epsilon is not None:
        x = x * jax.lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + epsilon)
    if turn is None:
        return x
    y = x * turn[:, :size]
    if turn.shape[1] > size:
        is_even = jax.lax.broadcasted_iota(jnp.int32, x.shape, 1) % 2 == 0
        y += jnp.where(is_even, pltpu.roll(x, size - 1, 1), pltpu.roll(x, 1, 1)) * turn[:, size:]
    return y


def _turn(ref, at):
    return None if ref is None else ref[0] if ref.shape[1] == 1 else ref[0, at]


def _take_keys(block, prepare, ends_ref, end, refs, own, offset, chunk):
    """Copies a chunk of a stream's keys and values to `k_own` and `v_own`."""
    from jax.experimental import pallas as pl

    (k_ref, v_ref, turn_ref), (k_own, v_own) = refs, own
    heads, _, size = k_own.shape
    start = pl.multiple_of(chunk * block, block)
    at, into = pl.ds(start, block), pl.ds(pl.multiple_of(start + offset, block), block)

    def kept(shape, axis):
        return jax.lax.broadcasted_iota(jnp.int32, shape, axis) + start < ends_ref[end]

    # Padding has the scores of the first key, which leaves the maximum alone, and no weight.
    k, v = (ref[0, at].astype(jnp.float32) for ref in (k_ref, v_ref))
    first = k_ref[0, :_SUBLANES].astype(jnp.float32)
    turn, first_turn = _turn(turn_ref, at), _turn(turn_ref, pl.ds(0, _SUBLANES))
    v = jnp.where(kept(v.shape, 0), v, 0).T
    ones = jnp.where(kept((_SUBLANES, block), 1), 1.0, 0.0)
    for head in range(heads):
        features = slice(head * size, (head + 1) * size)
        keys = prepare(k[:, features], turn)
        keys = jnp.where(kept(keys.shape, 0), keys, prepare(first[:, features], first_turn)[:1])
        k_own[head, into] = keys.astype(k_own.dtype)
        v_own[head, :, into] = jnp.concatenate([v[features], ones], axis=0).astype(v_own.dtype)


def _sum_weighted_values(factor, block, q_own, k_own, v_own, scores, sums):
    """Adds up `sums` over all units: a unit is a chunk of keys of a head."""
    from jax.experimental import pallas as pl

    heads, keys, _ = k_own.shape
    chunks = keys // block

    def parts(unit):
        head, chunk = jax.lax.div(unit, chunks), jax.lax.rem(unit, chunks)
        return head, chunk, pl.ds(pl.multiple_of(chunk * block, block), block)

    def score(unit, buffer):
        head, _, at = parts(unit)
        products = _product(k_own[head, at], q_own[head], 1)
        scores[buffer] = products
        return jnp.max(products, axis=0, keepdims=True)

    def add(unit, buffer, largest, before):
        head, chunk, at = parts(unit)
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


def _product(a, b, axis):
    """a [m, n] times b, whose given axis has as many as a's second: float32."""
    return jax.lax.dot_general(a, b, (((1,), (axis,)), ((), ())), preferred_element_type=jnp.float32)


class _Blocks(NamedTuple):
    queries: int  # of a step
    keys: int  # of a product
    padded: tuple[int, ...]  # keys of each stream with padding
    features: int  # of a step: whole heads, and whole registers or all
    memory: int  # bytes on the chip


def _blocks(queries: int, keys: Sequence[int], width: int, size: int, dtype: Any, per_token: int = 0) -> _Blocks:
    """The largest blocks that fit, with so many float32 numbers of each token. Where none do, the smallest."""
    block = _block(keys, _KEYS)
    padded_keys = tuple(number + -number % block for number in keys)
    padded = sum(padded_keys)
    unit = math.lcm(size, _LANES)
    parts = [width, *(features for features in range(width - 1, 0, -1) if features % unit == width % features == 0)]
    for of_queries in (_block([queries], limit) for limit in _QUERIES):
        for features in parts:
            heads, lanes = features // size, features + -features % _LANES
            windows = 4 * (of_queries + padded) * lanes
            own = heads * ((of_queries + padded) * (size + -size % _LANES) + padded * (size + 2 * _SUBLANES))
            products = of_queries * (2 * block + heads * (size + _SUBLANES)) + 2 * (of_queries + padded) * per_token
            memory = (windows + own) * jnp.dtype(dtype).itemsize + products * 4
            blocks = _Blocks(of_queries, block, padded_keys, features, memory)
            if memory <= _MEMORY:
                return blocks
    return blocks


def _block(positions: Sequence[int], limit: int) -> int:
    """The size of blocks that cost least."""
    longest = max(positions)
    sizes = range(_LANES, min(longest + -longest % _LANES, limit) + 1, _LANES)
    return min(sizes, key=lambda size: (sum(-(-number // size) for number in positions) * (size + _STEP), -size))
