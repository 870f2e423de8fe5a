"""The transformer of Z-Image (Z-Image Team, arXiv 2511.22699), in the layout of diffusers' published weights.

One stream: a few blocks refine the image's tokens, others the text's, and the rest take both, image first. Every part
of a block is between two root-mean-square norms. The time scales the inputs and gates the outputs, except in the
text's own blocks. Places are on three axes: a text's tokens are one behind the other on the first one, and the whole
image, whose rows and columns are the other two, is at the place behind its text. Both are filled up to a multiple of 32
tokens by learned ones, which all tokens attend to.
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
from winobench.models.decoder import RMSNorm
from winobench.models.transformer_z_image_config import MULTIPLE, PATCH, ZImageTransformerConfig

# In no config: epsilons of the norms of queries and keys and of the last one, and the widths of the time's layers.
_HEAD_EPSILON, _LAST_EPSILON = 1e-5, 1e-6
_TIME_FEATURES, _TIME_WIDTH = 256, 1024
# The name of the layers for patches of 2 x 2 in one image.
_PATCHES = f"{PATCH}-1"


class ZImageConditions(NamedTuple):
    """Text inputs of the transformer.

    Attributes:
      states: [n, tokens, cap_feat_dim].
      lengths: int32 [n], how many of the tokens are each text's own. Those behind them do not matter.
    """

    states: jax.Array
    lengths: jax.Array


class _FeedForward(nnx.Module):
    """Gated (Shazeer, 2020)."""

    def __init__(self, config: ZImageTransformerConfig, **kwargs: Any):
        self.w1, self.w3 = (linear(config.dim, config.inner_width, bias=False, **kwargs) for _ in range(2))
        self.w2 = linear(config.inner_width, config.dim, bias=False, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [n, tokens, dim] -> the same shape."""
        return self.w2(jax.nn.silu(self.w1(x)) * self.w3(x))


class ZImageTransformerBlock(nnx.Module):
    """Attention and feed-forward, each between two norms and around a residual. The time may modulate them."""

    def __init__(self, config: ZImageTransformerConfig, *, takes_time: bool, **kwargs: Any):
        epsilon = _HEAD_EPSILON if config.qk_norm else None
        self.attention = joint_blocks.SelfAttention(
            config.n_heads, config.head_dim, bias=False, epsilon=epsilon, with_output=True, **kwargs
        )
        self.feed_forward = _FeedForward(config, **kwargs)
        self.attention_norm1, self.attention_norm2, self.ffn_norm1, self.ffn_norm2 = (
            RMSNorm(config.dim, epsilon=config.norm_eps, **kwargs) for _ in range(4)
        )
        self.adaLN_modulation = (
            nnx.List([linear(config.condition_width, 4 * config.dim, **kwargs)]) if takes_time else None
        )

    def __call__(
        self,
        x: jax.Array,
        turns: joint_blocks.Rotations,
        lengths: jax.Array | None = None,
        condition: jax.Array | None = None,
    ) -> jax.Array:
        """x [n, tokens, dim], tokens of each row int32 [n], condition [n, condition_width] -> the shape of x."""
        scales, gates = (1.0, 1.0), (1.0, 1.0)
        if self.adaLN_modulation is not None:
            numbers = jnp.split(self.adaLN_modulation[0](condition)[:, None], 4, axis=-1)
            scales = tuple(1 + scale for scale in numbers[::2])
            gates = tuple(jnp.tanh(gate) for gate in numbers[1::2])
        attended = self.attention(self.attention_norm1(x) * scales[0], turns, lengths)
        x = x + gates[0] * self.attention_norm2(attended)
        return x + gates[1] * self.ffn_norm2(self.feed_forward(self.ffn_norm1(x) * scales[1]))


class _TimestepEmbedder(nnx.Module):
    def __init__(self, width: int, **kwargs: Any):
        first, last = linear(_TIME_FEATURES, _TIME_WIDTH, **kwargs), linear(_TIME_WIDTH, width, **kwargs)
        self.mlp = nnx.List([first, layers.Identity(), last])

    def __call__(self, times: jax.Array) -> jax.Array:
        """times float32 [n], scaled -> [n, width]."""
        waves = layers.timestep_embedding(times, _TIME_FEATURES, flip_sin_to_cos=True, freq_shift=0)
        return self.mlp[2](jax.nn.silu(self.mlp[0](waves)))


class _FinalLayer(nnx.Module):
    """A layer norm that the time scales, and the numbers of each patch."""

    def __init__(self, config: ZImageTransformerConfig, **kwargs: Any):
        self.linear = linear(config.dim, PATCH**2 * config.in_channels, **kwargs)
        self.adaLN_modulation = nnx.List([layers.Identity(), linear(config.condition_width, config.dim, **kwargs)])

    def __call__(self, x: jax.Array, condition: jax.Array) -> jax.Array:
        """x [n, patches, dim], condition [n, condition_width] -> [n, patches, 4 in_channels]."""
        scale = self.adaLN_modulation[1](jax.nn.silu(condition))
        return self.linear(joint_blocks.modulated(x, jnp.zeros_like(scale), scale, epsilon=_LAST_EPSILON))


class ZImageTransformer2DModel(Network):
    """Predicts the way from noise to clean latents, given the time and a text.

    Attribute names equal the names in the published weights (``layers.0.attention.to_q`` and so on). Images to edit,
    which the omni models put next to the noisy one, are not implemented.
    """

    config_class: ClassVar = ZImageTransformerConfig
    # The projections of the attention in which image and text meet, and of each by itself.
    lora_targets: ClassVar = {
        "cross": re.compile(r"layers\.\d+\.attention\.to_(q|k|v|out\.0)"),
        "all": re.compile(r"(layers|noise_refiner|context_refiner)\.\d+\.attention\.to_(q|k|v|out\.0)"),
    }

    def build(self, config: ZImageTransformerConfig, **kwargs: Any) -> None:
        types = {key: kwargs[key] for key in ("dtype", "param_dtype")}

        def blocks(count: int, takes_time: bool) -> nnx.List:
            return nnx.List([ZImageTransformerBlock(config, takes_time=takes_time, **kwargs) for _ in range(count)])

        self.all_x_embedder = nnx.Dict({_PATCHES: linear(PATCH**2 * config.in_channels, config.dim, **kwargs)})
        self.all_final_layer = nnx.Dict({_PATCHES: _FinalLayer(config, **kwargs)})
        self.noise_refiner = blocks(config.n_refiner_layers, True)
        self.context_refiner = blocks(config.n_refiner_layers, False)
        self.t_embedder = _TimestepEmbedder(config.condition_width, **kwargs)
        self.cap_embedder = nnx.List(
            [
                RMSNorm(config.cap_feat_dim, epsilon=config.norm_eps, **types),
                linear(config.cap_feat_dim, config.dim, **kwargs),
            ]
        )
        self.x_pad_token, self.cap_pad_token = (
            nnx.Param(jnp.zeros((1, config.dim), jnp.dtype(kwargs["param_dtype"]))) for _ in range(2)
        )
        self.layers = blocks(config.n_layers, True)

    def __call__(
        self, sample: jax.Array, times: jax.Array, conditions: ZImageConditions, *, remat: bool = False
    ) -> jax.Array:
        """Predicts clean latents minus noise, the velocity's opposite, of noisy latents [n, h, w, in_channels].

        Times are float32 [n], from 0 for noise to 1 for clean latents, one less the noise level.
        """
        patches = flux_blocks.to_patches(sample.astype(self.dtype), channels_last=True)
        batch, rows, columns, channels = patches.shape
        image = self.all_x_embedder[_PATCHES](patches.reshape(batch, -1, channels))
        image = _filled(image, self.x_pad_token[...])
        text, lengths = self._embedded(conditions)
        of_image, of_text = _rotations(self.config, rows, columns, text.shape[1], lengths)
        condition = self.t_embedder(times.astype(jnp.float32) * jnp.float32(self.config.t_scale))
        call = layers.caller(remat)
        for block in self.noise_refiner:
            image = call(block, image, of_image, None, condition)
        for block in self.context_refiner:
            text = call(block, text, of_text, lengths, None)
        x = jnp.concatenate([image, text], axis=1)
        turns = tuple(jnp.concatenate(parts, axis=1) for parts in zip(of_image, of_text, strict=True))
        for block in self.layers:
            x = call(block, x, turns, image.shape[1] + lengths, condition)
        y = self.all_final_layer[_PATCHES](x[:, : rows * columns], condition)
        return flux_blocks.from_patches(y.reshape(batch, rows, columns, channels), channels_last=True)

    def _embedded(self, conditions: ZImageConditions) -> tuple[jax.Array, jax.Array]:
        """Tokens of the text [n, a multiple of 32, dim], and int32 [n], how many of them there are for each."""
        norm, dense = self.cap_embedder
        filler = self.cap_pad_token[...]
        text = _filled(dense(norm(conditions.states.astype(self.dtype))), filler)
        is_own = jnp.arange(text.shape[1]) < conditions.lengths[:, None]
        text = jnp.where(is_own[..., None], text, filler.astype(self.dtype))
        # Where rows are made up, a text may have no token. Nobody reads what becomes of it.
        lengths = jnp.maximum(_multiple(conditions.lengths), MULTIPLE)
        return text, lengths.astype(jnp.int32)


def _multiple(count: Any) -> Any:
    """The next multiple of 32 tokens."""
    return count + -count % MULTIPLE


def _filled(tokens: jax.Array, filler: jax.Array) -> jax.Array:
    """Tokens [n, tokens, dim] with as many of ``filler`` [1, dim] behind them as make them a multiple of 32."""
    batch, count, width = tokens.shape
    more = jnp.broadcast_to(filler.astype(tokens.dtype), (batch, _multiple(count) - count, width))
    return jnp.concatenate([tokens, more], axis=1)


def _rotations(
    config: ZImageTransformerConfig, rows: int, columns: int, length: int, lengths: jax.Array
) -> tuple[joint_blocks.Rotations, joint_blocks.Rotations]:
    """Rotations of the image's tokens and of the text's, each [n, tokens, 1, head_dim / 2].

    An image is behind its text, whose tokens are ``lengths``, int32 [n].
    """
    counts = (length + 2, rows, columns)  # a text begins at the place 1
    if any(count > most for count, most in zip(counts, config.axes_lens, strict=True)):
        raise ValueError(f"{length} tokens and {rows} x {columns} patches are more than axes_lens={config.axes_lens}")
    along, of_rows, of_columns = (
        jnp.asarray(_waves(count, size, config.rope_theta))
        for count, size in zip(counts, config.axes_dims, strict=True)
    )
    batch, patches, half = len(lengths), rows * columns, config.head_dim // 2
    grid = [jnp.repeat(of_rows, columns, axis=1), jnp.tile(of_columns, (1, rows, 1))]
    of_image = [along[:, lengths + 1][:, :, None], *(wave[:, None] for wave in grid)]
    image = jnp.concatenate([jnp.broadcast_to(wave, (2, batch, patches, wave.shape[-1])) for wave in of_image], axis=-1)
    # What fills up the image, and a text on the other axes, is at the place 0, where nothing turns.
    still = jnp.array([1.0, 0.0], jnp.float32)[:, None, None, None]
    fillers = jnp.broadcast_to(still, (2, batch, _multiple(patches) - patches, half))
    image = jnp.concatenate([image, fillers], axis=2)
    text = along[:, None, 1 : length + 1]
    others = jnp.broadcast_to(still, (2, 1, length, half - text.shape[-1]))
    text = jnp.broadcast_to(jnp.concatenate([text, others], axis=-1), (2, batch, length, half))
    return tuple(image[..., None, :]), tuple(text[..., None, :])


def _waves(count: int, size: int, theta: float) -> np.ndarray:
    """Cosines and sines of the places 0, 1, ... on one axis: [2, count, size / 2] float32.

    Angles are rounded to float32 before their cosine is taken, as in the published model.
    """
    frequencies = float(theta) ** -(np.arange(0, size, 2, dtype=np.float64) / size)
    angles = np.outer(np.arange(count), frequencies).astype(np.float32)
    return np.stack([np.cos(angles), np.sin(angles)])
