"""winobench's operations for torchax: fused attention, and convolutions and norms with channels last.

torchax's versions of these are much slower. Norms keep their statistics in float32 in any dtype, as torch does.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

from winobench.models import attention, layers


def install(environment: Any) -> None:
    """Makes an environment of torchax compute with the operations of this module."""
    replaced = {
        functional.scaled_dot_product_attention: scaled_dot_product_attention,
        torch.ops.aten.convolution: convolution,
        functional.group_norm: group_norm,
        functional.layer_norm: layer_norm,
        functional.rms_norm: rms_norm,
        torch.ops.aten.upsample_nearest2d: upsample_nearest2d,
    }
    from torchax.tensor import Tensor  # `bridge.environment` has imported torchax before

    writing = Tensor.__setitem__

    def write(tensor: Any, key: Any, value: Any) -> None:
        slices = key if isinstance(key, tuple) else (key,)
        if all(isinstance(part, slice) and part.step in (None, 1) for part in slices):
            tensor._elem = written(tensor._elem, slices, environment.t2j_iso(value))
        else:
            writing(tensor, key, value)

    Tensor.__setitem__ = write
    for operation, function in replaced.items():
        environment.override_op_definition(operation, _of_tensors(environment, function))


def _of_tensors(environment: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **keywords: Any) -> Any:
        arguments, keywords = environment.t2j_iso((arguments, keywords))
        return environment.j2t_iso(function(*arguments, **keywords))

    return call


def scaled_dot_product_attention(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    attn_mask: jax.Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> jax.Array:
    """query [..., heads, T, head_size], key and value [..., heads or fewer, S, head_size] -> the shape of query."""
    if dropout_p:
        raise ValueError("attention with dropout is for training: put the module into its eval mode")
    shape = (*query.shape[:-1], value.shape[-1])
    if enable_gqa:
        key, value = (jnp.repeat(x, query.shape[-3] // x.shape[-3], axis=-3) for x in (key, value))
    if is_causal and attn_mask is not None:
        earlier = jnp.tril(jnp.ones((query.shape[-2], key.shape[-2]), bool))
        attn_mask = attn_mask & earlier if attn_mask.dtype == jnp.bool_ else jnp.where(earlier, attn_mask, -jnp.inf)
        is_causal = False
    if attn_mask is not None:
        attn_mask = _four_axes(attn_mask, query.ndim, query.shape[:-3])
    query, key, value = (_four_axes(x, x.ndim, x.shape[:-3]) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    width = max(query.shape[-1], value.shape[-1])
    arrays = (_padded(jnp.swapaxes(x, 1, 2), width) for x in (query, key, value))
    result = attention.dot_product_attention(*arrays, is_causal=is_causal, mask=attn_mask, scale=scale)
    return jnp.swapaxes(result[..., : shape[-1]], 1, 2).reshape(shape)


def _four_axes(array: jax.Array, axes: int, leading: Sequence[int]) -> jax.Array:
    """An array [..., a, b, c] of ``axes`` axes as [rows, a, b, c]. Missing axes have the length 1."""
    array = array.reshape((1,) * (axes - array.ndim) + array.shape)
    if axes < 4:
        return array.reshape((*array.shape[:-2], *(1 for _ in range(4 - axes)), *array.shape[-2:]))
    if axes > 4:
        array = jnp.broadcast_to(array, (*leading, *array.shape[-3:]))
    return array.reshape((-1, *array.shape[-3:]))


def _padded(array: jax.Array, width: int) -> jax.Array:
    more = width - array.shape[-1]
    return jnp.pad(array, ((0, 0), (0, 0), (0, 0), (0, more))) if more else array


def convolution(x: jax.Array, weight: jax.Array, bias: jax.Array | None, *geometry: Any) -> jax.Array:
    """x [B, inputs, ...], weight [outputs, inputs / groups, ...] -> [B, outputs, ...], of one to three dimensions.

    A transposed one has weight [inputs, outputs / groups, ...]. ``geometry`` has the other arguments in torch's order.
    """
    stride, padding, dilation, transposed, output_padding, groups = geometry
    x = jnp.moveaxis(x, 1, -1)
    kernel_size = weight.shape[2:]
    ones = (1,) * len(kernel_size)
    if transposed:
        # Each group's kernel, [inputs / groups, outputs / groups, ...], for a convolution of the spread-out inputs.
        weight = jnp.flip(weight, range(2, weight.ndim)).reshape(groups, -1, *weight.shape[1:])
        weight = jnp.moveaxis(weight, 0, 1).reshape(weight.shape[1], -1, *kernel_size)
        kernel = jnp.moveaxis(weight, (0, 1), (-2, -1))
        ends = [d * (k - 1) - p for d, k, p in zip(dilation, kernel_size, padding, strict=True)]
        pads = [(end, end + more) for end, more in zip(ends, output_padding, strict=True)]
        spread, stride = stride, ones
    else:
        kernel = kernel_of(weight)
        pads, spread = [(p, p) for p in padding], ones
    if groups == 1 and not transposed and tuple(stride) == kernel_size and not any(padding) and set(dilation) == {1}:
        y = _of_patches(x, kernel)
    elif groups > 1 and kernel.shape[-2] > 1 and set(kernel_size) == {1} and set(stride) == {1} and not any(padding):
        y = _of_groups(x, kernel, groups)
    else:
        space = "DHW"[-len(kernel_size) :]
        convolve = functools.partial(
            jax.lax.conv_general_dilated,
            window_strides=stride,
            padding=pads,
            lhs_dilation=spread,
            rhs_dilation=dilation,
            dimension_numbers=(f"N{space}C", f"{space}IO", f"N{space}C"),
        )
        if groups == 1 or kernel.shape[-2] == 1:
            y = convolve(x, kernel, feature_group_count=groups)
        else:
            parts = (jnp.split(array, groups, axis=-1) for array in (x, kernel))
            y = jnp.concatenate([convolve(*pair) for pair in zip(*parts, strict=True)], axis=-1)
    return jnp.moveaxis(y if bias is None else y + bias, -1, 1)


def kernel_of(weight: Any) -> Any:
    """[outputs, inputs, ...] -> [..., inputs, outputs], as in `winobench.models.layers.Conv2d`. Takes any arrays."""
    return weight.transpose(*range(2, weight.ndim), 1, 0)


def weight_of(kernel: Any) -> Any:
    """The inverse of `kernel_of`. XLA removes the two after each other."""
    return kernel.transpose(-1, -2, *range(kernel.ndim - 2))


def _of_patches(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """A convolution of patches that do not overlap, as a matrix product. It drops incomplete patches."""
    *sizes, inputs, outputs = kernel.shape
    counts = [n // size for n, size in zip(x.shape[1:-1], sizes, strict=True)]
    x = x[:, *(slice(n * size) for n, size in zip(counts, sizes, strict=True))]
    if math.prod(sizes) > 1:
        x = x.reshape(x.shape[0], *(n for pair in zip(counts, sizes, strict=True) for n in pair), inputs)
        axes = range(1, 2 * len(sizes) + 1)
        x = x.transpose(0, *axes[::2], *axes[1::2], 2 * len(sizes) + 1).reshape(x.shape[0], *counts, -1)
    return x @ kernel.reshape(-1, outputs)


def _of_groups(x: jax.Array, kernel: jax.Array, groups: int) -> jax.Array:
    """A convolution of single pixels in groups, as matrix products.

    XLA (jaxlib 0.10.2) divides a convolution in groups among devices wrongly, unless each group has one input.
    """
    kernel = kernel.reshape(kernel.shape[-2], groups, -1)
    y = jnp.einsum("...gi,igo->...go", x.reshape(*x.shape[:-1], groups, -1), kernel)
    return y.reshape(*x.shape[:-1], -1)


def group_norm(
    x: jax.Array,
    num_groups: int,
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """x [B, channels, ...], statistics in float32."""
    weight = jnp.ones(x.shape[1]) if weight is None else weight
    bias = jnp.zeros(x.shape[1]) if bias is None else bias
    return jnp.moveaxis(layers.group_norm(jnp.moveaxis(x, 1, -1), weight, bias, num_groups, eps), -1, 1).astype(x.dtype)


def layer_norm(
    x: jax.Array,
    normalized_shape: Sequence[int],
    weight: jax.Array | None = None,
    bias: jax.Array | None = None,
    eps: float = 1e-5,
) -> jax.Array:
    """Over the last axes, statistics in float32."""
    axes = tuple(range(-len(normalized_shape), 0))
    values = x.astype(jnp.float32)
    values = values - jnp.mean(values, axis=axes, keepdims=True)
    y = values * jax.lax.rsqrt(jnp.mean(jnp.square(values), axis=axes, keepdims=True) + eps)
    y = y if weight is None else y * weight.astype(jnp.float32)
    return (y if bias is None else y + bias.astype(jnp.float32)).astype(x.dtype)


def rms_norm(
    x: jax.Array, normalized_shape: Sequence[int], weight: jax.Array | None = None, eps: float | None = None
) -> jax.Array:
    """Over the last axes, statistics in float32."""
    values = x.astype(jnp.float32)
    square = jnp.mean(jnp.square(values), axis=tuple(range(-len(normalized_shape), 0)), keepdims=True)
    y = values * jax.lax.rsqrt(square + (jnp.finfo(jnp.float32).eps if eps is None else eps))
    return (y if weight is None else y * weight.astype(jnp.float32)).astype(x.dtype)


def upsample_nearest2d(x: jax.Array, output_size: Sequence[int], *scales: float | None) -> jax.Array:
    """x [B, channels, h, w] -> [B, channels, *output_size], from the nearest positions."""
    for axis, (size, scale) in enumerate(zip(output_size, scales or (None, None), strict=True), start=2):
        length = x.shape[axis]
        times, left = divmod(size, length)
        if not left and scale in (None, times):
            x = jnp.repeat(x, times, axis=axis)
        else:
            step = np.float32(length / size if scale is None else 1 / scale)
            x = jnp.take(x, np.minimum(np.arange(size) * step, length - 1).astype(int), axis=axis)
    return x


def written(array: jax.Array, slices: tuple[slice, ...], value: Any) -> jax.Array:
    """``array.at[slices].set(value)``, by concatenation.

    With a dimension of length 1, XLA for CPUs (jaxlib 0.10.2) writes a slice over numbers that it reads later.
    """
    axis = next((axis for axis, part in enumerate(slices) if part != slice(None)), None)
    if axis is None:
        return jnp.broadcast_to(value, array.shape).astype(array.dtype)
    start, stop, _ = slices[axis].indices(array.shape[axis])
    before, inside, after = jnp.split(array, (start, max(start, stop)), axis)
    others = tuple(slice(None) if number == axis else part for number, part in enumerate(slices))
    return jnp.concatenate([before, written(inside, others, value), after], axis)
