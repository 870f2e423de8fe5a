"""Softmax attention, and multi-head attention over the positions of an image. Scores and softmax are float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench import parallel
from winobench.models import fused_attention, plain_attention
from winobench.models.base import linear

# Attention on CPUs, in bytes of float32 scores: matrices of one head from the first size on are worth taking apart, if
# all heads together have more than the second, above which memory is given back to the system after each use. A part
# has at most the third, which stays in the caches.
_LARGE_MATRIX = 1 << 20
_MANY_SCORES = 1 << 25
_PART_SCORES = 1 << 22
# The same on accelerators, where no fused kernel takes a shape: more than the first fill their memory.
_MANY_SCORES_THERE = 1 << 29
_PART_SCORES_THERE = 1 << 28


def dot_product_attention(
    query: jax.Array, key: jax.Array, value: jax.Array, *, is_causal: bool = False, lengths: jax.Array | None = None
) -> jax.Array:
    """Softmax attention with scores and softmax in float32.

    Runs as a fused kernel where there is one for the device, the dtype and the shape (`winobench.models.
    fused_attention`), otherwise as plain products (`winobench.models.plain_attention`), in parts where there are many
    scores. The device is that of the mesh (`winobench.parallel.traced_device`), or what the function is lowered for.
    XLA cannot divide the kernels among devices: where several share the rows, as in a training step, each is given its
    own (`winobench.parallel.on_each_device`).

    query [B, T, heads, head_size], key and value [B, S, heads, head_size] -> [B, T, heads, head_size] in the dtype of
    ``query``. ``lengths`` are int32 [B], at least 1: no query attends to keys from this position on, which are padding.
    """
    device = parallel.traced_device()
    if device is not None:
        form = _attention_of(device, query, key)
        if form in _KERNELS and not parallel.runs_on_one_device():
            return _on_each_device(form, query, key, value, is_causal, lengths)
        return form(query, key, value, is_causal=is_causal, lengths=lengths)
    forms = {platform: _attention_of(parallel.Device(platform), query, key) for platform in ("cpu", "tpu", "gpu")}
    if len(set(forms.values())) == 1:
        return forms["cpu"](query, key, value, is_causal=is_causal, lengths=lengths)

    def call(platform):
        return lambda *arrays: forms[platform](*arrays[:3], is_causal=is_causal, lengths=arrays[3])

    return jax.lax.platform_dependent(query, key, value, lengths, cpu=call("cpu"), tpu=call("tpu"), default=call("gpu"))


def _attention_of(device: parallel.Device, query: jax.Array, key: jax.Array) -> Callable[..., jax.Array]:
    """The form of attention for a device and arrays [B, positions, heads, head_size]."""
    if device.platform == "gpu" and fused_attention.cudnn_takes(query, parallel.compute_capability(device.kind)):
        return fused_attention.cudnn
    if device.platform == "tpu" and _rows_are_apart(query) and fused_attention.flash_takes(query, key):
        return fused_attention.flash
    matrix_bytes = 4 * query.shape[1] * key.shape[1]
    all_bytes = matrix_bytes * query.shape[0] * query.shape[2]
    if device.platform == "cpu":
        return _in_parts if matrix_bytes >= _LARGE_MATRIX and all_bytes > _MANY_SCORES else _whole
    return _in_large_parts if all_bytes > _MANY_SCORES_THERE else _whole


_KERNELS = (fused_attention.cudnn, fused_attention.flash)


def _rows_are_apart(query: jax.Array) -> bool:
    """Whether each device has its own rows, or can be given some."""
    return parallel.runs_on_one_device() or parallel.on_each_device(lambda *arrays: arrays, query.shape[0]) is not None


def _on_each_device(
    form: Callable[..., jax.Array],
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    is_causal: bool,
    lengths: jax.Array | None,
) -> jax.Array:
    arrays = (query, key, value) if lengths is None else (query, key, value, lengths)

    def own_rows(query: jax.Array, key: jax.Array, value: jax.Array, *lengths: jax.Array) -> jax.Array:
        return form(query, key, value, is_causal=is_causal, lengths=lengths[0] if lengths else None)

    # JAX divides cuDNN's by itself where this does not.
    return (parallel.on_each_device(own_rows, query.shape[0]) or own_rows)(*arrays)


def _whole(query: jax.Array, key: jax.Array, value: jax.Array, *, is_causal: bool, lengths: jax.Array | None):
    ends = None if lengths is None else lengths[:, None]
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    return jnp.swapaxes(plain_attention.attend(query, key, value, is_causal=is_causal, lengths=ends), 1, 2)


def _in_parts(query: jax.Array, key: jax.Array, value: jax.Array, **keywords: Any) -> jax.Array:
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    return jnp.swapaxes(plain_attention.attend_in_parts(query, key, value, _PART_SCORES, **keywords), 1, 2)


def _in_large_parts(query: jax.Array, key: jax.Array, value: jax.Array, **keywords: Any) -> jax.Array:
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    result = plain_attention.attend_in_parts(query, key, value, _PART_SCORES_THERE, forget=True, **keywords)
    return jnp.swapaxes(result, 1, 2)


class Attention(nnx.Module):
    """Multi-head attention of an image's positions to themselves or to a text.

    Scores accumulate in float32 in every compute dtype, so the published option ``upcast_attention`` changes nothing.
    """

    def __init__(
        self, channels: int, heads: int, *, context_channels: int | None = None, bias: bool = False, **kwargs: Any
    ):
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
