"""The transformer of FLUX.1 (Black Forest Labs, 2024), in the layout of diffusers' published weights.

A rectified-flow transformer after Esser et al. (2024): blocks with one stream for the image and one for the text, then
blocks with one stream, whose attention and feed-forward are computed side by side (Dehghani et al., 2023). Time,
guidance and the pooled text modulate every norm.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.models import flux_blocks, joint_blocks, layers
from winobench.models.base import Network, linear
from winobench.models.transformer_flux_config import FluxTransformerConfig

# None of these is in the config.
_TIME_FEATURES = 256
_THETA = 10000.0
_MLP_RATIO = 4


class FluxConditions(NamedTuple):
    """Text inputs of the transformer.

    Attributes:
      encoder_hidden_states: [n, tokens, joint_attention_dim], T5's states.
      pooled: [n, pooled_projection_dim], CLIP's pooled text, unprojected.
    """

    encoder_hidden_states: jax.Array
    pooled: jax.Array


class FluxTransformerBlock(nnx.Module):
    """A block with two streams, which meet in its attention."""

    def __init__(self, config: FluxTransformerConfig, **kwargs: Any):
        heads = (config.num_attention_heads, config.attention_head_dim)
        self.norm1, self.norm1_context = (joint_blocks.Modulation(config.width, 6, **kwargs) for _ in range(2))
        self.attn = joint_blocks.JointAttention(*heads, bias=True, epsilon=joint_blocks.EPSILON, **kwargs)
        self.ff, self.ff_context = (joint_blocks.FeedForward(config.width, **kwargs) for _ in range(2))

    def __call__(
        self, image: jax.Array, text: jax.Array, condition: jax.Array, turns: joint_blocks.Rotations
    ) -> tuple[jax.Array, jax.Array]:
        """image [n, patches, width], text [n, tokens, width], condition [n, width], after SiLU -> image and text."""
        of_image, of_text = self.norm1(condition), self.norm1_context(condition)
        attended = self.attn(
            joint_blocks.modulated(image, *of_image[:2]), joint_blocks.modulated(text, *of_text[:2]), turns
        )
        image = _after_attention(image, attended[0], of_image, self.ff)
        text = _after_attention(text, attended[1], of_text, self.ff_context)
        return image, flux_blocks.kept_finite(text)


def _after_attention(x: jax.Array, attended: jax.Array, numbers: list[jax.Array], feed_forward: Any) -> jax.Array:
    """Computes a stream's block after the attention. Two of the six numbers are used before it."""
    gate, shift, scale, last_gate = numbers[2:]
    x = x + gate[:, None] * attended
    return x + last_gate[:, None] * feed_forward(joint_blocks.modulated(x, shift, scale))


class FluxSingleTransformerBlock(nnx.Module):
    """A block with one stream. Attention and feed-forward have the same input and one output projection."""

    def __init__(self, config: FluxTransformerConfig, **kwargs: Any):
        width, inner = config.width, _MLP_RATIO * config.width
        heads = (config.num_attention_heads, config.attention_head_dim)
        self.norm = joint_blocks.Modulation(width, 3, **kwargs)
        self.proj_mlp = linear(width, inner, **kwargs)
        self.attn = joint_blocks.SelfAttention(*heads, bias=True, epsilon=joint_blocks.EPSILON, **kwargs)
        self.proj_out = linear(width + inner, width, **kwargs)

    def __call__(self, x: jax.Array, condition: jax.Array, turns: joint_blocks.Rotations) -> jax.Array:
        """x [n, tokens + patches, width], condition [n, width], after SiLU -> the shape of x."""
        shift, scale, gate = self.norm(condition)
        inputs = joint_blocks.modulated(x, shift, scale)
        inner = jax.nn.gelu(self.proj_mlp(inputs), approximate=True)
        y = joint_blocks.apply_to_parts(self.proj_out, self.attn(inputs, turns), inner)
        return flux_blocks.kept_finite(x + gate[:, None] * y)


class _TimeTextEmbedding(nnx.Module):
    """Time, guidance (if the network is given it) and pooled text as one condition."""

    def __init__(self, config: FluxTransformerConfig, **kwargs: Any):
        embedding, width = layers.TimestepEmbedding, config.width
        self.dtype = kwargs["dtype"]
        self.timestep_embedder = embedding(_TIME_FEATURES, width, **kwargs)
        self.guidance_embedder = embedding(_TIME_FEATURES, width, **kwargs) if config.guidance_embeds else None
        self.text_embedder = embedding(config.pooled_projection_dim, width, **kwargs)

    def __call__(self, times: jax.Array, guidance: jax.Array | None, pooled: jax.Array) -> jax.Array:
        """times and guidance float32 [n], before the factor 1000. Pooled [n, pooled_projection_dim] -> [n, width]."""
        y = self.timestep_embedder(flux_blocks.time_waves(times, _TIME_FEATURES, self.dtype))
        if self.guidance_embedder is not None:
            y = y + self.guidance_embedder(flux_blocks.time_waves(guidance, _TIME_FEATURES, self.dtype))
        return y + self.text_embedder(pooled.astype(self.dtype))


class FluxTransformer2DModel(Network):
    """Predicts the velocity of noisy latents, given the time and a text.

    Attribute names equal the names in the published weights (``transformer_blocks.0.attn.to_q`` and so on).
    """

    config_class: ClassVar = FluxTransformerConfig
    # The projections of the attention in which the two streams meet, and of the one stream.
    lora_targets: ClassVar = {
        "cross": re.compile(r"transformer_blocks\.\d+\.attn\.(to_(q|k|v|out\.0)|add_(q|k|v)_proj|to_add_out)"),
        "all": re.compile(
            r"transformer_blocks\.\d+\.attn\.(to_(q|k|v|out\.0)|add_(q|k|v)_proj|to_add_out)"
            r"|single_transformer_blocks\.\d+\.attn\.to_(q|k|v)"
        ),
    }

    def build(self, config: FluxTransformerConfig, **kwargs: Any) -> None:
        width = config.width
        self.time_text_embed = _TimeTextEmbedding(config, **kwargs)
        self.context_embedder = linear(config.joint_attention_dim, width, **kwargs)
        self.x_embedder = linear(config.in_channels, width, **kwargs)
        self.transformer_blocks = nnx.List([FluxTransformerBlock(config, **kwargs) for _ in range(config.num_layers)])
        self.single_transformer_blocks = nnx.List(
            [FluxSingleTransformerBlock(config, **kwargs) for _ in range(config.num_single_layers)]
        )
        self.norm_out = joint_blocks.AdaLayerNormContinuous(width, **kwargs)
        self.proj_out = linear(width, config.in_channels, **kwargs)

    def __call__(
        self,
        sample: jax.Array,
        times: jax.Array,
        conditions: FluxConditions,
        *,
        guidance: jax.Array | None = None,
        remat: bool = False,
    ) -> jax.Array:
        """Predicts the velocity, noise minus clean latents, of noisy latents [n, h, w, in_channels / 4], h and w even.

        Times are float32 [n], from 0 to 1. Guidance, float32 [n], is for networks with ``guidance_embeds`` alone.
        """
        flux_blocks.check_guidance(guidance, self.config.guidance_embeds)
        patches = flux_blocks.to_patches(sample.astype(self.dtype))
        _, rows, columns, channels = patches.shape
        image = self.x_embedder(patches.reshape(len(patches), -1, channels))
        text = self.context_embedder(conditions.encoder_hidden_states.astype(self.dtype))
        length = text.shape[1]
        turns = flux_blocks.rotations(_positions(length, rows, columns), self.config.axes_dims_rope, _THETA)
        embedded = self.time_text_embed(times, guidance, conditions.pooled)
        condition = jax.nn.silu(embedded)
        call = layers.caller(remat)
        for block in self.transformer_blocks:
            image, text = call(block, image, text, condition, turns)
        x = jnp.concatenate([text, image], axis=1)
        for block in self.single_transformer_blocks:
            x = call(block, x, condition, turns)
        y = self.proj_out(self.norm_out(x[:, length:], embedded))
        return flux_blocks.from_patches(y.reshape(len(y), rows, columns, channels))


def _positions(length: int, rows: int, columns: int) -> np.ndarray:
    """[length + rows * columns, 3]: zeros for the text's tokens, (0, row, column) for the image's."""
    of_image = np.indices((1, rows, columns)).reshape(3, -1).T
    return np.concatenate([np.zeros((length, 3), of_image.dtype), of_image])
