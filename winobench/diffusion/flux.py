"""FLUX.1: a transformer on a straight path, given T5's states, CLIP's pooled text, and a strength of guidance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import numpy as np

from winobench.base import options
from winobench.checkpoints import fast_tokenizers, tokenizer_files
from winobench.diffusion import stable_diffusion
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.folders import Description
from winobench.diffusion.pipeline import Pipeline
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.base import Network
from winobench.models.clip import CLIPTextConfig, CLIPTextModel
from winobench.models.flux_blocks import PATCH
from winobench.models.t5_encoder import T5EncoderConfig, T5EncoderModel
from winobench.models.transformer_flux import FluxConditions, FluxTransformer2DModel
from winobench.models.transformer_flux_config import FluxTransformerConfig

if TYPE_CHECKING:
    import transformers

_STRENGTH = options.number(0, 1e3)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Flux(Pipeline):
    """FLUX.1-dev and FLUX.1-schnell (Black Forest Labs 2024).

    Attributes:
      transformer: the denoiser. In dev, it takes the strength of the guidance that it was distilled from.
      vae: the autoencoder, with 16 channels.
      text_encoder: CLIP ViT-L's, of which the pooled text is taken, unprojected.
      text_encoder_2: T5's, of the transformer's dtype.
      tokenizer: a ``transformers.CLIPTokenizer``.
      tokenizer_2: T5's.
      schedule: noise levels. Those of dev are shifted by the image's size.
      timestep_range: see `Pipeline`.
      guidance_embedding: the strength that dev takes when images are judged. The default 0 is Self-Bench's. Generation
        has another strength.
      text_tokens: of every text for T5, padding included: 512, or 256 as in the examples for schnell.
    """

    transformer: FluxTransformer2DModel
    vae: AutoencoderKL
    text_encoder: CLIPTextModel
    text_encoder_2: T5EncoderModel
    tokenizer: transformers.CLIPTokenizer
    tokenizer_2: transformers.T5Tokenizer
    schedule: FlowSchedule
    timestep_range: tuple[int, int] | None = None
    guidance_embedding: float = 0.0
    text_tokens: int = 512

    CLASS_NAME: ClassVar = "FluxPipeline"
    NETWORKS: ClassVar = {
        "transformer": FluxTransformer2DModel,
        "vae": AutoencoderKL,
        "text_encoder": CLIPTextModel,
        "text_encoder_2": T5EncoderModel,
    }
    TOKENIZERS: ClassVar = ("tokenizer", "tokenizer_2")
    PARTS: ClassVar = {
        "transformer": ("diffusers", "FluxTransformer2DModel"),
        "vae": ("diffusers", "AutoencoderKL"),
        "text_encoder": ("transformers", "CLIPTextModel"),
        "text_encoder_2": ("transformers", "T5EncoderModel"),
        "tokenizer": ("transformers", "CLIPTokenizer"),
        "tokenizer_2": ("transformers", "T5TokenizerFast"),
    }
    SCHEDULE: ClassVar = FlowSchedule
    LATENTS_A_SIDE: ClassVar = PATCH
    LATENT_SIZE: ClassVar = 128
    DENOISER: ClassVar = "transformer"
    LARGE_ENCODERS: ClassVar = ("text_encoder_2",)
    RELEASED: ClassVar = {
        "flux1-dev": lambda: _released(FluxTransformerConfig.dev(), FlowSchedule(shift=3.0, use_dynamic_shifting=True)),
        "flux1-schnell": lambda: _released(FluxTransformerConfig.schnell(), FlowSchedule()),
    }
    SETTINGS: ClassVar = {"guidance_embedding": _STRENGTH, "text_tokens": options.whole(1, 512)}
    PUBLISHED_LEFT_OUT: ClassVar = 12
    EVEN_LEVELS: ClassVar = True

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> dict[str, np.ndarray]:
        """Turns texts into ids of both tokenizers.

        Returns ``ids`` int32 ``[num_texts, 77]``; ``ids_2`` int32 ``[num_texts, text_tokens]``, and for a transformer
        that takes it ``guidance``, float32 ``[num_texts]``.
        """
        length = stable_diffusion.max_text_tokens(self.tokenizer, self.text_encoder)
        ids = {
            "ids": tokenizer_files.clip_ids(self.tokenizer, texts, length),
            "ids_2": fast_tokenizers.fast_ids(self.tokenizer_2, texts, self.text_tokens)[0],
        }
        if self.transformer.config.guidance_embeds:
            ids["guidance"] = np.full(len(ids["ids"]), self.guidance_embedding, np.float32)
        return ids

    @staticmethod
    def encode_conditions(networks: Mapping[str, Network], ids: Mapping[str, jax.Array]) -> dict[str, jax.Array]:
        """See `Pipeline`. Released models have ``states`` ``[n, 512, 4096]`` and ``pooled`` ``[n, 768]``."""
        conditions = {
            "states": networks["text_encoder_2"](ids["ids_2"]),
            "pooled": networks["text_encoder"](ids["ids"]).pooled,
        }
        return conditions | ({"guidance": ids["guidance"]} if "guidance" in ids else {})

    @staticmethod
    def denoise(
        denoiser: Network, noisy: jax.Array, times: jax.Array, conditions: Mapping[str, jax.Array], **keywords: Any
    ) -> jax.Array:
        """See `Pipeline`. The transformer takes noise levels, without the factor of 1,000."""
        if "guidance" in conditions:
            keywords["guidance"] = conditions["guidance"]
        texts = FluxConditions(conditions["states"], conditions["pooled"])
        return denoiser(noisy, times / 1000, texts, **keywords)

    def guided(self, guidance_scale: float) -> tuple[Self, float]:
        """See `Pipeline`. The network of dev takes the scale. Schnell was distilled without guidance."""
        if not self.transformer.config.guidance_embeds:
            return self, 1.0
        return self.replace(guidance_embedding=guidance_scale), 1.0

    @staticmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """See `Pipeline`."""
        transformer, first, second = configs["transformer"], configs["text_encoder"], configs["text_encoder_2"]
        stable_diffusion.check_latents(transformer.latent_channels, configs["vae"], "transformer")
        for width, encoded, part in (
            (transformer.joint_attention_dim, second.d_model, "text states"),
            (transformer.pooled_projection_dim, first.hidden_size, "a pooled text"),
        ):
            stable_diffusion.check_width("transformer", part, width, "the text encoder", encoded)
        stable_diffusion.check_vocabulary("tokenizer", num_tokens["tokenizer"], "text encoder", first)
        stable_diffusion.check_vocabulary("tokenizer_2", num_tokens["tokenizer_2"], "second text encoder", second)


def _released(transformer: FluxTransformerConfig, schedule: FlowSchedule) -> Description:
    configs = {
        "transformer": transformer,
        "vae": AutoencoderKLConfig.flux(),
        "text_encoder": CLIPTextConfig.sd15(),
        "text_encoder_2": T5EncoderConfig.t5_xxl(),
    }
    return Description(Flux, schedule, None, configs)
