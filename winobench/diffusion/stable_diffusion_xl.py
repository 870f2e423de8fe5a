"""Stable Diffusion XL: two text encoders, whose pooled text and the image's sizes condition the UNet as well."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.checkpoints import tokenizer_files
from winobench.diffusion import stable_diffusion
from winobench.diffusion.folders import Description
from winobench.diffusion.pipeline import Pipeline
from winobench.diffusion.schedules import NoiseSchedule
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.base import Network
from winobench.models.clip import (
    CLIPTextConfig,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPTextProjectionConfig,
)
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import ADDITION, UNet2DConditionConfig

if TYPE_CHECKING:
    import transformers


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StableDiffusionXL(Pipeline):
    """Stable Diffusion XL (Podell et al., 2023), base models.

    The UNet attends to the penultimate states of both encoders, side by side. It also takes the second encoder's
    projected pooled text and six numbers: the first size of the image, the corner of its crop, the size of the result.
    Images are scored as whole images of their size: (size, size, 0, 0, size, size), as in diffusers.

    Attributes:
      unet: the denoiser.
      vae: the autoencoder.
      text_encoder: CLIP ViT-L's.
      text_encoder_2: OpenCLIP ViT-bigG's, with its projection.
      tokenizer: a ``transformers.CLIPTokenizer``.
      tokenizer_2: the same with another token for padding.
      schedule: the noise schedule.
      timestep_range: see `Pipeline`.
      zero_empty_text: give the empty text zeros instead of what the encoders make of it. When None, each use has its
        own rule: scores rest on the encoded text, as in published code, and guidance follows the folder.
      force_zeros_for_empty_prompt: whether guidance starts from zeros, as ``model_index.json`` says. Where it states
        nothing they are zeros, as in diffusers.
    """

    unet: UNet2DConditionModel
    vae: AutoencoderKL
    text_encoder: CLIPTextModel
    text_encoder_2: CLIPTextModelWithProjection
    tokenizer: transformers.CLIPTokenizer
    tokenizer_2: transformers.CLIPTokenizer
    schedule: NoiseSchedule
    timestep_range: tuple[int, int] | None = None
    zero_empty_text: bool | None = None
    force_zeros_for_empty_prompt: bool = True

    CLASS_NAME: ClassVar = "StableDiffusionXLPipeline"
    NETWORKS: ClassVar = {
        "unet": UNet2DConditionModel,
        "vae": AutoencoderKL,
        "text_encoder": CLIPTextModel,
        "text_encoder_2": CLIPTextModelWithProjection,
    }
    TOKENIZERS: ClassVar = ("tokenizer", "tokenizer_2")
    PARTS: ClassVar = {
        "unet": ("diffusers", "UNet2DConditionModel"),
        "vae": ("diffusers", "AutoencoderKL"),
        "text_encoder": ("transformers", "CLIPTextModel"),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection"),
        "tokenizer": ("transformers", "CLIPTokenizer"),
        "tokenizer_2": ("transformers", "CLIPTokenizer"),
    }
    INDEX: ClassVar = {
        "add_watermarker": None,
        "feature_extractor": [None, None],
        "image_encoder": [None, None],
    }
    INDEX_FIELDS: ClassVar = {"force_zeros_for_empty_prompt": options.flag()}
    RELEASED: ClassVar = {"sdxl": lambda: _released()}
    SETTINGS: ClassVar = {"zero_empty_text": options.flag().or_none()}

    @property
    def max_text_tokens(self) -> int:
        """Number of tokens of every text, start, end and padding included."""
        pairs = ((self.tokenizer, self.text_encoder), (self.tokenizer_2, self.text_encoder_2))
        return min(stable_diffusion.max_text_tokens(*pair) for pair in pairs)

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> dict[str, np.ndarray]:
        """Turns texts into ids of both tokenizers, and adds the sizes.

        Returns ``ids`` and ``ids_2``, int32 ``[num_texts, max_text_tokens]``; ``time_ids`` int32 ``[num_texts, 6]``;
        ``keep`` int32 ``[num_texts]``, 0 where a text's conditions are zeros (empty ones with ``zero_empty_text``).
        """
        size = self.image_size if image_size is None else image_size
        length = self.max_text_tokens
        ids = tokenizer_files.clip_ids(self.tokenizer, texts, length)
        ids_2 = tokenizer_files.clip_ids(self.tokenizer_2, texts, length)
        sizes = np.tile(np.array([size, size, 0, 0, size, size], np.int32), (len(ids), 1))
        zeros = [bool(self.zero_empty_text) and not text for text in texts]
        return {"ids": ids, "ids_2": ids_2, "time_ids": sizes, "keep": 1 - np.asarray(zeros, np.int32)}

    @staticmethod
    def encode_conditions(networks: Mapping[str, Network], ids: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """``states`` ``[n, length, 2048]``, ``pooled`` ``[n, 1280]`` (widths of SDXL), ``time_ids`` int32 [n, 6]."""
        first = networks["text_encoder"](ids["ids"])
        second = networks["text_encoder_2"](ids["ids_2"])
        states = jnp.concatenate([first.penultimate, second.penultimate], axis=-1)
        pooled, keep = second.text_embeds, ids["keep"]
        return {
            "states": jnp.where(keep[:, None, None] == 0, jnp.zeros_like(states), states),
            "pooled": jnp.where(keep[:, None] == 0, jnp.zeros_like(pooled), pooled),
            "time_ids": ids["time_ids"],
        }

    @staticmethod
    def denoise(
        denoiser: Network, noisy: jax.Array, times: jax.Array, conditions: Mapping[str, jax.Array], **keywords: Any
    ) -> jax.Array:
        """See `Pipeline`."""
        added = {"text_embeds": conditions["pooled"], "time_ids": conditions["time_ids"]}
        return denoiser(noisy, times, conditions["states"], **added, **keywords)

    def guided(self, guidance_scale: float) -> tuple[Self, float]:
        """See `Pipeline`. Every prompt is encoded, the empty one as well."""
        return self.replace(zero_empty_text=False), super().guided(guidance_scale)[1]

    def unconditional(self) -> Self:
        """See `Pipeline`. Zeros where the folder or ``zero_empty_text`` says so."""
        by_folder = self.zero_empty_text is None
        return self.replace(zero_empty_text=self.force_zeros_for_empty_prompt if by_folder else self.zero_empty_text)

    def generation_identity(self, guidance_scale: float, sampler: str | None, image_size: int) -> dict[str, Any]:
        """See `Pipeline`. The fingerprint, which holds for scores, does not show that the folder requires zeros.

        Earlier versions gave the UNet the model's own size for images of another one.
        """
        by_folder = self.zero_empty_text is None and self.force_zeros_for_empty_prompt
        zeros = {"zero_empty_text": True} if by_folder and guidance_scale > 1 else {}
        size = {} if image_size == self.image_size else {"conditioned_size": image_size}
        return {**super().generation_identity(guidance_scale, sampler, image_size), **zeros, **size}

    @staticmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """See `Pipeline`."""
        unet, first, second = configs["unet"], configs["text_encoder"], configs["text_encoder_2"]
        stable_diffusion.check_latents(unet.in_channels, configs["vae"])
        stable_diffusion.check_states(unet, first.hidden_size + second.hidden_size)
        if unet.pooled_text_dim != second.projection_dim:
            takes = "none" if unet.pooled_text_dim is None else f"one of width {unet.pooled_text_dim}"
            raise InputError(
                f"the second text encoder gives a pooled text of width {second.projection_dim}, but the UNet takes"
                f" {takes} (addition_embed_type {ADDITION!r}): the two are not of the same model",
                code="mismatched-parts",
            )
        stable_diffusion.check_vocabulary("tokenizer", num_tokens["tokenizer"], "text encoder", first)
        stable_diffusion.check_vocabulary("tokenizer_2", num_tokens["tokenizer_2"], "second text encoder", second)

    def own_identity(self) -> dict[str, Any]:
        """See `Pipeline`. An unset ``zero_empty_text`` encodes the text where images are scored."""
        settings = {"zero_empty_text": bool(self.zero_empty_text)}
        return {**super().own_identity(), "settings": settings, "max_text_tokens": self.max_text_tokens}


def _released() -> Description:
    configs = {
        "unet": UNet2DConditionConfig.sdxl(),
        "vae": AutoencoderKLConfig.sdxl(),
        "text_encoder": CLIPTextConfig.sd15(),
        "text_encoder_2": CLIPTextProjectionConfig.sdxl_2(),
    }
    schedule = stable_diffusion.published_schedule("epsilon", "EulerDiscreteScheduler")
    return Description(StableDiffusionXL, schedule, None, configs)
