"""Stable Diffusion 1.x and 2.x: one text encoder, a UNet, an autoencoder."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from winobench.base.errors import InputError
from winobench.checkpoints import tokenizer_files
from winobench.diffusion import identity
from winobench.diffusion.folders import Description
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.schedules import NoiseSchedule
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.base import Network
from winobench.models.clip import CLIPTextConfig, CLIPTextModel
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

if TYPE_CHECKING:
    import transformers


def _released(unet: UNet2DConditionConfig, text_encoder: CLIPTextConfig, prediction_type: str) -> Description:
    configs = {"unet": unet, "vae": AutoencoderKLConfig.sd(), "text_encoder": text_encoder}
    return Description(StableDiffusion, published_schedule(prediction_type), None, configs)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StableDiffusion(Pipeline):
    """Stable Diffusion 1.x and 2.x (Rombach et al., 2022).

    Attributes:
      unet: the denoiser.
      vae: the autoencoder.
      text_encoder: the text encoder.
      tokenizer: a ``transformers.CLIPTokenizer``.
      schedule: the noise schedule.
      timestep_range: see `Pipeline`.
    """

    unet: UNet2DConditionModel
    vae: AutoencoderKL
    text_encoder: CLIPTextModel
    tokenizer: transformers.CLIPTokenizer
    schedule: NoiseSchedule
    timestep_range: tuple[int, int] | None = None

    CLASS_NAME: ClassVar = "StableDiffusionPipeline"
    NETWORKS: ClassVar = {"unet": UNet2DConditionModel, "vae": AutoencoderKL, "text_encoder": CLIPTextModel}
    PARTS: ClassVar = {
        "unet": ("diffusers", "UNet2DConditionModel"),
        "vae": ("diffusers", "AutoencoderKL"),
        "text_encoder": ("transformers", "CLIPTextModel"),
        "tokenizer": ("transformers", "CLIPTokenizer"),
    }
    RELEASED: ClassVar = {
        "sd15": lambda: _released(UNet2DConditionConfig.sd15(), CLIPTextConfig.sd15(), "epsilon"),
        "sd21-base": lambda: _released(UNet2DConditionConfig.sd21_base(), CLIPTextConfig.sd21(), "epsilon"),
        "sd21": lambda: _released(UNet2DConditionConfig.sd21(), CLIPTextConfig.sd21(), "v_prediction"),
    }
    INDEX: ClassVar = {
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
        "requires_safety_checker": False,
        "safety_checker": [None, None],
    }

    @property
    def max_text_tokens(self) -> int:
        """Number of tokens of every text, start, end and padding included."""
        return max_text_tokens(self.tokenizer, self.text_encoder)

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> np.ndarray:
        """Turns texts into ids, padded and truncated to ``max_text_tokens``.

        How many texts had to be truncated is logged, once a call.

        Returns int32 ``[num_texts, max_text_tokens]``.
        """
        return tokenizer_files.clip_ids(self.tokenizer, texts, self.max_text_tokens)

    @staticmethod
    def encode_conditions(networks: Mapping[str, Network], ids: jax.Array) -> jax.Array:
        """int32 ids ``[n, length]`` -> the states that the UNet attends to, ``[n, length, width]``."""
        return networks["text_encoder"](ids).last_hidden_state

    @staticmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """See `Pipeline`."""
        check_latents(configs["unet"].in_channels, configs["vae"])
        check_states(configs["unet"], configs["text_encoder"].hidden_size)
        check_vocabulary("tokenizer", num_tokens["tokenizer"], "text encoder", configs["text_encoder"])

    def own_identity(self) -> dict[str, Any]:
        """See `Pipeline`, but as it was before there were other families, so that runs recorded then continue."""
        return {"tokenizer": [*identity.tokenizer_identity(self.tokenizer), self.max_text_tokens]}


def published_schedule(prediction_type: str, scheduler: str = "DDIMScheduler") -> NoiseSchedule:
    """The noise schedule of Stable Diffusion 1.x, 2.x and XL as published."""
    return NoiseSchedule.from_config(
        {
            "_class_name": scheduler,
            "clip_sample": False,
            "num_train_timesteps": 1000,
            "beta_start": 0.00085,
            "beta_end": 0.012,
            "beta_schedule": "scaled_linear",
            "prediction_type": prediction_type,
        }
    )


def max_text_tokens(tokenizer: Any, text_encoder: CLIPTextModel) -> int:
    """Tokens of every text of a CLIP, start, end and padding included."""
    return int(min(tokenizer.model_max_length, text_encoder.config.max_position_embeddings))


def check_latents(channels: int, vae: Any, kind: str = "UNet") -> None:
    if channels != vae.latent_channels:
        raise InputError(
            f"the {kind} takes {channels} channels, but the autoencoder's latents have {vae.latent_channels}: the two"
            " are not of the same model, or it is for inpainting or inputs besides the text, which cannot be used",
            code="mismatched-parts",
        )


def check_states(unet: Any, width: int) -> None:
    widths = unet.cross_attention_dim
    for of_block in widths if isinstance(widths, tuple) else (widths,):
        check_width("UNet", "text states", of_block, "the text encoder", width)


def check_width(network: str, states: str, width: int, encoder: str, encoded: int) -> None:
    if width != encoded:
        raise InputError(
            f"the {network} takes {states} of width {width}, but {encoder} gives {encoded}: the two are not of the same"
            " model",
            code="mismatched-parts",
        )


def check_vocabulary(tokenizer: str, num_tokens: int, encoder: str, config: Any) -> None:
    if num_tokens > config.vocab_size:
        raise InputError(
            f"the {tokenizer} has {num_tokens} tokens, but the {encoder} knows {config.vocab_size}:"
            " the two are not of the same model",
            code="mismatched-parts",
        )
