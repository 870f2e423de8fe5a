"""The transformer of FLUX.2 (Black Forest Labs, 2025), in the layout of diffusers' published weights.

As FLUX.1's (`winobench.models.transformer_flux`), but no layer has a bias, feed-forwards are gated (Shazeer, 2020), all
blocks of a kind are modulated by the same numbers, the text has positions, and the text is not pooled. In blocks with
one stream, one dense layer makes queries, keys, values and what the feed-forward needs.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.models import flux_blocks, joint_blocks, layers
from winobench.models.base import Network, linear
from winobench.models.transformer_flux2_config import Flux2TransformerConfig

Numbers = tuple[jax.Array, ...]
"""Shifts, scales and gates [n, width], in this order for each part of a block."""


def _gated(x: jax.Array) -> jax.Array:
    """[..., 2 width] -> [..., width]: SiLU of the first half times the second."""
    gate, values = jnp.split(x, 2, axis=-1)
    return jax.nn.silu(gate) * values


class _FeedForward(nnx.Module):
    def __init__(self, config: Flux2TransformerConfig, **kwargs: Any):
        width, inner = config.width, config.inner_width
        self.linear_in = linear(width, 2 * inner, bias=False, **kwargs)
        self.linear_out = linear(inner, width, bias=False, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [n, tokens, width] -> the same shape."""
        return self.linear_out(_gated(self.linear_in(x)))


class _Modulation(nnx.Module):
    """The dense layer from the condition to the shifts, scales and gates of all blocks of a kind."""

    def __init__(self, width: int, parts: int, **kwargs: Any):
        self.count = 3 * parts
        self.linear = linear(width, self.count * width, bias=False, **kwargs)

    def __call__(self, condition: jax.Array) -> Numbers:
        """condition [n, width], after SiLU -> three arrays of its shape for each part of a block."""
        return tuple(jnp.split(self.linear(condition), self.count, axis=-1))


class Flux2TransformerBlock(nnx.Module):
    """A block with two streams, which meet in its attention."""

    def __init__(self, config: Flux2TransformerConfig, **kwargs: Any):
        heads = (config.num_attention_heads, config.attention_head_dim)
        self.epsilon = config.eps
        self.attn = joint_blocks.JointAttention(*heads, bias=False, epsilon=config.eps, **kwargs)
        self.ff, self.ff_context = (_FeedForward(config, **kwargs) for _ in range(2))

    def __call__(
        self, image: jax.Array, text: jax.Array, of_image: Numbers, of_text: Numbers, turns: joint_blocks.Rotations
    ) -> tuple[jax.Array, jax.Array]:
        """image [n, patches, width], text [n, tokens, width], six arrays [n, width] for each -> image and text."""
        attended = self.attn(self._modulated(image, of_image), self._modulated(text, of_text), turns)
        image = self._after_attention(image, attended[0], of_image, self.ff)
        text = self._after_attention(text, attended[1], of_text, self.ff_context)
        return image, flux_blocks.kept_finite(text)

    def _modulated(self, x: jax.Array, numbers: Numbers) -> jax.Array:
        shift, scale = numbers[:2]
        return joint_blocks.modulated(x, shift, scale, epsilon=self.epsilon)

    def _after_attention(
        self, x: jax.Array, attended: jax.Array, numbers: Numbers, feed_forward: _FeedForward
    ) -> jax.Array:
        x = x + numbers[2][:, None] * attended
        return x + numbers[5][:, None] * feed_forward(self._modulated(x, numbers[3:]))


class _ParallelAttention(nnx.Module):
    """Attention and feed-forward side by side, with one dense layer before them and one after."""

    def __init__(self, config: Flux2TransformerConfig, **kwargs: Any):
        kwargs = {"bias": False, **kwargs}
        width, inner = config.width, config.inner_width
        self.heads = config.num_attention_heads
        self.to_qkv_mlp_proj = linear(width, 3 * width + 2 * inner, **kwargs)
        self.norm_q, self.norm_k = joint_blocks.head_norms(config.attention_head_dim, config.eps, **kwargs)
        self.to_out = linear(width + inner, width, **kwargs)

    def __call__(self, x: jax.Array, turns: joint_blocks.Rotations) -> jax.Array:
        """x [n, tokens, width] -> the same shape."""
        width = x.shape[-1]
        *parts, inner = jnp.split(self.to_qkv_mlp_proj(x), [width, 2 * width, 3 * width], axis=-1)
        stream = joint_blocks.Stream.of(parts, (self.norm_q, self.norm_k), turns)
        (found,) = joint_blocks.attended([stream], self.heads)
        return joint_blocks.apply_to_parts(self.to_out, found, _gated(inner))


class Flux2SingleTransformerBlock(nnx.Module):
    """A block with one stream."""

    def __init__(self, config: Flux2TransformerConfig, **kwargs: Any):
        self.epsilon = config.eps
        self.attn = _ParallelAttention(config, **kwargs)

    def __call__(self, x: jax.Array, numbers: Numbers, turns: joint_blocks.Rotations) -> jax.Array:
        """x [n, tokens + patches, width], three numbers [n, width] -> the shape of x."""
        shift, scale, gate = numbers
        y = self.attn(joint_blocks.modulated(x, shift, scale, epsilon=self.epsilon), turns)
        return flux_blocks.kept_finite(x + gate[:, None] * y)


class _TimeGuidanceEmbedding(nnx.Module):
    """Time and guidance (if the network is given it) as one condition."""

    def __init__(self, config: Flux2TransformerConfig, **kwargs: Any):
        kwargs = {"bias": False, **kwargs}
        self.features, self.dtype = config.timestep_guidance_channels, kwargs["dtype"]
        self.timestep_embedder = layers.TimestepEmbedding(self.features, config.width, **kwargs)
        self.guidance_embedder = (
            layers.TimestepEmbedding(self.features, config.width, **kwargs) if config.guidance_embeds else None
        )

    def __call__(self, times: jax.Array, guidance: jax.Array | None) -> jax.Array:
        """times and guidance float32 [n], before the factor 1000 -> [n, width]."""
        y = self.timestep_embedder(flux_blocks.time_waves(times, self.features, self.dtype))
        if self.guidance_embedder is None:
            return y
        return y + self.guidance_embedder(flux_blocks.time_waves(guidance, self.features, self.dtype))


class Flux2Transformer2DModel(Network):
    """Predicts the velocity of noisy latents, given the time and a text.

    Attribute names equal the names in the published weights (``transformer_blocks.0.attn.to_q`` and so on). Reference
    images, which the published pipelines put next to the noisy one, are not implemented.
    """

    config_class: ClassVar = Flux2TransformerConfig
    # The projections of the attention in which the two streams meet, and of the one stream, which are
    # its feed-forward's, too.
    lora_targets: ClassVar = {
        "cross": re.compile(r"transformer_blocks\.\d+\.attn\.(to_(q|k|v|out\.0)|add_(q|k|v)_proj|to_add_out)"),
        "all": re.compile(
            r"transformer_blocks\.\d+\.attn\.(to_(q|k|v|out\.0)|add_(q|k|v)_proj|to_add_out)"
            r"|single_transformer_blocks\.\d+\.attn\.to_(qkv_mlp_proj|out)"
        ),
    }

    def build(self, config: Flux2TransformerConfig, **kwargs: Any) -> None:
        width = config.width
        self.time_guidance_embed = _TimeGuidanceEmbedding(config, **kwargs)
        self.double_stream_modulation_img = _Modulation(width, 2, **kwargs)
        self.double_stream_modulation_txt = _Modulation(width, 2, **kwargs)
        self.single_stream_modulation = _Modulation(width, 1, **kwargs)
        self.x_embedder = linear(config.in_channels, width, bias=False, **kwargs)
        self.context_embedder = linear(config.joint_attention_dim, width, bias=False, **kwargs)
        self.transformer_blocks = nnx.List([Flux2TransformerBlock(config, **kwargs) for _ in range(config.num_layers)])
        self.single_transformer_blocks = nnx.List(
            [Flux2SingleTransformerBlock(config, **kwargs) for _ in range(config.num_single_layers)]
        )
        self.norm_out = joint_blocks.AdaLayerNormContinuous(width, bias=False, epsilon=config.eps, **kwargs)
        self.proj_out = linear(width, config.in_channels, bias=False, **kwargs)

    def __call__(
        self,
        sample: jax.Array,
        times: jax.Array,
        conditions: jax.Array,
        *,
        guidance: jax.Array | None = None,
        remat: bool = False,
    ) -> jax.Array:
        """Predicts the velocity, noise minus clean latents, of normalised noisy latents [n, h, w, in_channels / 4].

        Times are float32 [n], from 0 to 1, conditions [n, tokens, joint_attention_dim]. Padding is attended to, too.
        Guidance, float32 [n], is for networks with ``guidance_embeds`` alone.
        """
        flux_blocks.check_guidance(guidance, self.config.guidance_embeds)
        patches = flux_blocks.to_patches(sample.astype(self.dtype))
        _, rows, columns, channels = patches.shape
        image = self.x_embedder(patches.reshape(len(patches), -1, channels))
        embedded = self.time_guidance_embed(times, guidance)
        text = self.context_embedder(conditions.astype(self.dtype))
        length = text.shape[1]
        positions = _positions(length, rows, columns)
        turns = flux_blocks.rotations(positions, self.config.axes_dims_rope, self.config.rope_theta)
        condition = jax.nn.silu(embedded)
        of_image, of_text = self.double_stream_modulation_img(condition), self.double_stream_modulation_txt(condition)
        call = layers.caller(remat)
        for block in self.transformer_blocks:
            image, text = call(block, image, text, of_image, of_text, turns)
        x = jnp.concatenate([text, image], axis=1)
        of_both = self.single_stream_modulation(condition)
        for block in self.single_transformer_blocks:
            x = call(block, x, of_both, turns)
        y = self.proj_out(self.norm_out(x[:, length:], embedded))
        return flux_blocks.from_patches(y.reshape(len(y), rows, columns, channels))


def _positions(length: int, rows: int, columns: int) -> np.ndarray:
    """[length + rows * columns, 4]: (0, 0, 0, place) for the text's tokens, (0, row, column, 0) for the image's."""
    of_text = np.indices((1, 1, 1, length)).reshape(4, -1).T
    of_image = np.indices((1, rows, columns, 1)).reshape(4, -1).T
    return np.concatenate([of_text, of_image])
