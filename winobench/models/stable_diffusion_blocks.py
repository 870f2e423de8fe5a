"""The blocks of Stable Diffusion's UNet and autoencoder: NHWC, torch's attribute names."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import parallel
from winobench.models import fused_geglu
from winobench.models.attention import Attention
from winobench.models.base import layer_norm, linear
from winobench.models.layers import Conv2d, GroupNorm, Identity
from winobench.models.row_groups import group_size, map_in_groups


class ResnetBlock2D(nnx.Module):
    """Two normalised convolutions around a residual, with the time embedding added between them.

    The sum of both branches is divided by ``output_scale``. Epsilons are 1e-5 in UNets, 1e-6 in autoencoders.
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
        **kwargs: Any,
    ):
        self.output_scale = output_scale
        self.norm1 = GroupNorm(groups, inputs, epsilon=epsilon, **kwargs)
        self.conv1 = Conv2d(inputs, outputs, 3, padding=1, **kwargs)
        self.time_emb_proj = None if time_channels is None else linear(time_channels, outputs, **kwargs)
        self.norm2 = GroupNorm(groups, outputs, epsilon=epsilon, **kwargs)
        self.conv2 = Conv2d(outputs, outputs, 3, padding=1, **kwargs)
        self.conv_shortcut = None if inputs == outputs else Conv2d(inputs, outputs, 1, **kwargs)

    def __call__(self, x: jax.Array, time: jax.Array | None = None, skip: jax.Array | None = None) -> jax.Array:
        """x [B, h, w, inputs], time [B, time_channels] -> [B, h, w, outputs].

        With a skip, the input is x and it, one after the other along the channels.
        """
        parts = (x,) if skip is None else (x, skip)
        x = jnp.concatenate(parts, axis=-1)
        y = self.conv1(jax.nn.silu(self.norm1(x)))
        added = None if self.time_emb_proj is None else self.time_emb_proj(jax.nn.silu(time))
        y = self.conv2(jax.nn.silu(self.norm2(y, added)))
        if self.conv_shortcut is not None and len(parts) > 1 and parallel.is_traced_for("gpu"):
            # These products add to an existing array. The norm's input need not be written as one array for them.
            return self.conv_shortcut.added_to(y, parts) / self.output_scale
        shortcut = x if self.conv_shortcut is None else self.conv_shortcut(x)
        return (shortcut + y) / self.output_scale


class Downsample2D(nnx.Module):
    """Halves height and width with a convolution of stride 2.

    ``padding`` 1 pads all four sides (UNet); 0 pads below and to the right only (autoencoder).
    """

    def __init__(self, channels: int, *, padding: int, **kwargs: Any):
        sides = (padding, padding) if padding else (0, 1)
        self.conv = Conv2d(channels, channels, 3, stride=2, padding=(sides, sides), **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, channels] -> [B, ceil(h / 2), ceil(w / 2), channels] with padding 1, floor with padding 0."""
        return self.conv(x)


class Upsample2D(nnx.Module):
    """Doubles height and width (nearest neighbour), then a 3 x 3 convolution."""

    def __init__(self, channels: int, **kwargs: Any):
        self.conv = Conv2d(channels, channels, 3, padding=1, **kwargs)

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


class GEGLU(nnx.Module):
    """A dense layer whose second half gates its first through GELU (Shazeer, 2020)."""

    def __init__(self, inputs: int, outputs: int, **kwargs: Any):
        self.proj = linear(inputs, 2 * outputs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., inputs] -> [..., outputs], as one kernel where there is one (`winobench.models.fused_geglu`)."""
        # An adapted layer has its own product next to this one.
        if parallel.is_traced_for("gpu") and parallel.runs_on_one_device() and type(self.proj) is nnx.Linear:
            capability = parallel.compute_capability(parallel.traced_device().kind)
            arrays = tuple(jnp.asarray(a, self.proj.dtype) for a in (x, self.proj.kernel[...], self.proj.bias[...]))
            if fused_geglu.takes(*arrays[:2], capability):
                return fused_geglu.fused(*arrays)
        return fused_geglu.gated(self.proj(x))


class FeedForward(nnx.Module):
    """GEGLU to four times the width and back."""

    def __init__(self, channels: int, **kwargs: Any):
        self.net = nnx.List(
            [GEGLU(channels, 4 * channels, **kwargs), Identity(), linear(4 * channels, channels, **kwargs)]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., channels] -> [..., channels]."""
        for layer in self.net:
            x = layer(x)
        return x


class BasicTransformerBlock(nnx.Module):
    """Self-attention, cross-attention to the text, feed-forward. Each after a layer norm and around a residual."""

    def __init__(self, channels: int, heads: int, context_channels: int, **kwargs: Any):
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
        return self.with_text(self.with_itself(x), context, rows)

    def with_itself(self, x: jax.Array) -> jax.Array:
        """The part before the text is seen."""
        return x + self.attn1(self.norm1(x))

    def with_text(self, x: jax.Array, context: jax.Array, rows: jax.Array | None = None) -> jax.Array:
        """The part from the text on."""
        seen = self.attn2.attend(self.norm2(x), *self.attn2.keys_values(context), rows)
        x = (x if rows is None else x[rows]) + seen
        return x + self.ff(self.norm3(x))


class Transformer2DModel(nnx.Module):
    """Transformer blocks over the positions of a feature map, around a residual.

    The entry and exit projections are dense layers (SD 2.x) or 1 x 1 convolutions (SD 1.x). The arithmetic is the same,
    the parameters' shapes differ. The entry norm's epsilon is 1e-6 in every published model.
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
        **kwargs: Any,
    ):
        def projection():
            return (
                linear(channels, channels, **kwargs) if linear_projection else Conv2d(channels, channels, 1, **kwargs)
            )

        self.norm = GroupNorm(groups, channels, epsilon=1e-6, **kwargs)
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
        widest = 8 * x.size // x.shape[0] * jnp.dtype(self.norm.dtype).itemsize  # bytes of a row of GEGLU's product
        if rows is None:
            return map_in_groups(lambda x, context: self._with_text(x, self._alone(x), context), widest, x, context)
        y = map_in_groups(self._alone, widest, x)
        if group_size(len(rows), widest) == len(rows):
            return self._with_text(x, y, context, rows)
        return map_in_groups(lambda rows, context: self._with_text(x[rows], y[rows], context), widest, rows, context)

    def _alone(self, x: jax.Array) -> jax.Array:
        """The layers before the text: [B, h, w, channels] -> [B, h * w, channels]."""
        y = self.proj_in(self.norm(x))
        return self.transformer_blocks[0].with_itself(y.reshape(y.shape[0], -1, y.shape[-1]))

    def _with_text(self, x: jax.Array, y: jax.Array, context: jax.Array, rows: jax.Array | None = None) -> jax.Array:
        first, *others = self.transformer_blocks
        y = first.with_text(y, context, rows)
        for block in others:
            y = block(y, context)
        return (x if rows is None else x[rows]) + self.proj_out(y.reshape(-1, *x.shape[1:]))
