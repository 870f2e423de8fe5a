"""The transformer of Stable Diffusion 3 and 3.5 (Esser et al. 2024), NHWC, torch's attribute names."""

from __future__ import annotations

import dataclasses
import re
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.models import joint_blocks, layers
from winobench.models.base import Network, linear
from winobench.models.config import NetworkConfig, is_count

# None of the published files has it.
_TIME_FEATURES = 256


class TextConditions(NamedTuple):
    """Text inputs of a transformer.

    Attributes:
      states: [B, length, width].
      pooled: [B, width].
    """

    states: jax.Array
    pooled: jax.Array


@dataclasses.dataclass(frozen=True)
class SD3TransformerConfig(NetworkConfig):
    """Shape of the transformer, with the names and defaults of the published ``config.json``."""

    sample_size: int = 128
    patch_size: int = 2
    in_channels: int = 16
    num_layers: int = 18
    attention_head_dim: int = 64
    num_attention_heads: int = 18
    joint_attention_dim: int = 4096
    caption_projection_dim: int = 1152  # the transformer's width
    pooled_projection_dim: int = 2048
    out_channels: int | None = 16  # None for in_channels
    pos_embed_max_size: int = 96  # positions along a side of the table, from whose middle they are taken
    dual_attention_layers: tuple[int, ...] = ()  # where the image also attends to itself alone (3.5-medium)
    qk_norm: str | None = None  # "rms_norm" in 3.5

    _class_value: ClassVar = "SD3Transformer2DModel"

    def __post_init__(self):
        self._require_counts()
        self._require(
            self.out_channels is None or is_count(self.out_channels), "out_channels", "null or a positive whole number"
        )
        self._require(self.width % 4 == 0, "attention_head_dim", "a width that is a multiple of 4 with all heads")
        self._require(
            self.caption_projection_dim == self.width,
            "caption_projection_dim",
            f"the transformer's width, num_attention_heads x attention_head_dim = {self.width}",
        )
        self._require(
            self.sample_size % self.patch_size == 0 and self.sample_size // self.patch_size <= self.pos_embed_max_size,
            "sample_size",
            f"a multiple of patch_size with at most pos_embed_max_size={self.pos_embed_max_size} positions a side",
        )
        layers_there = range(self.num_layers)
        dual = self.dual_attention_layers
        self._require(
            isinstance(dual, tuple) and all(number in layers_there and not isinstance(number, bool) for number in dual),
            "dual_attention_layers",
            f"numbers of blocks, below num_layers={self.num_layers}",
        )
        self._require(self.qk_norm in (None, "rms_norm"), "qk_norm", "null or 'rms_norm'")

    @property
    def width(self) -> int:
        """Width of the transformer's states."""
        return self.num_attention_heads * self.attention_head_dim

    @property
    def width_per_position(self) -> int:
        """Numbers of the first layer's result for each position of the latents."""
        return self.width // self.patch_size**2

    @property
    def block_counts(self) -> tuple[int, ...]:
        """Blocks without and with the image's attention to itself alone."""
        dual = len(self.dual_attention_layers)
        return (self.num_layers - dual, dual) if dual else (self.num_layers,)

    def with_block_counts(self, single: int, dual: int = 0) -> Self:
        """The same with other numbers of blocks of each kind, those with two attentions first."""
        return dataclasses.replace(self, num_layers=single + dual, dual_attention_layers=tuple(range(dual)))

    @classmethod
    def sd3_medium(cls) -> Self:
        """Stable Diffusion 3 medium: ``transformer/config.json`` of ``stable-diffusion-3-medium-diffusers``."""
        return cls(num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=192)

    @classmethod
    def sd35_medium(cls) -> Self:
        """Stable Diffusion 3.5 medium: ``stabilityai/stable-diffusion-3.5-medium``."""
        return dataclasses.replace(
            cls.sd3_medium(), pos_embed_max_size=384, dual_attention_layers=tuple(range(13)), qk_norm="rms_norm"
        )

    @classmethod
    def sd35_large(cls) -> Self:
        """Stable Diffusion 3.5 large: ``stabilityai/stable-diffusion-3.5-large``."""
        return cls(
            num_layers=38,
            num_attention_heads=38,
            caption_projection_dim=2432,
            pos_embed_max_size=192,
            qk_norm="rms_norm",
        )


class PatchEmbedding(nnx.Module):
    """Patches of latents as positions; ``pos_embed`` [1, positions, width] is a table that files hold, too."""

    def __init__(self, config: SD3TransformerConfig, **kwargs: Any):
        self.side = config.pos_embed_max_size
        self.patch_size = config.patch_size
        self.proj = layers.Conv2d(
            config.in_channels, config.width, config.patch_size, stride=config.patch_size, **kwargs
        )
        table = position_table(config.width, self.side, config.sample_size // config.patch_size)
        self.pos_embed = nnx.Param(jnp.asarray(table[None], kwargs["param_dtype"]))

    def __call__(self, sample: jax.Array) -> jax.Array:
        """sample [B, h, w, channels] -> [B, positions, width], row by row."""
        x = self.proj(sample)
        batch, height, width, features = x.shape
        top, left = (self.side - height) // 2, (self.side - width) // 2
        table = self.pos_embed[...].reshape(self.side, self.side, features)
        cropped = table[top : top + height, left : left + width].astype(x.dtype)
        return (x + cropped).reshape(batch, height * width, features)


def position_table(width: int, side: int, base: int) -> np.ndarray:
    """Sines and cosines of the places of a grid: first of columns, then of rows.

    Returns float32 [side * side, width], row by row.
    """
    positions = np.arange(side, dtype=np.float32) / np.float32(side / base)
    frequencies = 10000.0 ** -(np.arange(width // 4) / (width / 4))
    angles = positions.astype(np.float64)[:, None] * frequencies
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    of_columns = np.broadcast_to(waves[None, :], (side, side, width // 2))
    of_rows = np.broadcast_to(waves[:, None], (side, side, width // 2))
    return np.concatenate([of_columns, of_rows], axis=-1).reshape(side * side, width).astype(np.float32)


class JointBlock(nnx.Module):
    """Joint attention and feed-forward layers (Esser et al. 2024, Figure 2b). The last one ends the text."""

    def __init__(self, config: SD3TransformerConfig, index: int, **kwargs: Any):
        width, heads, head_size = config.width, config.num_attention_heads, config.attention_head_dim
        self.text_ends = index == config.num_layers - 1
        is_dual = index in config.dual_attention_layers
        common = {"bias": True, "epsilon": joint_blocks.EPSILON if config.qk_norm is not None else None, **kwargs}
        self.norm1 = joint_blocks.Modulation(width, 9 if is_dual else 6, **kwargs)
        self.norm1_context = joint_blocks.Modulation(width, 2 if self.text_ends else 6, **kwargs)
        self.attn = joint_blocks.JointAttention(heads, head_size, text_ends=self.text_ends, **common)
        self.attn2 = joint_blocks.SelfAttention(heads, head_size, with_output=True, **common) if is_dual else None
        self.ff = joint_blocks.FeedForward(width, **kwargs)
        self.ff_context = None if self.text_ends else joint_blocks.FeedForward(width, **kwargs)

    def __call__(self, image: jax.Array, text: jax.Array, condition: jax.Array) -> tuple[jax.Array, jax.Array]:
        """image [B, T, width], text [B, S, width], condition [B, width], after SiLU -> image and text again."""
        shift, scale, gate, *of_ff = self.norm1(condition)
        shift_text, scale_text, *gates_text = self.norm1_context(condition)
        if self.text_ends:
            # Here the published norm is of another kind, whose scale comes first.
            shift_text, scale_text = scale_text, shift_text
        from_image, from_text = self.attn(
            joint_blocks.modulated(image, shift, scale), joint_blocks.modulated(text, shift_text, scale_text)
        )
        entering = image
        image = image + gate[:, None] * from_image
        if self.attn2 is not None:
            shift, scale, gate = of_ff[3:]
            image = image + gate[:, None] * self.attn2(joint_blocks.modulated(entering, shift, scale))
        image = _after(image, of_ff[:3], self.ff)
        if self.text_ends:
            return image, text
        return image, _after(text + gates_text[0][:, None] * from_text, gates_text[1:], self.ff_context)


def _after(x: jax.Array, numbers: list[jax.Array], feed_forward: joint_blocks.FeedForward) -> jax.Array:
    """The feed-forward layer behind its norm and around a residual."""
    shift, scale, gate = numbers
    return x + gate[:, None] * feed_forward(joint_blocks.modulated(x, shift, scale))


class TimeTextEmbedding(nnx.Module):
    """Time and pooled text as one condition."""

    def __init__(self, width: int, pooled: int, **kwargs: Any):
        self.dtype = kwargs["dtype"]
        self.timestep_embedder = layers.TimestepEmbedding(_TIME_FEATURES, width, **kwargs)
        self.text_embedder = layers.TimestepEmbedding(pooled, width, **kwargs)

    def __call__(self, times: jax.Array, pooled: jax.Array) -> jax.Array:
        """times [B], pooled [B, pooled width] -> [B, width]."""
        waves = layers.timestep_embedding(times, _TIME_FEATURES, flip_sin_to_cos=True, freq_shift=0)
        return self.timestep_embedder(waves.astype(self.dtype)) + self.text_embedder(pooled.astype(self.dtype))


class SD3Transformer2DModel(Network):
    """The denoiser of Stable Diffusion 3 and 3.5.

    Nothing lies ahead of the text but the patches: the pooled text enters with the time, so no rows are shared.
    """

    config_class: ClassVar = SD3TransformerConfig
    # The projections by which image and text attend to each other, and the image to itself alone.
    lora_targets: ClassVar = {
        "cross": re.compile(r"transformer_blocks\.\d+\.attn\.(to_(q|k|v|out\.0|add_out)|add_(q|k|v)_proj)"),
        "all": re.compile(r"transformer_blocks\.\d+\.attn2?\.(to_(q|k|v|out\.0|add_out)|add_(q|k|v)_proj)"),
    }

    def build(self, config: SD3TransformerConfig, **kwargs: Any) -> None:
        self.pos_embed = PatchEmbedding(config, **kwargs)
        self.time_text_embed = TimeTextEmbedding(config.width, config.pooled_projection_dim, **kwargs)
        self.context_embedder = linear(config.joint_attention_dim, config.width, **kwargs)
        self.transformer_blocks = nnx.List([JointBlock(config, index, **kwargs) for index in range(config.num_layers)])
        self.norm_out = joint_blocks.AdaLayerNormContinuous(config.width, **kwargs)
        self.proj_out = linear(config.width, config.patch_size**2 * self.out_channels, **kwargs)

    @property
    def out_channels(self) -> int:
        """Channels of the prediction."""
        return self.config.out_channels or self.config.in_channels

    def __call__(
        self, sample: jax.Array, timesteps: jax.Array, conditions: TextConditions, *, remat: bool = False
    ) -> jax.Array:
        """Predicts the velocity [B, h, w, out_channels] of noisy latents [B, h, w, in_channels].

        Timesteps are float [B], 1,000 times the noise level.
        """
        config = self.config
        batch, height, width, _ = sample.shape
        rows, columns = height // config.patch_size, width // config.patch_size
        if height % config.patch_size or width % config.patch_size or max(rows, columns) > config.pos_embed_max_size:
            raise ValueError(
                f"a sample of {height} x {width} has no {config.pos_embed_max_size} positions a side at most of"
                f" {config.patch_size} x {config.patch_size}."
            )
        states = self.time_text_embed(timesteps, conditions.pooled)
        image = self.pos_embed(sample.astype(self.dtype))
        text = self.context_embedder(conditions.states.astype(self.dtype))
        call, condition = layers.caller(remat), jax.nn.silu(states)
        for block in self.transformer_blocks:
            image, text = call(block, image, text, condition)
        patches = self.proj_out(self.norm_out(image, states))
        patches = patches.reshape(batch, rows, columns, config.patch_size, config.patch_size, self.out_channels)
        return patches.swapaxes(2, 3).reshape(batch, height, width, self.out_channels)
