"""Attention as one kernel, which keeps the scores on the chip: cuDNN's on NVIDIA GPUs, JAX's Pallas kernel on TPUs."""

from __future__ import annotations

import jax
import jax.numpy as jnp

# Compute capabilities: cuDNN's fused attention begins with the first, its heads above 128 with the second.
_AMPERE, _HOPPER = (8, 0), (9, 0)

# A TPU's registers are this wide; positions come in as many.
_LANES = 128
# Queries and keys of one step of the kernel, at most, and keys that are multiplied at once. By the schedules that the
# compiler makes for one (benchmarks/compiled.py): of 4,096 positions and heads of 64, a v5e works off a sample's head
# in 85,000 cycles; with the kernel's own blocks of 128 in many times that.
_QUERY_BLOCK, _KEY_BLOCK, _KEYS_AT_ONCE = 1024, 2048, 1024
# Backward, more arrays share the memory on the chip.
_BACKWARD_BLOCK = 512


def cudnn_takes(query: jax.Array, capability: tuple[int, int] | None) -> bool:
    """Whether cuDNN's fused attention takes queries of this dtype and head size on a GPU of this compute capability."""
    if query.dtype not in (jnp.bfloat16, jnp.float16) or capability is None or capability < _AMPERE:
        return False
    head_size = query.shape[-1]
    return head_size % 8 == 0 and head_size <= (256 if capability >= _HOPPER else 128)


def cudnn(
    query: jax.Array, key: jax.Array, value: jax.Array, *, is_causal: bool = False, lengths: jax.Array | None = None
) -> jax.Array:
    """As `winobench.models.attention.dot_product_attention`, of what `cudnn_takes`."""
    return jax.nn.dot_product_attention(
        query, key, value, is_causal=is_causal, key_value_seq_lengths=lengths, implementation="cudnn"
    )


def flash_takes(query: jax.Array, key: jax.Array) -> bool:
    """Whether the TPU kernel takes queries and keys [B, positions, heads, head_size], and is worth its copies.

    With few positions, XLA's own products keep the scores on the chip.
    """
    return query.shape[1] >= 2 * _LANES and key.shape[1] >= 2 * _LANES


def flash(
    query: jax.Array, key: jax.Array, value: jax.Array, *, is_causal: bool = False, lengths: jax.Array | None = None
) -> jax.Array:
    """As `winobench.models.attention.dot_product_attention`, by JAX's Pallas kernel for TPUs, forward and backward.

    Positions are padded to whole registers; keys that are padding are no query's.
    """
    from jax.experimental.pallas.ops.tpu import flash_attention

    batch, length, _, width = query.shape
    num_keys = key.shape[1]
    query, key, value = (_padded(x) for x in (query, key, value))
    segments = None
    if lengths is not None or key.shape[1] != num_keys:
        ends = jnp.full((batch,), num_keys) if lengths is None else lengths
        is_padding = jnp.arange(key.shape[1]) >= ends[:, None]
        queries = jnp.zeros((batch, query.shape[1]), jnp.int32)
        segments = flash_attention.SegmentIds(queries, is_padding.astype(jnp.int32))
    result = flash_attention.flash_attention(
        *(jnp.swapaxes(x, 1, 2) for x in (query, key, value)),
        segment_ids=segments,
        causal=is_causal,
        sm_scale=width**-0.5,
        block_sizes=_block_sizes(query.shape[1], key.shape[1]),
    )
    return jnp.swapaxes(result, 1, 2)[:, :length]


def _padded(array: jax.Array) -> jax.Array:
    """[B, positions, heads, head_size] with zeros to a multiple of the register's width."""
    return jnp.pad(array, ((0, 0), (0, -array.shape[1] % _LANES), (0, 0), (0, 0)))


def _block_sizes(queries: int, keys: int):
    from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes

    major = _block(keys, _KEY_BLOCK)
    back_q, back_k = _block(queries, _BACKWARD_BLOCK), _block(keys, _BACKWARD_BLOCK)
    return BlockSizes(
        block_b=1,
        block_q=_block(queries, _QUERY_BLOCK),
        block_k_major=major,
        block_k=_block(major, _KEYS_AT_ONCE),
        block_q_major_dkv=back_q,
        block_q_dkv=back_q,
        block_k_major_dkv=back_k,
        block_k_dkv=back_k,
        block_q_dq=back_q,
        block_k_major_dq=back_k,
        block_k_dq=back_k,
    )


def _block(positions: int, limit: int) -> int:
    """The largest divisor of some positions, a multiple of the register's width, up to a limit."""
    return next(size for size in range(min(positions, limit), 0, -_LANES) if positions % size == 0)
