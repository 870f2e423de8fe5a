"""Attention as one kernel, which keeps the scores on the chip: cuDNN's on NVIDIA GPUs, JAX's Pallas kernel on TPUs."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from winobench.models import packed_attention

# Compute capabilities: cuDNN's fused attention begins with the first, its heads above 128 with the second.
_AMPERE, _HOPPER = (8, 0), (9, 0)
# Numbers of positions that the gradient of cuDNN's attention takes are multiples of it.
_EVEN = 2
# The least that a mask adds to scores. It stays finite times any scale.
_LOWEST = -1e30

# A TPU's registers are this wide. Positions come in as many.
_LANES = 128
# Bytes of a head's numbers, up to which the memory on the chip holds these blocks -> queries and keys of one step of
# the kernel, at most, and keys that are multiplied at once. The largest blocks need the fewest cycles of those that
# were tried, by the compiler's final schedules, on a v5e, a v5p and a v6e alike: for each head of 64, and the 4,096
# positions of an image, 85,000, 86,000 and 50,000 cycles.
_BLOCKS = {256: (1024, 2048, 1024), 1024: (512, 1024, 512), 2048: (256, 1024, 512)}
# Backward, more arrays share the memory on the chip.
_BACKWARD_BLOCK = 512
# What a step of the kernel costs next to its scores, as so many queries or keys more: by the same schedules, a step of
# b keys takes 4.1e-3 (b + 490) cycles a query on a v5e. The positions of an image and a text together, 4,429 in Stable
# Diffusion 3, are therefore padded to 4,608 and taken in blocks of 768 and 1,536 (115,000 cycles a head), where blocks
# that divide 4,480 leave 896 (123,000), and divisors of 4,352 positions 256 (214,000).
_STEP_QUERIES, _STEP_KEYS = 64, 490
# More padding than to whole registers must bring as much. Beyond some length, the gradient's blocks are this wide, too.
_WORTH = 1.05
_LONG, _WIDE = 1024, 256
# Keys of a text, at most.
_TEXT = 512


# Kernels take heads in units of this many numbers. One number of an extra unit carries the bias of a key's scores.
_UNIT = 8


def cudnn_takes(query: jax.Array, capability: tuple[int, int] | None, mask: jax.Array | None = None) -> bool:
    """Whether cuDNN's fused attention takes queries of this dtype and head size on a GPU of this compute capability."""
    if query.dtype not in (jnp.bfloat16, jnp.float16) or capability is None or capability < _AMPERE:
        return False
    head_size = query.shape[-1] + (_UNIT if _is_key_bias(mask) else 0)
    return head_size % _UNIT == 0 and head_size <= (256 if capability >= _HOPPER else 128)


def cudnn(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    is_causal: bool = False,
    lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    scale: float | None = None,
) -> jax.Array:
    """`winobench.models.attention.dot_product_attention` where `cudnn_takes` the shapes, forward and backward."""
    if mask is None:
        return _cudnn_of(is_causal, scale, query, key, value, lengths)
    if _is_padding(mask):
        return _cudnn_of(False, scale, query, *_padding_last(mask, key, value))
    if _is_key_bias(mask):
        width = query.shape[-1]
        arrays = _with_key_bias(mask, query, key, value, scale)
        return _cudnn_of(False, width**-0.5 if scale is None else scale, *arrays, None)[..., :width]
    bias = _finite_bias(mask, 1.0, query.dtype)
    bias = jnp.broadcast_to(bias, (*bias.shape[:2], query.shape[1], key.shape[1]))
    return jax.nn.dot_product_attention(query, key, value, bias=bias, scale=scale, implementation="cudnn")


def _is_padding(mask: jax.Array | None) -> bool:
    """Whether a mask is the same for all queries and heads, and leaves keys out: [B or 1, 1, 1, S]."""
    return mask is not None and mask.dtype == jnp.bool_ and mask.shape[1:3] == (1, 1)


def _is_key_bias(mask: jax.Array | None) -> bool:
    """Whether another mask than padding is the same for all queries: [B or 1, heads or 1, 1, S]."""
    return mask is not None and mask.shape[2] == 1 and not _is_padding(mask)


def _finite_bias(mask: jax.Array, scale: float, dtype: Any) -> jax.Array:
    """The bias that a mask adds to the scores, divided by ``scale``."""
    bias = jnp.where(mask, 0.0, -jnp.inf) if mask.dtype == jnp.bool_ else mask.astype(jnp.float32)
    return jnp.maximum(bias / scale, max(_LOWEST, float(jnp.finfo(dtype).min))).astype(dtype)


def _padding_last(mask: jax.Array, key: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Keys and values with the padding behind them, and how many are not padding: at least 1.

    Attention does not depend on the order of keys. With lengths, the kernel skips padding, and reads no mask.
    """
    kept = jnp.broadcast_to(mask[:, 0, 0], key.shape[:2])
    order = jnp.argsort(~kept, axis=1, stable=True)[..., None, None]
    key, value = (jnp.take_along_axis(x, order, axis=1, mode="promise_in_bounds") for x in (key, value))
    return key, value, jnp.maximum(jnp.sum(kept, axis=1, dtype=jnp.int32), 1)


def _with_key_bias(
    mask: jax.Array, query: jax.Array, key: jax.Array, value: jax.Array, scale: float | None
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Arrays of wider heads, so that the products of queries and keys include the bias of each key's scores.

    Otherwise kernels would read an array of all scores once for each head, with the same numbers for each query.
    """
    bias = _finite_bias(mask, query.shape[-1] ** -0.5 if scale is None else scale, key.dtype)
    bias = jnp.broadcast_to(bias[:, :, 0].swapaxes(1, 2), key.shape[:3])[..., None]

    def widened(x: jax.Array, number: jax.Array) -> jax.Array:
        return jnp.concatenate([x, number, jnp.zeros((*x.shape[:-1], _UNIT - 1), x.dtype)], axis=-1)

    return widened(query, jnp.ones_like(query[..., :1])), widened(key, bias), widened(value, jnp.zeros_like(bias))


def _cudnn_of(is_causal: bool, scale: float | None, *arrays: Any) -> jax.Array:
    if arrays[0].shape[1] % _EVEN == 0 and arrays[1].shape[1] % _EVEN == 0:
        return _cudnn(is_causal, scale, *arrays)
    return _cudnn_of_odd_positions(is_causal, scale, *arrays)


def _cudnn(is_causal, scale, query, key, value, lengths):
    return jax.nn.dot_product_attention(
        query, key, value, is_causal=is_causal, scale=scale, key_value_seq_lengths=lengths, implementation="cudnn"
    )


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _cudnn_of_odd_positions(is_causal, scale, query, key, value, lengths):
    """JAX has no gradient of cuDNN's for an odd number of positions, such as a text's 77: they are padded for it."""
    return _cudnn(is_causal, scale, query, key, value, lengths)


def _odd_positions_forward(is_causal, scale, query, key, value, lengths):
    batch, num_queries, num_keys = *query.shape[:2], key.shape[1]
    ends = jnp.full((batch,), num_keys, jnp.int32) if lengths is None else lengths

    def padded(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
        arrays = (jnp.pad(x, ((0, 0), (0, -x.shape[1] % _EVEN), (0, 0), (0, 0))) for x in (query, key, value))
        return _cudnn(is_causal, scale, *arrays, ends)[:, :num_queries]

    return jax.vjp(padded, query, key, value)


def _odd_positions_backward(is_causal: bool, scale: float | None, residuals: Any, gradient: jax.Array):
    return (*residuals(gradient), None)


_cudnn_of_odd_positions.defvjp(_odd_positions_forward, _odd_positions_backward)


def flash_takes(query: jax.Array, key: jax.Array, mask: jax.Array | None = None) -> bool:
    """Whether a TPU kernel takes queries and keys [B, positions, heads, head_size], and is worth it.

    With few positions, XLA's own products keep the scores on the chip. A text's 77 keys are one block of 128. A
    separate mask for each query would be read for each head, as large as the scores.
    """
    width = query.shape[-1] + (_UNIT if _is_key_bias(mask) else 0)
    if _head_bytes(width, query.dtype) > max(_BLOCKS) or (mask is not None and mask.shape[2] > 1):
        return False
    return query.shape[1] >= 2 * _LANES and key.shape[1] >= _LANES // 2


def flash(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    is_causal: bool = False,
    lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    scale: float | None = None,
) -> jax.Array:
    """Computes `winobench.models.attention.dot_product_attention` by a Pallas kernel for TPUs, forward and backward.

    Forward it is `winobench.models.packed_attention` where that takes the arrays, otherwise and backward JAX's kernel.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if scale > 0 and packed_attention.takes(query.shape[1], [key.shape[1]], *query.shape[2:], query.dtype):
        if _is_padding(mask) and key.shape[1] <= _TEXT:
            # Of few keys a copy costs little.
            return _packed(scale, query, *_padding_last(mask, key, value))
        if mask is None and not is_causal:
            return _packed(scale, query, key, value, lengths)
    return _split(query, key, value, is_causal=is_causal, lengths=lengths, mask=mask, scale=scale)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _packed(scale: float, query: jax.Array, key: jax.Array, value: jax.Array, lengths: jax.Array | None) -> jax.Array:
    batch, num_keys, heads, _ = key.shape
    ends = jnp.full((batch,), num_keys, jnp.int32) if lengths is None else lengths
    joined, *keys_values = (x.reshape(*x.shape[:2], -1) for x in (query, key, value))
    return packed_attention.attend(joined, [keys_values], ends[None], heads=heads, scale=scale).reshape(query.shape)


def _packed_forward(
    scale: float, query: jax.Array, key: jax.Array, value: jax.Array, lengths: jax.Array | None
) -> tuple[jax.Array, Any]:
    return jax.vjp(functools.partial(_split, lengths=lengths, scale=scale), query, key, value)


def _packed_backward(scale: float, residuals: Any, gradient: jax.Array):
    return (*residuals(gradient), None)


_packed.defvjp(_packed_forward, _packed_backward)


def _split(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    scale: float,
    is_causal: bool = False,
    lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
) -> jax.Array:
    """Calls JAX's kernel, for which each head's positions are next to each other.

    Positions are padded to whole registers, and so are heads of more than one. Keys that are padding are not query's.
    """
    from jax.experimental.pallas.ops.tpu import flash_attention

    batch, length, _, width = query.shape
    num_keys = key.shape[1]
    if _is_key_bias(mask):
        query, key, value = _with_key_bias(mask, query, key, value, scale)
    of_queries, of_keys, sizes = _blocks(length, num_keys, _head_bytes(query.shape[-1], query.dtype))
    query, key, value = (_padded(x, of) for x, of in ((query, of_queries), (key, of_keys), (value, of_keys)))
    segments = None
    if lengths is not None or key.shape[1] != num_keys or _is_padding(mask):
        ends = jnp.full((batch,), num_keys) if lengths is None else lengths
        is_padding = jnp.arange(key.shape[1]) >= ends[:, None]
        if _is_padding(mask):
            is_padding = is_padding | jnp.pad(~mask[:, 0, 0], ((0, 0), (0, key.shape[1] - num_keys)))
        queries = jnp.zeros((batch, query.shape[1]), jnp.int32)
        segments = flash_attention.SegmentIds(queries, is_padding.astype(jnp.int32))
    result = flash_attention.flash_attention(
        *(jnp.swapaxes(x, 1, 2) for x in (query, key, value)),
        segment_ids=segments,
        causal=is_causal,
        sm_scale=scale,
        block_sizes=sizes,
    )
    return jnp.swapaxes(result, 1, 2)[:, :length, :, :width]


def _padded(array: jax.Array, positions: int) -> jax.Array:
    """[B, T, heads, head_size] with zeros to so many positions, and to whole registers of a head."""
    width = array.shape[-1]
    more = -width % _LANES if width > _LANES else 0
    return jnp.pad(array, ((0, 0), (0, positions - array.shape[1]), (0, 0), (0, more)))


def _head_bytes(width: int, dtype: Any) -> int:
    """Bytes of the numbers of one head at one position, as they lie in registers."""
    return (width + -width % _LANES) * jnp.dtype(dtype).itemsize


def _blocks(queries: int, keys: int, head_bytes: int) -> tuple[int, int, Any]:
    """Positions that queries and keys are padded to, and the kernel's blocks of them."""
    from jax.experimental.pallas.ops.tpu.flash_attention import BlockSizes

    limits = next(blocks for most, blocks in _BLOCKS.items() if head_bytes <= most)
    queries, block_q = _padded_and_block(queries, limits[0], _STEP_QUERIES)
    keys, major = _padded_and_block(keys, limits[1], _STEP_KEYS)
    back_q, back_k = _block(queries, _BACKWARD_BLOCK), _block(keys, _BACKWARD_BLOCK)
    sizes = BlockSizes(
        block_b=1,
        block_q=block_q,
        block_k_major=major,
        block_k=_block(major, limits[2]),
        block_q_major_dkv=back_q,
        block_q_dkv=back_q,
        block_k_major_dkv=back_k,
        block_k_dkv=back_k,
        block_q_dq=back_q,
        block_k_major_dq=back_k,
        block_k_dq=back_k,
    )
    return queries, keys, sizes


def _padded_and_block(positions: int, limit: int, step: int) -> tuple[int, int]:
    """The length and the size of its blocks, up to a limit, that cost least if each block has ``step`` more."""
    least = positions + -positions % _LANES

    def cost(block: int) -> float:
        padded = positions + -positions % block
        return padded * (1 + step / block) * (1.0 if padded == least else _WORTH)

    def suits_gradient(block: int) -> bool:
        padded = positions + -positions % block
        return padded <= _LONG or _block(padded, _BACKWARD_BLOCK) >= _WIDE

    sizes = filter(suits_gradient, range(_LANES, min(least, limit) + 1, _LANES))
    block = min(sizes, key=lambda block: (cost(block), -block))
    return positions + -positions % block, block


def _block(positions: int, limit: int) -> int:
    """The largest divisor of some positions, a multiple of the register's width, up to a limit."""
    return next(size for size in range(min(positions, limit), 0, -_LANES) if positions % size == 0)
