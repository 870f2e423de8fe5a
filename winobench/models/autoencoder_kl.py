"""The image autoencoder of Stable Diffusion (Rombach et al., 2022), in the published layout."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import layers
from winobench.models.attention import Attention
from winobench.models.base import KeyTable, Network
from winobench.models.config import NetworkConfig, is_count
from winobench.models.stable_diffusion_blocks import Downsample2D, ResnetBlock2D, Upsample2D

# Epsilon of every group norm in the published autoencoders. It is in no config.
_EPSILON = 1e-6
# Bounds of the log variance, as in the published model.
_LOGVAR_RANGE = (-30.0, 20.0)


@dataclasses.dataclass(frozen=True)
class AutoencoderKLConfig(NetworkConfig):
    """Shape of an autoencoder, with the names and defaults of the published ``config.json``."""

    in_channels: int = 3
    out_channels: int = 3
    down_block_types: tuple[str, ...] = ("DownEncoderBlock2D",)
    up_block_types: tuple[str, ...] = ("UpDecoderBlock2D",)
    block_out_channels: tuple[int, ...] = (64,)  # from fine to coarse (each level after the first halves the image)
    layers_per_block: int = 1  # in the encoder (one more in the decoder)
    act_fn: str = "silu"  # or its other name "swish"
    latent_channels: int = 4
    norm_num_groups: int = 32
    sample_size: int | tuple[int, int] = 32
    scaling_factor: float = 0.18215  # of latents before diffusion (the caller multiplies)
    shift_factor: float | None = None  # subtracted from latents before that
    force_upcast: bool = True  # kept for the file's sake: the weights overflow in float16, and nothing is upcast here
    use_quant_conv: bool = True
    use_post_quant_conv: bool = True
    mid_block_add_attention: bool = True

    _class_value: ClassVar = "AutoencoderKL"
    _only: ClassVar = {"latents_mean": (None,), "latents_std": (None,)}
    _optional: ClassVar = frozenset({"shift_factor"})

    def __post_init__(self) -> None:
        levels = self._require_levels(self.block_out_channels)
        for key, name in (("down_block_types", "DownEncoderBlock2D"), ("up_block_types", "UpDecoderBlock2D")):
            self._require(
                getattr(self, key) == (name,) * levels, key, f"{name} {levels} times, as in block_out_channels"
            )
        self._require_counts()
        self._require_bool("force_upcast", "use_quant_conv", "use_post_quant_conv", "mid_block_add_attention")
        self._require_number("scaling_factor")
        if self.shift_factor is not None:
            is_number = isinstance(self.shift_factor, int | float) and not isinstance(self.shift_factor, bool)
            self._require(is_number and abs(self.shift_factor) <= 1e3, "shift_factor", "null or a number up to 1000")
        self._require(
            all(channels % self.norm_num_groups == 0 for channels in self.block_out_channels),
            "norm_num_groups",
            f"a divisor of every number in block_out_channels={self.block_out_channels}",
        )
        self._require(self.act_fn in ("silu", "swish"), "act_fn", "'silu'")
        size = self.sample_size
        self._require(
            is_count(size) or (isinstance(size, tuple) and len(size) == 2 and all(map(is_count, size))),
            "sample_size",
            "a positive whole number or two of them",
        )

    @classmethod
    def sd(cls) -> Self:
        """Stable Diffusion 1.5: ``vae/config.json`` of ``stable-diffusion-v1-5/stable-diffusion-v1-5``.

        Those of 2.1-base and 2.1 differ in ``sample_size`` alone, which is 768 there.
        """
        return cls(
            down_block_types=("DownEncoderBlock2D",) * 4,
            up_block_types=("UpDecoderBlock2D",) * 4,
            block_out_channels=(128, 256, 512, 512),
            layers_per_block=2,
            sample_size=512,
        )

    @classmethod
    def sdxl(cls) -> Self:
        """Stable Diffusion XL base 1.0: ``stabilityai/stable-diffusion-xl-base-1.0``."""
        return dataclasses.replace(cls.sd(), sample_size=1024, scaling_factor=0.13025)

    @classmethod
    def sd3(cls) -> Self:
        """Stable Diffusion 3 and 3.5: ``vae/config.json`` of ``stabilityai/stable-diffusion-3-medium-diffusers``."""
        return dataclasses.replace(
            cls.sd(),
            sample_size=1024,
            latent_channels=16,
            scaling_factor=1.5305,
            shift_factor=0.0609,
            use_quant_conv=False,
            use_post_quant_conv=False,
        )

    @classmethod
    def flux(cls) -> Self:
        """FLUX.1: ``black-forest-labs/FLUX.1-dev``; Z-Image's is the same."""
        return dataclasses.replace(cls.sd3(), scaling_factor=0.3611, shift_factor=0.1159)

    @property
    def downsampling(self) -> int:
        """Image pixels along one side of a latent pixel."""
        return 2 ** (len(self.block_out_channels) - 1)


def _resnets(config: AutoencoderKLConfig, inputs: list[int], channels: int, **kwargs: Any) -> nnx.List:
    return nnx.List(
        [
            ResnetBlock2D(
                width, channels, time_channels=None, groups=config.norm_num_groups, epsilon=_EPSILON, **kwargs
            )
            for width in inputs
        ]
    )


class AttentionBlock(Attention):
    """Single-head self-attention over the positions of a feature map, after a group norm and around a residual."""

    def __init__(self, channels: int, groups: int, **kwargs: Any):
        super().__init__(channels, 1, bias=True, **kwargs)
        self.group_norm = layers.GroupNorm(groups, channels, epsilon=_EPSILON, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, channels] -> the same shape."""
        batch, height, width, channels = x.shape
        positions = self.group_norm(x).reshape(batch, height * width, channels)
        return x + super().__call__(positions).reshape(x.shape)


class MidBlock(nnx.Module):
    """The coarsest level (``UNetMidBlock2D``): residual block, attention (if any), residual block."""

    def __init__(self, config: AutoencoderKLConfig, **kwargs: Any):
        channels = config.block_out_channels[-1]
        self.resnets = _resnets(config, [channels, channels], channels, **kwargs)
        self.attentions = (
            nnx.List([AttentionBlock(channels, config.norm_num_groups, **kwargs)])
            if config.mid_block_add_attention
            else None
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, channels] -> the same shape."""
        x = self.resnets[0](x)
        if self.attentions is not None:
            x = self.attentions[0](x)
        return self.resnets[1](x)


class DownBlock(nnx.Module):
    """One level of the encoder (``DownEncoderBlock2D``)."""

    def __init__(self, config: AutoencoderKLConfig, level: int, **kwargs: Any):
        channels = config.block_out_channels[level]
        inputs = [config.block_out_channels[max(level - 1, 0)]] + [channels] * (config.layers_per_block - 1)
        self.resnets = _resnets(config, inputs, channels, **kwargs)
        last = level == len(config.block_out_channels) - 1
        self.downsamplers = None if last else nnx.List([Downsample2D(channels, padding=0, **kwargs)])

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, inputs] -> [B, h / 2, w / 2, channels] (the last level keeps height and width)."""
        for resnet in self.resnets:
            x = resnet(x)
        return x if self.downsamplers is None else self.downsamplers[0](x)


class UpBlock(nnx.Module):
    """One level of the decoder (``UpDecoderBlock2D``), index 0 being the coarsest."""

    def __init__(self, config: AutoencoderKLConfig, index: int, **kwargs: Any):
        widths = config.block_out_channels
        level = len(widths) - 1 - index
        channels = widths[level]
        inputs = [widths[min(level + 1, len(widths) - 1)]] + [channels] * config.layers_per_block
        self.resnets = _resnets(config, inputs, channels, **kwargs)
        self.upsamplers = nnx.List([Upsample2D(channels, **kwargs)]) if level > 0 else None

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, inputs] -> [B, 2h, 2w, channels] (the last level keeps height and width)."""
        for resnet in self.resnets:
            x = resnet(x)
        return x if self.upsamplers is None else self.upsamplers[0](x)


class _Coder(nnx.Module):
    """Layers around the blocks, shared by encoder and decoder."""

    def __init__(self, config: AutoencoderKLConfig, inputs: int, entry: int, leave: int, outputs: int, **kwargs: Any):
        self.conv_in = layers.Conv2d(inputs, entry, 3, padding=1, **kwargs)
        self.mid_block = MidBlock(config, **kwargs)
        self.conv_norm_out = layers.GroupNorm(config.norm_num_groups, leave, epsilon=_EPSILON, **kwargs)
        self.conv_out = layers.Conv2d(leave, outputs, 3, padding=1, **kwargs)


class Encoder(_Coder):
    """Images to the parameters of a Gaussian over latents."""

    def __init__(self, config: AutoencoderKLConfig, **kwargs: Any):
        widths = config.block_out_channels
        super().__init__(config, config.in_channels, widths[0], widths[-1], 2 * config.latent_channels, **kwargs)
        self.down_blocks = nnx.List([DownBlock(config, level, **kwargs) for level in range(len(widths))])

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, H, W, in_channels] -> [B, h, w, 2 * latent_channels]."""
        x = self.conv_in(x)
        for block in self.down_blocks:
            x = block(x)
        return self.conv_out(jax.nn.silu(self.conv_norm_out(self.mid_block(x))))


class Decoder(_Coder):
    """Latents to images."""

    def __init__(self, config: AutoencoderKLConfig, **kwargs: Any):
        widths = config.block_out_channels
        super().__init__(config, config.latent_channels, widths[-1], widths[0], config.out_channels, **kwargs)
        self.up_blocks = nnx.List([UpBlock(config, index, **kwargs) for index in range(len(widths))])

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, h, w, latent_channels] -> [B, H, W, out_channels]."""
        x = self.mid_block(self.conv_in(x))
        for block in self.up_blocks:
            x = block(x)
        return self.conv_out(jax.nn.silu(self.conv_norm_out(x)))


class AutoencoderKL(Network):
    """Encodes images to latents and decodes them. Attribute names equal the names in the published weights."""

    config_class: ClassVar = AutoencoderKLConfig
    # Files made before diffusers 0.17 name the attention in the way of the original code.
    file_keys: ClassVar = KeyTable(
        renames=tuple(
            (rf"((?:en|de)coder\.mid_block\.attentions\.\d+)\.{old}\.", rf"\1.{new}.")
            for old, new in {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}.items()
        )
    )

    def build(self, config: AutoencoderKLConfig, **kwargs: Any) -> None:
        self.encoder = Encoder(config, **kwargs)
        self.decoder = Decoder(config, **kwargs)
        latents = config.latent_channels
        self.quant_conv = layers.Conv2d(2 * latents, 2 * latents, 1, **kwargs) if config.use_quant_conv else None
        self.post_quant_conv = layers.Conv2d(latents, latents, 1, **kwargs) if config.use_post_quant_conv else None

    def encode(self, images: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The Gaussian over latents.

        Args:
          images: [B, H, W, in_channels] in [-1, 1]; H and W multiples of ``config.downsampling``.

        Returns:
          (mean, log variance), each [B, h, w, latent_channels], not multiplied by the scaling factor. The log variance
          is kept within [-30, 20].
        """
        x = self.encoder(images.astype(self.dtype))
        if self.quant_conv is not None:
            x = self.quant_conv(x)
        mean, logvar = jnp.split(x, 2, axis=-1)
        return mean, jnp.clip(logvar, *_LOGVAR_RANGE)

    def decode(self, latents: jax.Array) -> jax.Array:
        """latents [B, h, w, latent_channels], divided by the scaling factor -> images [B, H, W, out_channels]."""
        x = latents.astype(self.dtype)
        if self.post_quant_conv is not None:
            x = self.post_quant_conv(x)
        return self.decoder(x)
