"""Softmax attention, and multi-head attention over the positions of an image; scores and softmax are float32."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models.base import linear

# Major compute capabilities: cuDNN's fused attention begins with the first, its heads above 128 with the second.
_AMPERE = 8
_HOPPER = 9

# Attention on CPUs, in bytes of float32 scores: matrices of one head from the first size on are worth taking apart, if
# all heads together have more than the second, above which memory is given back to the system after each use; a part
# has at most the third, which stays in the caches.
_LARGE_MATRIX = 1 << 20
_MANY_SCORES = 1 << 25
_PART_SCORES = 1 << 22


def dot_product_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, *, is_causal: bool = False, lengths: jax.Array | None = None
) -> jax.Array:
    """Softmax attention with scores and softmax in float32.

    Runs as cuDNN's fused attention where that takes the dtype and head size, otherwise as plain products in which the
    softmax is divided by its sum after the product with the values. On CPUs that is 1.2 to 4 times as fast as
    ``jax.nn.dot_product_attention``, forward and backward: the array of weights is passed over less often. Large arrays
    of scores are worked through in parts there.

    Args:
      query: [B, T, heads, head_size].
      key: [B, S, heads, head_size].
      value: [B, S, heads, head_size].
      is_causal: position t attends to positions up to t.
      lengths: int32 [B], at least 1: keys from this position on are padding, which no query attends to.

    Returns:
      [B, T, heads, head_size] in the dtype of ``query``.
    """
    if _cudnn_takes(query):
        return jax.nn.dot_product_attention(
            query, key, value, is_causal=is_causal, key_value_seq_lengths=lengths, implementation="cudnn"
        )
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    matrix_bytes = 4 * query.shape[2] * key.shape[2]
    all_bytes = matrix_bytes * query.shape[0] * query.shape[1]
    whole = is_causal or lengths is not None
    if jax.default_backend() == "cpu" and not whole and matrix_bytes >= _LARGE_MATRIX and all_bytes > _MANY_SCORES:
        result = _attend_in_parts(query, key, value)
    else:
        result = _attend(query, key, value, is_causal=is_causal, lengths=lengths)
    return jnp.swapaxes(result, 1, 2)


def _attend(
    query: jax.Array, key: jax.Array, value: jax.Array, *, is_causal: bool = False, lengths: jax.Array | None = None
) -> jax.Array:
    """Attention with the positions last but one: [..., T, head_size] and twice [..., S, head_size].

    With ``lengths`` the first axis is the batch's and there is one more before the positions, that of the heads.
    """
    scores = jnp.einsum("...th,...sh->...ts", query, key, preferred_element_type=jnp.float32)
    scores = scores * query.shape[-1] ** -0.5
    if is_causal:
        scores = jnp.where(jnp.tri(*scores.shape[-2:], dtype=bool), scores, -jnp.inf)
    if lengths is not None:
        scores = jnp.where(jnp.arange(scores.shape[-1]) < lengths[:, None, None, None], scores, -jnp.inf)
    # The result does not depend on the subtracted maximum, so cutting its gradient is exact.
    weights = jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True)))
    total = jnp.sum(weights, axis=-1)[..., None]
    result = jnp.einsum("...ts,...sh->...th", weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
    return (result / total).astype(query.dtype)


def _attend_in_parts(query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention with few scores at a time, for CPUs: up to 7 times as fast for large score matrices.

    Their cache holds the scores of one part between the two products, and the products' scratch memory is used again,
    where that of all scores at once is given back to the system after each product and cleared by it before the next.

    Args:
      query: [B, heads, T, head_size].
      key: [B, heads, S, head_size].
      value: [B, heads, S, head_size].
    """
    batch, heads, length, width = query.shape
    rows = _PART_SCORES // (4 * key.shape[2])
    # Whole heads where one fits, otherwise a head's queries in parts of equal size.
    at_once = _largest_divisor(batch * heads, max(1, rows // length))
    part = _largest_divisor(length, max(1, rows)) if at_once == 1 else length
    query = query.reshape(-1, at_once, length // part, part, width).swapaxes(1, 2)
    key, value = (x.reshape(-1, at_once, *x.shape[2:]) for x in (key, value))

    def heads_at_once(arrays: tuple[jax.Array, ...]) -> jax.Array:
        parts, key, value = arrays
        return jax.lax.map(lambda part: _attend(part, key, value), parts)

    result = jax.lax.map(heads_at_once, (query, key, value))
    return result.swapaxes(1, 2).reshape(batch, heads, length, width)


def _largest_divisor(number: int, limit: int) -> int:
    return next(divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0)


def _cudnn_takes(query: jax.Array) -> bool:
    """True if the default device is an NVIDIA GPU whose fused attention takes this dtype and head size."""
    if query.dtype not in (jnp.bfloat16, jnp.float16) or jax.default_backend() != "gpu":
        return False
    # "9.0" on NVIDIA GPUs, another form or nothing elsewhere.
    major, _, minor = str(getattr(jax.local_devices()[0], "compute_capability", "")).partition(".")
    if not (major.isdigit() and minor.isdigit()) or int(major) < _AMPERE:
        return False
    head_size = query.shape[-1]
    return head_size % 8 == 0 and head_size <= (256 if int(major) >= _HOPPER else 128)


class Attention(nnx.Module):
    """Multi-head attention of an image's positions to themselves or to a text.

    Scores accumulate in float32 in every compute dtype, which is what the published option ``upcast_attention`` asks
    for; it therefore changes nothing here.

    Args:
      channels: width of the queries' input and of the output.
      heads: number of heads, a divisor of ``channels``.
      context_channels: width of the keys' and values' input; None for self-attention.
      bias: biases on the query, key and value projections (the output projection always has one).
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        *,
        context_channels: int | None = None,
        bias: bool = False,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.heads = heads
        self.to_q = linear(channels, channels, bias=bias, **kwargs)
        self.to_k = linear(context_channels or channels, channels, bias=bias, **kwargs)
        self.to_v = linear(context_channels or channels, channels, bias=bias, **kwargs)
        self.to_out = nnx.List([linear(channels, channels, **kwargs)])

    def keys_values(self, context: jax.Array) -> tuple[jax.Array, jax.Array]:
        """context [B, S, context_channels] -> keys and values, each [B, S, heads, channels / heads].

        They depend on the context alone, so those of a text can be kept and passed to ``attend`` many times.
        """
        return self._split(self.to_k(context)), self._split(self.to_v(context))

    def attend(self, x: jax.Array, keys: jax.Array, values: jax.Array, rows: jax.Array | None = None) -> jax.Array:
        """x [B, T, channels] and the results of ``keys_values`` -> [B, T, channels].

        With rows, int32 [N], there are N keys and values, and queries from those rows of x: [N, T, channels].
        """
        queries = self._split(self.to_q(x))
        y = dot_product_attention(queries if rows is None else queries[rows], keys, values)
        return self.to_out[0](y.reshape(*y.shape[:2], -1))

    def __call__(self, x: jax.Array, context: jax.Array | None = None) -> jax.Array:
        """x [B, T, channels], context [B, S, context_channels] or None for x itself -> [B, T, channels]."""
        return self.attend(x, *self.keys_values(x if context is None else context))

    def _split(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:-1], self.heads, -1)
