"""Layers shared by the networks: NHWC, float32 statistics, torch's attribute names.

Compute dtype (``dtype``) and parameter dtype (``param_dtype``) are separate everywhere. Statistics of norms, attention
scores and softmax are float32 whatever the compute dtype.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.models.config import NetworkConfig

# torch's default for Linear and Conv weights, uniform within 1 / sqrt(fan_in): training from scratch starts where the
# published training code starts.
_KERNEL_INIT = nnx.initializers.variance_scaling(1.0 / 3.0, "fan_in", "uniform")


# Major compute capabilities: cuDNN's fused attention begins with the first, its heads above 128 with the second.
_AMPERE = 8
_HOPPER = 9

# Attention on CPUs, in bytes of float32 scores: matrices of one head from the first size on are worth taking apart, if
# all heads together have more than the second, above which memory is given back to the system after each use; a part
# has at most the third, which stays in the caches.
_LARGE_MATRIX = 1 << 20
_MANY_SCORES = 1 << 25
_PART_SCORES = 1 << 22


class Network(nnx.Module):
    """Base of the networks that have a published ``config.json`` and weight files.

    Attributes:
      config_class: the config's class.
      weights_name: stem of the weight file in a published folder.
      shares_rows: whether a denoiser computes what lies ahead of the texts once for several texts about one sample: it
        then takes ``sample_rows``, int32 [N], the row of its other inputs that each of N texts belongs to.
      lora_targets: name of a kind of adapted layers -> pattern of their dotted names; empty where LoRA is not for it.
      keep_unquantized: pattern of the dotted names of layers that stay as they are where the others go to 8 bits.
      config: what the network was built from.
      dtype: compute dtype.
    """

    config_class: ClassVar[type[NetworkConfig]]
    weights_name: ClassVar[str] = "diffusion_pytorch_model"
    shares_rows: bool = False
    lora_targets: ClassVar[Mapping[str, re.Pattern[str]]] = {}
    keep_unquantized: ClassVar[re.Pattern[str]] = re.compile("")

    @classmethod
    def from_pretrained(
        cls,
        source: Any,
        *,
        subfolder: str | None = None,
        dtype: Any = jnp.float32,
        variant: str | None = None,
        revision: str | None = None,
        allow_pickle: bool = False,
    ) -> Self:
        """Loads a published network.

        Args:
          source: a name in `winobench.registry.MODELS`, a local folder, or a hub id.
          subfolder: the network's folder within a pipeline, e.g. ``"unet"``.
          dtype: dtype of the parameters and of the computation.
          variant: suffix of the weight file, e.g. ``"fp16"``.
          revision: branch, tag or commit on the hub.
          allow_pickle: accept ``.bin`` files, read with a restricted unpickler.

        Raises:
          InputError: if the source, its config or its weights cannot be used.
        """
        from winobench import checkpoints

        return checkpoints.load_model(
            cls,
            source,
            subfolder=subfolder,
            dtype=dtype,
            variant=variant,
            revision=revision,
            allow_pickle=allow_pickle,
        )


def linear(inputs: int, outputs: int, *, bias: bool = True, dtype: Any, param_dtype: Any, rngs: nnx.Rngs) -> nnx.Linear:
    """A dense layer on the last axis; ``kernel`` is [inputs, outputs]."""
    return nnx.Linear(
        inputs, outputs, use_bias=bias, kernel_init=_KERNEL_INIT, dtype=dtype, param_dtype=param_dtype, rngs=rngs
    )


def layer_norm(features: int, *, epsilon: float = 1e-5, dtype: Any, param_dtype: Any, rngs: nnx.Rngs) -> nnx.LayerNorm:
    """Layer norm over the last axis with the two-pass variance; statistics in float32."""
    return nnx.LayerNorm(
        features, epsilon=epsilon, use_fast_variance=False, dtype=dtype, param_dtype=param_dtype, rngs=rngs
    )


class Conv2d(nnx.Module):
    """2D convolution, NHWC; ``kernel`` is [height, width, inputs, outputs].

    Where the stride equals the kernel's size, as in 1 x 1 convolutions and in patch embeddings, it is computed as a
    matrix product, which XLA runs faster than a convolution on CPUs.
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
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        self.stride = stride
        self.padding = ((padding, padding), (padding, padding)) if isinstance(padding, int) else padding
        self.dtype = dtype
        shape = (kernel_size, kernel_size, inputs, outputs)
        self.kernel = nnx.Param(_KERNEL_INIT(rngs.params(), shape, param_dtype))
        self.bias = nnx.Param(jnp.zeros((outputs,), param_dtype)) if bias else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, inputs] -> [B, h', w', outputs] in the compute dtype."""
        x, kernel = jnp.asarray(x, self.dtype), jnp.asarray(self.kernel[...], self.dtype)
        if kernel.shape[0] == self.stride and not any(map(any, self.padding)):
            y = _patches(x, self.stride) @ kernel.reshape(-1, kernel.shape[-1])
        else:
            y = jax.lax.conv_general_dilated(
                x, kernel, (self.stride, self.stride), self.padding, dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
        return y if self.bias is None else y + jnp.asarray(self.bias[...], self.dtype)


def _patches(x: jax.Array, size: int) -> jax.Array:
    """[B, h, w, channels] -> [B, h // size, w // size, size * size * channels]; what is left over is cut off."""
    if size == 1:
        return x
    batch, height, width, channels = x.shape
    rows, columns = height // size, width // size
    x = x[:, : rows * size, : columns * size].reshape(batch, rows, size, columns, size, channels)
    return x.swapaxes(2, 3).reshape(batch, rows, columns, -1)


class GroupNorm(nnx.Module):
    """Group normalisation over NHWC or NTC arrays, statistics in float32 (Wu and He, 2018, Eq. 1-7).

    Mean and variance come from one pass over the data, shifted by one value of each group: without the shift,
    E[x^2] - E[x]^2 would cancel where the mean is large against the spread.
    """

    def __init__(self, groups: int, channels: int, *, epsilon: float, dtype: Any, param_dtype: Any):
        self.groups = groups
        self.epsilon = epsilon
        self.dtype = dtype
        self.scale = nnx.Param(jnp.ones((channels,), param_dtype))
        self.bias = nnx.Param(jnp.zeros((channels,), param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, ..., channels] -> the same shape in the compute dtype."""
        batch, channels = x.shape[0], x.shape[-1]
        spatial = tuple(range(1, x.ndim - 1))
        values = x.astype(jnp.float32)

        def per_channel(a):  # [B, groups] -> [B, 1, ..., channels]
            a = jnp.repeat(a, channels // self.groups, axis=-1)
            return a.reshape(batch, *(1 for _ in spatial), channels)

        def group_mean(a):  # [B, ..., channels] -> [B, groups]
            return jnp.mean(jnp.mean(a, axis=spatial).reshape(batch, self.groups, -1), axis=-1)

        # The statistics do not depend on the shift, so cutting its gradient is exact.
        shift = jax.lax.stop_gradient(values[(slice(None), *(0 for _ in spatial))])[:, :: channels // self.groups]
        shifted = values - per_channel(shift)
        mean = group_mean(shifted)
        variance = jnp.maximum(group_mean(jnp.square(shifted)) - jnp.square(mean), 0.0)
        scale = per_channel(jax.lax.rsqrt(variance + self.epsilon)) * self.scale[...].astype(jnp.float32)
        y = (shifted - per_channel(mean)) * scale + self.bias[...].astype(jnp.float32)
        return y.astype(self.dtype)


def timestep_embedding(timesteps: jax.Array, features: int, *, flip_sin_to_cos: bool, freq_shift: float) -> jax.Array:
    """Sinusoidal embedding of timesteps (Ho et al., 2020).

    Args:
      timesteps: [B], whole or fractional.
      features: width of the embedding; the last feature is zero where it is odd.
      flip_sin_to_cos: cosines first.
      freq_shift: subtracted from the number of frequencies in the exponent's denominator.

    Returns:
      [B, features] float32.
    """
    half = features // 2
    exponent = -math.log(10000.0) * jnp.arange(half, dtype=jnp.float32) / (half - freq_shift)
    angles = timesteps.astype(jnp.float32)[:, None] * jnp.exp(exponent)
    waves = (jnp.cos(angles), jnp.sin(angles)) if flip_sin_to_cos else (jnp.sin(angles), jnp.cos(angles))
    return jnp.pad(jnp.concatenate(waves, axis=-1), ((0, 0), (0, features % 2)))


class TimestepEmbedding(nnx.Module):
    """Two dense layers with SiLU between them."""

    def __init__(self, inputs: int, outputs: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.linear_1 = linear(inputs, outputs, **kwargs)
        self.linear_2 = linear(outputs, outputs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, inputs] -> [B, outputs]."""
        return self.linear_2(jax.nn.silu(self.linear_1(x)))


class ResnetBlock2D(nnx.Module):
    """Two normalised convolutions around a residual, with the time embedding added between them.

    Args:
      inputs: channels of the input.
      outputs: channels of the output; a 1 x 1 shortcut is added where they differ.
      time_channels: width of the time embedding, None for a block without one.
      groups: groups of the norms.
      epsilon: of the norms (1e-5 in UNets as published, 1e-6 in autoencoders).
      output_scale: the sum of both branches is divided by it.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        time_channels: int | None,
        groups: int,
        epsilon: float,
        output_scale: float = 1.0,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype}
        self.output_scale = output_scale
        self.norm1 = GroupNorm(groups, inputs, epsilon=epsilon, **kwargs)
        self.conv1 = Conv2d(inputs, outputs, 3, padding=1, rngs=rngs, **kwargs)
        self.time_emb_proj = None if time_channels is None else linear(time_channels, outputs, rngs=rngs, **kwargs)
        self.norm2 = GroupNorm(groups, outputs, epsilon=epsilon, **kwargs)
        self.conv2 = Conv2d(outputs, outputs, 3, padding=1, rngs=rngs, **kwargs)
        self.conv_shortcut = None if inputs == outputs else Conv2d(inputs, outputs, 1, rngs=rngs, **kwargs)

    def __call__(self, x: jax.Array, time: jax.Array | None = None) -> jax.Array:
        """x [B, h, w, inputs], time [B, time_channels] -> [B, h, w, outputs]."""
        y = self.conv1(jax.nn.silu(self.norm1(x)))
        if self.time_emb_proj is not None:
            y = y + self.time_emb_proj(jax.nn.silu(time))[:, None, None, :]
        y = self.conv2(jax.nn.silu(self.norm2(y)))
        shortcut = x if self.conv_shortcut is None else self.conv_shortcut(x)
        return (shortcut + y) / self.output_scale


class Downsample2D(nnx.Module):
    """Halves height and width with a convolution of stride 2.

    ``padding`` 1 pads all four sides (UNet); 0 pads below and to the right only (autoencoder).
    """

    def __init__(self, channels: int, *, padding: int, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        sides = (padding, padding) if padding else (0, 1)
        self.conv = Conv2d(
            channels, channels, 3, stride=2, padding=(sides, sides), dtype=dtype, param_dtype=param_dtype, rngs=rngs
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, channels] -> [B, ceil(h / 2), ceil(w / 2), channels] with padding 1, floor with padding 0."""
        return self.conv(x)


class Upsample2D(nnx.Module):
    """Doubles height and width (nearest neighbour), then a 3 x 3 convolution."""

    def __init__(self, channels: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.conv = Conv2d(channels, channels, 3, padding=1, dtype=dtype, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: jax.Array, size: tuple[int, int] | None = None) -> jax.Array:
        """x [B, h, w, channels] -> [B, 2h, 2w, channels], or [B, *size, channels] if a size is given."""
        batch, height, width, channels = x.shape
        if size is None or size == (2 * height, 2 * width):
            x = jnp.broadcast_to(x[:, :, None, :, None, :], (batch, height, 2, width, 2, channels))
            x = x.reshape(batch, 2 * height, 2 * width, channels)
        else:
            # Odd sizes on the way down come back as they were.
            x = x[:, np.arange(size[0]) * height // size[0]][:, :, np.arange(size[1]) * width // size[1]]
        return self.conv(x)


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


class GEGLU(nnx.Module):
    """A dense layer whose second half gates its first through GELU (Shazeer, 2020)."""

    def __init__(self, inputs: int, outputs: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.proj = linear(inputs, 2 * outputs, dtype=dtype, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., inputs] -> [..., outputs]."""
        values, gate = jnp.split(self.proj(x), 2, axis=-1)
        return values * jax.nn.gelu(gate, approximate=False)


class Identity(nnx.Module):
    """Holds the place of a layer without parameters, so that numbered names match the published ones."""

    def __call__(self, x: jax.Array) -> jax.Array:
        """Returns x."""
        return x


class FeedForward(nnx.Module):
    """GEGLU to four times the width and back."""

    def __init__(self, channels: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.net = nnx.List(
            [GEGLU(channels, 4 * channels, **kwargs), Identity(), linear(4 * channels, channels, **kwargs)]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., channels] -> [..., channels]."""
        for layer in self.net:
            x = layer(x)
        return x


class BasicTransformerBlock(nnx.Module):
    """Self-attention, cross-attention to the text, feed-forward; each after a layer norm and around a residual."""

    def __init__(
        self, channels: int, heads: int, context_channels: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.norm1 = layer_norm(channels, **kwargs)
        self.attn1 = Attention(channels, heads, **kwargs)
        self.norm2 = layer_norm(channels, **kwargs)
        self.attn2 = Attention(channels, heads, context_channels=context_channels, **kwargs)
        self.norm3 = layer_norm(channels, **kwargs)
        self.ff = FeedForward(channels, **kwargs)

    def __call__(self, x: jax.Array, context: jax.Array, rows: jax.Array | None = None) -> jax.Array:
        """x [B, T, channels], context [B, S, context_channels] -> [B, T, channels].

        With rows, int32 [N], context is [N, S, context_channels] and meets those rows of x: [N, T, channels].
        """
        x = x + self.attn1(self.norm1(x))
        seen = self.attn2.attend(self.norm2(x), *self.attn2.keys_values(context), rows)
        x = (x if rows is None else x[rows]) + seen
        return x + self.ff(self.norm3(x))


class Transformer2DModel(nnx.Module):
    """Transformer blocks over the positions of a feature map, around a residual.

    Args:
      channels: of the feature map and within the blocks.
      heads: number of attention heads.
      layers: number of blocks.
      context_channels: width of the text states.
      groups: groups of the entry norm, whose epsilon is 1e-6 in every published model.
      linear_projection: the entry and exit projections are dense layers (SD 2.x) or 1 x 1 convolutions (SD 1.x); the
        arithmetic is the same, the parameters' shapes differ.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        layers: int,
        context_channels: int,
        *,
        groups: int,
        linear_projection: bool,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}

        def projection():
            return (
                linear(channels, channels, **kwargs) if linear_projection else Conv2d(channels, channels, 1, **kwargs)
            )

        self.norm = GroupNorm(groups, channels, epsilon=1e-6, dtype=dtype, param_dtype=param_dtype)
        self.proj_in = projection()
        self.transformer_blocks = nnx.List(
            [BasicTransformerBlock(channels, heads, context_channels, **kwargs) for _ in range(layers)]
        )
        self.proj_out = projection()

    def __call__(self, x: jax.Array, context: jax.Array, rows: jax.Array | None = None) -> jax.Array:
        """x [B, h, w, channels], context [B, S, context_channels] -> [B, h, w, channels].

        With rows, int32 [N], context is [N, S, context_channels] and meets those rows of x: [N, h, w, channels]. What
        comes before the first text is seen is computed once for each row of x.
        """
        batch, height, width, channels = x.shape
        y = self.proj_in(self.norm(x)).reshape(batch, height * width, channels)
        first, *others = self.transformer_blocks
        y = first(y, context, rows)
        for block in others:
            y = block(y, context)
        return (x if rows is None else x[rows]) + self.proj_out(y.reshape(-1, height, width, channels))
