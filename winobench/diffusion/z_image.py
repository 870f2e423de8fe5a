"""Z-Image: a transformer on a straight path, with one stream for an image and the states of a Qwen3 of its text."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.checkpoints import fast_tokenizers
from winobench.diffusion import stable_diffusion
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.folders import Description
from winobench.diffusion.pipeline import Pipeline
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.base import Network
from winobench.models.qwen3_text import Qwen3Model, Qwen3TextConfig
from winobench.models.transformer_z_image import ZImageConditions, ZImageTransformer2DModel
from winobench.models.transformer_z_image_config import MULTIPLE, PATCH, ZImageTransformerConfig

if TYPE_CHECKING:
    import transformers


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class ZImage(Pipeline):
    """Z-Image and Z-Image-Turbo, of 6 billion parameters (Z-Image Team, arXiv 2511.22699).

    Attributes:
      transformer: the denoiser.
      vae: the autoencoder, with 16 channels.
      text_encoder: a Qwen3, of the transformer's dtype. The states that its last layer but one leaves are taken.
      tokenizer: its tokenizer, with its chat template: a text is what a user says, and the answer is about to begin.
      schedule: noise levels, shifted by a fixed factor.
      timestep_range: see `Pipeline`.
      text_tokens: of every text, template included, at most. The transformer is given a text's own ones alone.
    """

    transformer: ZImageTransformer2DModel
    vae: AutoencoderKL
    text_encoder: Qwen3Model
    tokenizer: transformers.Qwen2TokenizerFast
    schedule: FlowSchedule
    timestep_range: tuple[int, int] | None = None
    text_tokens: int = 512

    CLASS_NAME: ClassVar = "ZImagePipeline"
    NETWORKS: ClassVar = {"transformer": ZImageTransformer2DModel, "vae": AutoencoderKL, "text_encoder": Qwen3Model}
    PARTS: ClassVar = {
        "transformer": ("diffusers", "ZImageTransformer2DModel"),
        "vae": ("diffusers", "AutoencoderKL"),
        "text_encoder": ("transformers", "Qwen3Model"),
        "tokenizer": ("transformers", "Qwen2TokenizerFast"),
    }
    SCHEDULE: ClassVar = FlowSchedule
    LATENTS_A_SIDE: ClassVar = PATCH
    DENOISER: ClassVar = "transformer"
    LARGE_ENCODERS: ClassVar = ("text_encoder",)
    RELEASED: ClassVar = {"z-image-turbo": lambda: _released(3.0), "z-image": lambda: _released(6.0)}
    SETTINGS: ClassVar = {"text_tokens": options.whole(1, 512)}
    EVEN_LEVELS: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        limit = self.transformer.config.axes_lens[0] - 2  # places begin at 1, and the last one is the image's
        if -(-self.text_tokens // MULTIPLE) * MULTIPLE > limit:
            raise InputError(
                f"text_tokens is {self.text_tokens}, but the transformer has places (axes_lens) for"
                f" {limit // MULTIPLE * MULTIPLE}"
            )
        last_but_one = (self.text_encoder.config.num_hidden_layers - 1,)
        object.__setattr__(self, "text_encoder", self.text_encoder.taking(last_but_one))

    def check_image_size(self, image_size: int | None = None) -> int:
        """See `Pipeline`. The transformer has no more rows and columns than its config states."""
        size = super().check_image_size(image_size)
        most = min(self.transformer.config.axes_lens[1:]) * PATCH * self.vae.config.downsampling
        if size > most:
            raise InputError(f"image_size is {size}, but the transformer has places (axes_lens) for {most} pixels")
        return size

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> dict[str, np.ndarray]:
        """Turns texts into ids, each in the chat template, which has space for a thought.

        Returns ``ids`` int32 ``[num_texts, text_tokens]`` and ``lengths`` int32 ``[num_texts]``, without padding.
        Raises InputError as in `Pipeline`, and where the tokenizer has no chat template.
        """
        prompts = fast_tokenizers.apply_chat_template(self.tokenizer, texts, thinking=True)
        ids, lengths = fast_tokenizers.fast_ids(self.tokenizer, prompts, self.text_tokens)
        return {"ids": ids, "lengths": lengths}

    @staticmethod
    def encode_conditions(networks: Mapping[str, Network], ids: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """See `Pipeline`. Released models have ``states`` ``[n, 512, 2560]``, and ``lengths`` ``[n]``."""
        states = networks["text_encoder"](ids["ids"], ids["lengths"])
        return {"states": states, "lengths": ids["lengths"]}

    @staticmethod
    def denoise(
        denoiser: Network, noisy: jax.Array, times: jax.Array, conditions: Mapping[str, jax.Array], **keywords: Any
    ) -> jax.Array:
        """See `Pipeline`. The transformer counts time from noise to latents, and answers z - eps."""
        texts = ZImageConditions(conditions["states"], conditions["lengths"])
        return -denoiser(noisy, (1000 - times) / 1000, texts, **keywords)

    def guided(self, guidance_scale: float) -> tuple[Self, float]:
        """See `Pipeline`. The scale is diffusers' for this family, which counts from 0, for none, instead of 1."""
        return self, 1.0 + max(guidance_scale, 0.0)

    @staticmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """See `Pipeline`."""
        transformer, vae, encoder = (configs[name] for name in ("transformer", "vae", "text_encoder"))
        stable_diffusion.check_latents(transformer.in_channels, vae, "transformer")
        width = transformer.cap_feat_dim
        stable_diffusion.check_width("transformer", "text states", width, "the text encoder", encoder.hidden_size)
        stable_diffusion.check_vocabulary("tokenizer", num_tokens["tokenizer"], "text encoder", encoder)


def _released(shift: float) -> Description:
    configs = {
        "transformer": ZImageTransformerConfig.z_image(),
        "vae": AutoencoderKLConfig.flux(),
        "text_encoder": Qwen3TextConfig.qwen3_4b(),
    }
    return Description(ZImage, FlowSchedule(shift=shift), None, configs)
