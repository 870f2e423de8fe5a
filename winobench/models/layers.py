"""General layers: NHWC, statistics of norms in float32 in any compute dtype, torch's attribute names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import parallel
from winobench.models import functional, winograd
from winobench.models.base import kernel_init, linear


def _call(block: nnx.Module, *inputs: Any) -> Any:
    return block(*inputs)


# Keeps a block's inputs alone for the gradient, which computes the block again. No block changes its state in a call.
_call_and_forget = nnx.remat(_call, graph_updates=False)


def caller(remat: bool) -> Callable[..., Any]:
    """The function that calls a block with its inputs. With ``remat``, its insides are computed again backward."""
    return _call_and_forget if remat else _call


class Conv2d(nnx.Module):
    """2D convolution, NHWC; ``kernel`` is [height, width, inputs, outputs].

    Where the stride equals the kernel's size, as in 1 x 1 convolutions and in patch embeddings, it is computed as a
    matrix product, which XLA runs faster than a convolution on CPUs. A kernel of `arrange_for_cpus` is computed by
    `winobench.models.winograd`.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int | tuple[tuple[int, int], tuple[int, int]] = 0,
        bias: bool = True,
        **kwargs: Any,
    ):
        self.kernel_size, self.stride = kernel_size, stride
        self.padding = ((padding, padding), (padding, padding)) if isinstance(padding, int) else padding
        self.dtype = kwargs["dtype"]
        shape = (kernel_size, kernel_size, inputs, outputs)
        self.kernel = nnx.Param(kernel_init(kwargs["rngs"].params(), shape, kwargs["param_dtype"]))
        self.bias = nnx.Param(jnp.zeros((outputs,), kwargs["param_dtype"])) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, inputs] -> [B, h', w', outputs] in the compute dtype."""
        y = self.convolve(jnp.asarray(x, self.dtype), jnp.asarray(self.kernel[...], self.dtype))
        return y if self.bias is None else y + jnp.asarray(self.bias[...], self.dtype)

    def convolve(self, x: jax.Array, kernel: jax.Array) -> jax.Array:
        """x [B, h, w, inputs], kernel [height, width, inputs, any] of one dtype -> [B, h', w', any], without a bias."""
        if kernel.shape[0] > self.kernel_size:
            return winograd.convolution(x, kernel)
        if kernel.shape[0] == self.stride and not any(map(any, self.padding)):
            return _patches(x, self.stride) @ kernel.reshape(-1, kernel.shape[-1])
        return jax.lax.conv_general_dilated(
            x, kernel, (self.stride, self.stride), self.padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    @property
    def takes_winograd(self) -> bool:
        """Whether a CPU computes it faster with a transformed kernel."""
        form = (self.kernel.shape[0], self.stride, self.padding, self.kernel.dtype, jnp.dtype(self.dtype))
        is_of_this_form = form == (3, 1, ((1, 1), (1, 1)), jnp.float32, jnp.float32)
        return is_of_this_form and winograd.pays(*self.kernel.shape[2:])

    def added_to(self, y: jax.Array, parts: Sequence[jax.Array]) -> jax.Array:
        """y [B, h, w, outputs] + the 1 x 1 convolution of parts [B, h, w, ...] that follow each other along the inputs.

        One product for each part, none of all as one array. Equal to it but for rounding.
        """
        kernel = jnp.asarray(self.kernel[...], self.dtype).reshape(-1, y.shape[-1])
        ends = np.cumsum([part.shape[-1] for part in parts])
        for part, end in zip(parts, ends, strict=True):
            y = y + jnp.asarray(part, self.dtype) @ kernel[end - part.shape[-1] : end]
        return y if self.bias is None else y + jnp.asarray(self.bias[...], self.dtype)


def arrange_for_cpus(structure: functional.Structure, arrays: Sequence[jax.Array]) -> list[jax.Array]:
    """The arrays of a network with transformed kernels for those convolutions that `winograd` computes faster."""
    network = structure.module(list(arrays))
    layers = [layer for _, layer in nnx.iter_modules(network) if isinstance(layer, Conv2d) and layer.takes_winograd]
    values = winograd.transformed([layer.kernel.get_value() for layer in layers])
    for layer, value in zip(layers, values, strict=True):
        layer.kernel.set_value(value)
    return functional.split(network)[1]


def _patches(x: jax.Array, size: int) -> jax.Array:
    """[B, h, w, channels] -> [B, h // size, w // size, size * size * channels]. A remainder is cut off."""
    if size == 1:
        return x
    batch, height, width, channels = x.shape
    rows, columns = height // size, width // size
    x = x[:, : rows * size, : columns * size].reshape(batch, rows, size, columns, size, channels)
    return x.swapaxes(2, 3).reshape(batch, rows, columns, -1)


class GroupNorm(nnx.Module):
    """Group normalisation over NHWC or NTC arrays, statistics in float32 (Wu and He, 2018, Eq. 1-7).

    Mean and variance come from one pass over the data, shifted by one value of each group: without the shift,
    E[x^2] - E[x]^2 would cancel where the mean is large against the spread. On TPUs bfloat16 is not shifted, so that
    the layer before adds up its results: their own rounding is larger than what cancels in float32.
    """

    def __init__(self, groups: int, channels: int, *, epsilon: float, dtype: Any, param_dtype: Any, rngs: Any = None):
        self.groups = groups
        self.epsilon = epsilon
        self.dtype = dtype
        self.scale = nnx.Param(jnp.ones((channels,), param_dtype))
        self.bias = nnx.Param(jnp.zeros((channels,), param_dtype))

    def __call__(self, x: jax.Array, added: jax.Array | None = None) -> jax.Array:
        """x [B, ..., channels] -> the same shape in the compute dtype.

        ``added``, [B, channels], is added to each position first: here, in float32, as part of the kernels that
        normalise. Added to the result of a convolution it is written out at full size, for cuDNN to add.
        """
        return group_norm(x, self.scale[...], self.bias[...], self.groups, self.epsilon, added).astype(self.dtype)


def group_norm(
    x: jax.Array, scale: jax.Array, bias: jax.Array, groups: int, epsilon: float, added: jax.Array | None = None
) -> jax.Array:
    """`GroupNorm` of x [B, ..., channels] as a function, in float32."""
    batch, channels = x.shape[0], x.shape[-1]
    spatial = tuple(range(1, x.ndim - 1))
    values = x.astype(jnp.float32)
    if added is not None:
        values = values + added.astype(jnp.float32).reshape(batch, *(1 for _ in spatial), channels)

    def per_channel(a):  # [B, groups] -> [B, 1, ..., channels]
        if parallel.is_traced_for("cpu"):
            # A product is written out: XLA makes no vectors of steps that read each group's number repeatedly.
            a = a @ np.repeat(np.eye(groups, dtype=np.float32), channels // groups, axis=-1)
        else:
            a = jnp.repeat(a, channels // groups, axis=-1)
        return a.reshape(batch, *(1 for _ in spatial), channels)

    def group_mean(a):  # [B, ..., channels] -> [B, groups]
        return jnp.mean(jnp.mean(a, axis=spatial).reshape(batch, groups, -1), axis=-1)

    if functional.is_rounded_on_tpu(x.dtype):
        shift = jnp.zeros((batch, groups), jnp.float32)
    else:
        # The statistics do not depend on the shift, so cutting its gradient is exact.
        shift = jax.lax.stop_gradient(values[(slice(None), *(0 for _ in spatial))])[:, :: channels // groups]
    shifted = values - per_channel(shift)
    mean = group_mean(shifted)
    variance = jnp.maximum(group_mean(jnp.square(shifted)) - jnp.square(mean), 0.0)
    scale = per_channel(jax.lax.rsqrt(variance + epsilon)) * scale.astype(jnp.float32)
    return (shifted - per_channel(mean)) * scale + bias.astype(jnp.float32)


def timestep_embedding(timesteps: jax.Array, features: int, *, flip_sin_to_cos: bool, freq_shift: float) -> jax.Array:
    """Sinusoidal embedding of timesteps [B], whole or fractional (Ho et al., 2020): [B, features] float32."""
    half = features // 2
    exponent = -math.log(10000.0) * jnp.arange(half, dtype=jnp.float32) / (half - freq_shift)
    angles = timesteps.astype(jnp.float32)[:, None] * jnp.exp(exponent)
    waves = (jnp.cos(angles), jnp.sin(angles)) if flip_sin_to_cos else (jnp.sin(angles), jnp.cos(angles))
    return jnp.pad(jnp.concatenate(waves, axis=-1), ((0, 0), (0, features % 2)))


class TimestepEmbedding(nnx.Module):
    """Two dense layers with SiLU between them."""

    def __init__(self, inputs: int, outputs: int, *, bias: bool = True, **kwargs: Any):
        kwargs = {"bias": bias, **kwargs}
        self.linear_1 = linear(inputs, outputs, **kwargs)
        self.linear_2 = linear(outputs, outputs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, inputs] -> [B, outputs]."""
        return self.linear_2(jax.nn.silu(self.linear_1(x)))


class Identity(nnx.Module):
    """Holds the place of a layer without parameters, so that numbered names match the published ones."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x."""
        return x
