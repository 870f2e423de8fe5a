"""The text-conditioned UNet of Stable Diffusion 1.x, 2.x and XL (Rombach et al., 2022; Podell et al., 2023).

In the published layout.
"""

from __future__ import annotations

import re
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import layers
from winobench.models.base import Network
from winobench.models.stable_diffusion_blocks import Downsample2D, ResnetBlock2D, Transformer2DModel, Upsample2D
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig


class _Level(nnx.Module):
    """Residual blocks with their attention, shared by the blocks of the way down, the middle and the way up.

    ``inputs`` are the channels that enter each residual block, ``channels`` those that leave it.
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
        **kwargs: Any,
    ):
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

    def __init__(self, config: UNet2DConditionConfig, level: int, **kwargs: Any):
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
        self, x: jax.Array, time: jax.Array, context: jax.Array, rows: jax.Array | None = None, *, remat: bool = False
    ) -> tuple[jax.Array, list[jax.Array]]:
        """x [B, h, w, inputs] -> (its successor, every intermediate result for the way up).

        With rows, int32 [N], context is [N, ...] and meets those rows of x. From there on, all have N rows.
        """
        call = layers.caller(remat)
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

    def __init__(self, config: UNet2DConditionConfig, **kwargs: Any):
        channels = config.block_out_channels[-1]
        super().__init__(
            config,
            [channels, channels],
            channels,
            len(config.block_out_channels) - 1,
            cross_attention=True,
            attentions=1,
            output_scale=config.mid_block_scale_factor,
            **kwargs,
        )

    def __call__(
        self, x: jax.Array, time: jax.Array, context: jax.Array, rows: jax.Array | None = None, *, remat: bool = False
    ) -> jax.Array:
        """x [B, h, w, channels] -> the same shape, or [N, h, w, channels] with rows, as in `DownBlock`."""
        call = layers.caller(remat)
        x = call(self.attentions[0], call(self.resnets[0], x, time), context, rows)
        return call(self.resnets[1], x, time if rows is None else time[rows])


class UpBlock(_Level):
    """One level of the way up (``UpBlock2D``, ``CrossAttnUpBlock2D``). Index 0 is the coarsest."""

    def __init__(self, config: UNet2DConditionConfig, index: int, **kwargs: Any):
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
        call = layers.caller(remat)
        for i, resnet in enumerate(self.resnets):
            x = call(resnet, x, time, skips[-1 - i])
            if self.attentions is not None:
                x = call(self.attentions[i], x, context)
        return x if self.upsamplers is None else self.upsamplers[0](x, size)


class UNet2DConditionModel(Network):
    """Predicts the noise (or velocity) in noisy latents, given the timestep and text states.

    Attribute names equal the names in the published weights (``down_blocks.0.resnets.0.conv1`` and so on).
    """

    config_class: ClassVar = UNet2DConditionConfig
    # The projections of the attention to the text (attn2), and of that to the image (attn1).
    lora_targets: ClassVar = {
        "cross": re.compile(r".*\.attn2\.to_(q|k|v|out\.0)"),
        "all": re.compile(r".*\.attn[12]\.to_(q|k|v|out\.0)"),
    }

    def build(self, config: UNet2DConditionConfig, **kwargs: Any) -> None:
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
        """Whether anything but the first convolution lies ahead of the texts. Added conditioning enters right after."""
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
          sample: noisy latents [B, h, w, in_channels], scaled as the model was trained. Any size will do. Multiples of
            2 ** (levels - 1) need no cropping on the way up.
          timesteps: [B], whole or fractional.
          encoder_hidden_states: text states [B, L, cross_attention_dim]; [N, L, cross_attention_dim] with sample_rows.
          sample_rows: int32 [N], where several texts share one sample: the row of ``sample`` and
            ``timesteps`` that each of the text states belongs to. All that comes before the first cross-attention is
            then computed once for each sample.
          text_embeds: pooled texts [B, pooled_text_dim] ([N, ...] with sample_rows), for added conditioning.
          time_ids: the six sizes [B, 6] ([N, 6]) of added conditioning.
          remat: rematerialise: keep only the inputs of each residual block and each transformer for the gradient, which
            then computes their insides again. Less memory for about a third more computation. The result is the same.

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
