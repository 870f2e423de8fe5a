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
from winobench.models.joint_blocks import FeedForward, JointAttention, LastNorm, Modulation, modulated, normalised


class TextConditions(NamedTuple):
    """What a transformer is given of texts.

    Attributes:
      states: [B, length, width].
      pooled: [B, width].
    """

    states: jax.Array
    pooled: jax.Array


@dataclasses.dataclass(frozen=True)
class SD3TransformerConfig(NetworkConfig):
    """Shape of the transformer, with the names and defaults of the published ``config.json``.

    Attributes:
      sample_size: height and width of the latents that the model was trained on.
      patch_size: latents along one side of a position.
      in_channels: channels of the latents.
      num_layers: joint blocks.
      attention_head_dim: size of each head.
      num_attention_heads: number of heads; the transformer is as wide as all of them.
      joint_attention_dim: width of the text states.
      caption_projection_dim: width that they are brought to, that of the transformer.
      pooled_projection_dim: width of the pooled text.
      out_channels: channels of the prediction; those of the latents when None.
      pos_embed_max_size: positions along one side of the table of positions, from whose middle they are taken.
      dual_attention_layers: blocks in which the image also attends to itself alone (3.5-medium).
      qk_norm: ``rms_norm`` (3.5), or None.
    """

    sample_size: int = 128
    patch_size: int = 2
    in_channels: int = 16
    num_layers: int = 18
    attention_head_dim: int = 64
    num_attention_heads: int = 18
    joint_attention_dim: int = 4096
    caption_projection_dim: int = 1152
    pooled_projection_dim: int = 2048
    out_channels: int | None = 16
    pos_embed_max_size: int = 96
    dual_attention_layers: tuple[int, ...] = ()
    qk_norm: str | None = None

    _class_value: ClassVar = "SD3Transformer2DModel"

    def __post_init__(self):
        counts = {field.name for field in dataclasses.fields(self)} - {
            "out_channels",
            "dual_attention_layers",
            "qk_norm",
        }
        self._require_positive(*sorted(counts))
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
            isinstance(dual, tuple) and all(one in layers_there and not isinstance(one, bool) for one in dual),
            "dual_attention_layers",
            f"numbers of blocks, below num_layers={self.num_layers}",
        )
        self._require(self.qk_norm in (None, "rms_norm"), "qk_norm", "null or 'rms_norm'")

    @property
    def width(self) -> int:
        """Of the transformer's states."""
        return self.num_attention_heads * self.attention_head_dim

    @property
    def width_per_position(self) -> int:
        """Numbers of the first layer's result for each position of the latents."""
        return self.width // self.patch_size**2

    @classmethod
    def sd3_medium(cls) -> Self:
        """Stable Diffusion 3 medium: ``transformer/config.json`` of ``stable-diffusion-3-medium-diffusers``."""
        return cls(num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pos_embed_max_size=192)

    @classmethod
    def sd35_medium(cls) -> Self:
        """Stable Diffusion 3.5 medium: that of ``stabilityai/stable-diffusion-3.5-medium``."""
        return dataclasses.replace(
            cls.sd3_medium(), pos_embed_max_size=384, dual_attention_layers=tuple(range(13)), qk_norm="rms_norm"
        )

    @classmethod
    def sd35_large(cls) -> Self:
        """Stable Diffusion 3.5 large: that of ``stabilityai/stable-diffusion-3.5-large``."""
        return cls(
            num_layers=38,
            num_attention_heads=38,
            caption_projection_dim=2432,
            pos_embed_max_size=192,
            qk_norm="rms_norm",
        )


class PatchEmbedding(nnx.Module):
    """Patches of latents as positions; ``pos_embed`` [1, positions, width] is a table that files hold, too."""

    def __init__(self, config: SD3TransformerConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.side = config.pos_embed_max_size
        self.patch_size = config.patch_size
        self.proj = layers.Conv2d(
            config.in_channels,
            config.width,
            config.patch_size,
            stride=config.patch_size,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )
        table = position_table(config.width, self.side, config.sample_size // config.patch_size)
        self.pos_embed = nnx.Param(jnp.asarray(table[None], param_dtype))

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

    Args:
      width: of the table.
      side: places along one side.
      base: places along one side that the model was first trained on, in whose units they are counted.

    Returns:
      float32 [side * side, width], row by row.
    """
    places = np.arange(side, dtype=np.float32) / np.float32(side / base)
    frequencies = 10000.0 ** -(np.arange(width // 4) / (width / 4))
    angles = places.astype(np.float64)[:, None] * frequencies
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    of_columns = np.broadcast_to(waves[None, :], (side, side, width // 2))
    of_rows = np.broadcast_to(waves[:, None], (side, side, width // 2))
    return np.concatenate([of_columns, of_rows], axis=-1).reshape(side * side, width).astype(np.float32)


class JointBlock(nnx.Module):
    """Joint attention and feed-forward layers of image and text (Esser et al. 2024, Figure 2b).

    Args:
      config: the transformer's.
      index: of the block; the last one ends the text.
    """

    def __init__(self, config: SD3TransformerConfig, index: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        width, heads, head_size = config.width, config.num_attention_heads, config.attention_head_dim
        self.dtype = dtype
        self.text_ends = index == config.num_layers - 1
        is_dual = index in config.dual_attention_layers
        normed = config.qk_norm is not None
        self.norm1 = Modulation(width, width, 9 if is_dual else 6, **kwargs)
        self.norm1_context = Modulation(width, width, 2 if self.text_ends else 6, **kwargs)
        self.attn = JointAttention(width, heads, head_size, text_ends=self.text_ends, qk_norm=normed, **kwargs)
        alone = {"with_text": False, "qk_norm": normed}
        self.attn2 = JointAttention(width, heads, head_size, **alone, **kwargs) if is_dual else None
        self.ff = FeedForward(width, **kwargs)
        self.ff_context = None if self.text_ends else FeedForward(width, **kwargs)

    def __call__(self, image: jax.Array, text: jax.Array, conditions: jax.Array) -> tuple[jax.Array, jax.Array]:
        """image [B, T, width], text [B, S, width], conditions [B, width] -> image and text again."""
        shift, scale, gate, shift_ff, scale_ff, gate_ff, *of_dual = self.norm1(conditions)
        normal = normalised(image)
        own = modulated(normal, scale, shift).astype(self.dtype)
        if self.text_ends:
            # Here the published norm is of another kind, whose scale comes first.
            text_scale, text_shift = self.norm1_context(conditions)
        else:
            text_shift, text_scale, text_gate, *of_text = self.norm1_context(conditions)
        other = modulated(normalised(text), text_scale, text_shift).astype(self.dtype)
        from_image, from_text = self.attn(own, other)
        image = image + gate[:, None] * from_image
        if self.attn2 is not None:
            shift2, scale2, gate2 = of_dual
            image = image + gate2[:, None] * self.attn2(modulated(normal, scale2, shift2).astype(self.dtype))[0]
        image = image + gate_ff[:, None] * self.ff(modulated(normalised(image), scale_ff, shift_ff).astype(self.dtype))
        if self.text_ends:
            return image, text
        text = text + text_gate[:, None] * from_text
        shift_ff, scale_ff, gate_ff = of_text
        hidden = modulated(normalised(text), scale_ff, shift_ff).astype(self.dtype)
        return image, text + gate_ff[:, None] * self.ff_context(hidden)


def _call(block: JointBlock, *arguments: jax.Array) -> tuple[jax.Array, jax.Array]:
    return block(*arguments)


# Keeps a block's inputs alone for the gradient, which computes the block again.
_call_and_forget = nnx.remat(_call, graph_updates=False)


class SD3Transformer2DModel(Network):
    """The denoiser of Stable Diffusion 3 and 3.5.

    Nothing lies ahead of the text but the patches: the pooled text enters with the time, so no rows are shared.
    """

    config_class: ClassVar = SD3TransformerConfig
    # The projections that image and text attend to each other by; and those of the image to itself alone.
    lora_targets: ClassVar = {
        "cross": re.compile(r"transformer_blocks\.\d+\.attn\.(to_(q|k|v|out\.0|add_out)|add_(q|k|v)_proj)"),
        "all": re.compile(r"transformer_blocks\.\d+\.attn2?\.(to_(q|k|v|out\.0|add_out)|add_(q|k|v)_proj)"),
    }

    def __init__(
        self, config: SD3TransformerConfig, *, dtype: Any = jnp.float32, param_dtype: Any = jnp.float32, rngs: nnx.Rngs
    ):
        self.config = config
        self.dtype = jnp.dtype(dtype)
        kwargs = {"dtype": self.dtype, "param_dtype": jnp.dtype(param_dtype), "rngs": rngs}
        self.pos_embed = PatchEmbedding(config, **kwargs)
        self.time_text_embed = joint_blocks.TimeTextEmbedding(config.width, config.pooled_projection_dim, **kwargs)
        self.context_embedder = linear(config.joint_attention_dim, config.width, **kwargs)
        self.transformer_blocks = nnx.List([JointBlock(config, index, **kwargs) for index in range(config.num_layers)])
        self.norm_out = LastNorm(config.width, **kwargs)
        self.proj_out = linear(config.width, config.patch_size**2 * self.out_channels, **kwargs)

    @property
    def out_channels(self) -> int:
        """Of the prediction."""
        return self.config.out_channels or self.config.in_channels

    def __call__(
        self, sample: jax.Array, timesteps: jax.Array, conditions: TextConditions, *, remat: bool = False
    ) -> jax.Array:
        """Predicts the velocity of noisy latents.

        Args:
          sample: noisy latents [B, h, w, in_channels]; h and w are multiples of ``patch_size``, with at most
            ``pos_embed_max_size`` positions along either side.
          timesteps: float [B], 1,000 times the noise level.
          conditions: of the texts.
          remat: keep only the inputs of each block for the gradient, which computes their insides again.

        Returns:
          [B, h, w, out_channels] in the compute dtype.

        Raises:
          ValueError: the sample has too many positions, or none.
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
        call = _call_and_forget if remat else _call
        for block in self.transformer_blocks:
            image, text = call(block, image, text, states)
        patches = self.proj_out(self.norm_out(image, states))
        patches = patches.reshape(batch, rows, columns, config.patch_size, config.patch_size, self.out_channels)
        return patches.swapaxes(2, 3).reshape(batch, height, width, self.out_channels)
