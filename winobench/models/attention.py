"""Softmax attention, and multi-head attention over the positions of an image. Scores and softmax are float32."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import PartitionSpec

from winobench import parallel
from winobench.models import fused_attention, plain_attention
from winobench.models.base import linear

# Attention on CPUs, in bytes of float32 scores. Without masks, matrices of one head from the first size on go by keys,
# in parts of the second.
_LARGE_BY_KEYS = 1 << 16
_PART_BY_KEYS = 1 << 19
# All others are worth taking apart from the first size on, if all heads together have more than the second, above which
# memory is given back to the system after each use. A part has this many queries of a head.
_LARGE_MATRIX = 1 << 20
_MANY_SCORES = 1 << 25
_PART_ROWS = 128
# The same on accelerators, where no fused kernel takes a shape: more bytes than the first fill their memory, and a part
# has at most the second.
_MANY_SCORES_THERE = 1 << 29
_PART_SCORES_THERE = 1 << 28


def dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    is_causal: bool = False,
    lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    scale: float | None = None,
) -> jax.Array:
    """Softmax attention with scores and softmax in float32.

    Runs as a fused kernel where there is one for the device, the dtype and the shape (`winobench.models.
    fused_attention`), otherwise as plain products (`winobench.models.plain_attention`), in parts where there are many
    scores. The device is the mesh's (`winobench.parallel.traced_device`), or the one that the function is lowered for.
    XLA cannot divide kernels and loops over parts among devices: where several share the rows, as in a training step,
    each is given its own (`winobench.parallel.on_each_device`).

    query [B, T, heads, head_size], key and value [B, S, heads, head_size] -> [B, T, heads, head_size] in the dtype of
    ``query``. ``lengths`` are int32 [B], at least 1: no query attends to keys from this position on, which are padding.
    ``mask``, [B or 1, heads or 1, T or 1, S], is true where a query attends to a key, or is added to the scores. The
    result of a query that attends to no key is 0. A mask replaces ``is_causal`` and ``lengths``. Scores
    are multiplied by ``scale``, by default head_size^-0.5.
    """
    attends = None
    if mask is not None:
        attends = jnp.any(mask if mask.dtype == jnp.bool_ else mask > -jnp.inf, axis=-1, keepdims=True).swapaxes(1, 2)
        if mask.shape[2] == 1:
            # All queries attend, or none.
            value, attends = jnp.where(attends, value, 0), None
    result = _dispatched(_Options(is_causal, scale), query, key, value, lengths, mask)
    return result if attends is None else jnp.where(attends, result, 0)


class _Options(NamedTuple):
    is_causal: bool
    scale: float | None


def _dispatched(options: _Options, *arrays: Any) -> jax.Array:
    """Attention by the form for the device. Arrays: query, key, value, lengths, mask."""
    query, key, _, lengths, mask = arrays
    is_masked = options.is_causal or lengths is not None or mask is not None
    device = parallel.traced_device()
    if device is not None:
        form = _attention_of(device, query, key, mask, is_masked)
        if form is not _whole and not parallel.runs_on_one_device():
            return _on_each_device(form, options, *arrays)
        return _call(form, options, *arrays)
    forms = {
        platform: _attention_of(parallel.Device(platform), query, key, mask, is_masked)
        for platform in ("cpu", "tpu", "gpu")
    }
    if len(set(forms.values())) == 1:
        return _call(forms["cpu"], options, *arrays)
    cpu, tpu, gpu = (functools.partial(_call, form, options) for form in forms.values())
    return jax.lax.platform_dependent(*arrays, cpu=cpu, tpu=tpu, default=gpu)


def _call(form: Callable[..., jax.Array], options: _Options, *arrays: Any) -> jax.Array:
    query, key, value, lengths, mask = arrays
    return form(query, key, value, lengths=lengths, mask=mask, **options._asdict())


def _attention_of(
    device: parallel.Device,
    query: jax.Array,
    key: jax.Array,
    mask: jax.Array | None = None,
    is_masked: bool = False,
) -> Callable[..., jax.Array]:
    """The form of attention for a device and arrays [B, positions, heads, head_size]."""
    if device.platform == "gpu" and fused_attention.cudnn_takes(query, parallel.compute_capability(device.kind), mask):
        return fused_attention.cudnn
    if device.platform == "tpu" and _rows_are_apart(query) and fused_attention.flash_takes(query, key, mask):
        return fused_attention.flash
    matrix_bytes = 4 * query.shape[1] * key.shape[1]
    all_bytes = matrix_bytes * query.shape[0] * query.shape[2]
    if device.platform == "cpu":
        by_keys = matrix_bytes >= _LARGE_BY_KEYS and query.dtype == jnp.float32 and not is_masked
        if by_keys and _rows_are_apart(query):
            return _by_keys
        return _in_parts if matrix_bytes >= _LARGE_MATRIX and all_bytes > _MANY_SCORES else _whole
    return _in_large_parts if all_bytes > _MANY_SCORES_THERE else _whole


def _rows_are_apart(query: jax.Array) -> bool:
    """Whether each device has its own rows, or can be given some."""
    return parallel.runs_on_one_device() or parallel.on_each_device(lambda *arrays: arrays, query.shape[0]) is not None


def _on_each_device(form: Callable[..., jax.Array], options: _Options, *arrays: Any) -> jax.Array:
    rows = arrays[0].shape[0]
    arrays = tuple(array if array is None else jnp.broadcast_to(array, (rows, *array.shape[1:])) for array in arrays)
    own_rows = functools.partial(_call, form, options)
    if form is fused_attention.cudnn and (axes := parallel.shared_axes()):
        return _by_heads(own_rows, axes, *arrays)
    # JAX divides cuDNN's by itself where this does not.
    return (parallel.on_each_device(own_rows, rows) or own_rows)(*arrays)


def _by_heads(function: Callable[..., jax.Array], axes: tuple[str, ...], *arrays: Any) -> jax.Array:
    """Attention of devices that share a part of the rows: each takes its heads, or all where they cannot be divided.

    JAX cannot divide cuDNN's kernel where an axis of the mesh is manual already.
    """
    query, key, _, _, mask = arrays
    sizes = jax.sharding.get_abstract_mesh().shape
    parts, whole = math.prod(sizes[axis] for axis in axes), PartitionSpec()
    divides = query.shape[2] % parts == 0 and key.shape[2] % parts == 0
    heads = PartitionSpec(None, None, axes) if divides else whole
    of_mask = PartitionSpec(None, axes) if divides and mask is not None and mask.shape[1] > 1 else whole
    in_specs = (heads, heads, heads, whole, of_mask)
    split = jax.shard_map(function, in_specs=in_specs, out_specs=heads, axis_names={*axes}, check_vma=False)
    return split(*arrays)


def _whole(query: jax.Array, key: jax.Array, value: jax.Array, *, lengths: jax.Array | None, **keywords: Any):
    ends = None if lengths is None else lengths[:, None]
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    return jnp.swapaxes(plain_attention.attend(query, key, value, lengths=ends, **keywords), 1, 2)


def _by_keys(*arrays: jax.Array, **keywords: Any) -> jax.Array:
    return _apart(_PART_BY_KEYS, *arrays, by_keys=True, **keywords)


def _in_parts(query: jax.Array, key: jax.Array, value: jax.Array, **keywords: Any) -> jax.Array:
    return _apart(4 * _PART_ROWS * key.shape[1], query, key, value, **keywords)


def _in_large_parts(*arrays: jax.Array, **keywords: Any) -> jax.Array:
    return _apart(_PART_SCORES_THERE, *arrays, **keywords)


def _apart(part_bytes: int, query: jax.Array, key: jax.Array, value: jax.Array, **keywords: Any) -> jax.Array:
    query, key, value = (jnp.swapaxes(x, 1, 2) for x in (query, key, value))
    return jnp.swapaxes(plain_attention.attend_in_parts(query, key, value, part_bytes, **keywords), 1, 2)


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

        They depend on the context alone, so a text's can be kept and passed to ``attend`` many times.
        """
        return self._split(self.to_k(context)), self._split(self.to_v(context))

    def attend(self, x: jax.Array, keys: jax.Array, values: jax.Array, rows: jax.Array | None = None) -> jax.Array:
        """x [B, T, channels] and the results of ``keys_values`` -> [B, T, channels].

        With rows, int32 [N], there are N keys and values, and queries from those rows of x: [N, T, channels].
        """
        queries = self.to_q(x)
        y = dot_product_attention(self._split(queries if rows is None else queries[rows]), keys, values)
        return self.to_out[0](y.reshape(*y.shape[:2], -1))

    def __call__(self, x: jax.Array, context: jax.Array | None = None) -> jax.Array:
        """x [B, T, channels], context [B, S, context_channels] or None for x itself -> [B, T, channels]."""
        return self.attend(x, *self.keys_values(x if context is None else context))

    def _split(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:-1], self.heads, -1)
