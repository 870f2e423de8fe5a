"""The networks of the embedded model, as its config describes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax.numpy as jnp
from flax import nnx

from winobench.diffusion import schedules
from winobench.models import autoencoder_kl, clip, unet_2d_condition
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

if TYPE_CHECKING:
    import ml_collections


def autoencoder_config(config: ml_collections.ConfigDict) -> autoencoder_kl.AutoencoderKLConfig:
    """The autoencoder's architecture, with a scaling factor of 1 that ``fit_scaling_factor`` replaces."""
    settings = config.autoencoder
    levels = len(settings.block_out_channels)
    return autoencoder_kl.AutoencoderKLConfig.from_dict(
        {
            "block_out_channels": tuple(settings.block_out_channels),
            "down_block_types": ("DownEncoderBlock2D",) * levels,
            "up_block_types": ("UpDecoderBlock2D",) * levels,
            "layers_per_block": settings.layers_per_block,
            "latent_channels": settings.latent_channels,
            "norm_num_groups": settings.norm_num_groups,
            "sample_size": config.data.image_size,
            "scaling_factor": 1.0,
        }
    )


def unet_config(config: ml_collections.ConfigDict) -> UNet2DConditionConfig:
    """The denoiser's architecture; the way up mirrors the way down."""
    settings = config.denoiser
    down_blocks = tuple(settings.down_block_types)
    factor = 2 ** (len(config.autoencoder.block_out_channels) - 1)
    return UNet2DConditionConfig.from_dict(
        {
            "sample_size": config.data.image_size // factor,
            "in_channels": config.autoencoder.latent_channels,
            "out_channels": config.autoencoder.latent_channels,
            "block_out_channels": tuple(settings.block_out_channels),
            "down_block_types": down_blocks,
            "up_block_types": tuple(name.replace("Down", "Up") for name in reversed(down_blocks)),
            "layers_per_block": settings.layers_per_block,
            "attention_head_dim": settings.num_heads,
            "norm_num_groups": 32,
            "cross_attention_dim": config.text_encoder.hidden_size,
            "use_linear_projection": True,
        }
    )


def text_config(config: ml_collections.ConfigDict, vocab_size: int) -> clip.CLIPTextConfig:
    """The text encoder's architecture; the end token is the last id of the vocabulary and also pads."""
    settings = config.text_encoder
    return clip.CLIPTextConfig.from_dict(
        {
            "vocab_size": vocab_size,
            "hidden_size": settings.hidden_size,
            "intermediate_size": 4 * settings.hidden_size,
            "num_hidden_layers": settings.num_hidden_layers,
            "num_attention_heads": settings.num_attention_heads,
            "max_position_embeddings": config.data.max_length,
            "hidden_act": "quick_gelu",
            "bos_token_id": vocab_size - 2,
            "eos_token_id": vocab_size - 1,
            "pad_token_id": vocab_size - 1,
        }
    )


def schedule(config: ml_collections.ConfigDict) -> schedules.NoiseSchedule:
    """Stable Diffusion's noise schedule with the recipe's parametrisation."""
    return schedules.NoiseSchedule.from_config(
        {
            "_class_name": "DDIMScheduler",
            "num_train_timesteps": 1000,
            "beta_schedule": "scaled_linear",
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "prediction_type": config.denoiser.prediction_type,
            "clip_sample": False,
            "set_alpha_to_one": False,
            "steps_offset": 1,
        }
    )


def zero_output_layers(unet: unet_2d_condition.UNet2DConditionModel) -> None:
    """Zeroes the last layer of every residual branch and of the network, in place.

    The network then starts as the identity around its skips, which speeds up early training (Ho et al. 2020).
    """
    for path, module in nnx.iter_modules(unet):
        if path and path[-1] in ("conv2", "proj_out", "conv_out"):
            module.kernel[...] = jnp.zeros_like(module.kernel[...])
            if module.bias is not None:
                module.bias[...] = jnp.zeros_like(module.bias[...])
