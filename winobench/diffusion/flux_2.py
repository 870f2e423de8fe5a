"""FLUX.2-klein: a transformer on a straight path, which attends to states from between a Qwen3's layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.checkpoints import fast_tokenizers
from winobench.diffusion import stable_diffusion
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.folders import Description
from winobench.diffusion.pipeline import Pipeline
from winobench.models.autoencoder_kl_flux2 import AutoencoderKLFlux2, AutoencoderKLFlux2Config
from winobench.models.base import Network
from winobench.models.flux_blocks import PATCH
from winobench.models.qwen3_text import Qwen3TextConfig, Qwen3TextEncoder
from winobench.models.transformer_flux2 import Flux2Transformer2DModel
from winobench.models.transformer_flux2_config import Flux2TransformerConfig

if TYPE_CHECKING:
    import transformers

# diffusers' fits of the shift to the number of positions, in runs of 200 and of 10 steps: (slope, at none).
_AT_200, _AT_10, _MOST_FITTED = (0.00016927, 0.45666666), (8.73809524e-05, 1.89833333), 4300


def empirical_shift(positions: int, num_steps: int) -> float:
    """The shift of a generated image's noise levels: ``compute_empirical_mu`` of diffusers.

    A straight line in the number of steps, through fits at 200 and 10 of them. For large images, the fit at 200.
    """
    at_200, at_10 = (slope * positions + offset for slope, offset in (_AT_200, _AT_10))
    return at_200 if positions > _MOST_FITTED else at_200 + (at_200 - at_10) / 190 * (num_steps - 200)


class Flux2Schedule(FlowSchedule):
    """A `FlowSchedule`, but images are generated with a shift that depends on the number of steps, too."""

    def sampling_levels(self, num_steps: int, *, evenly: bool) -> np.ndarray:
        shifted = self
        if self.positions is not None:
            shift = empirical_shift(self.positions, num_steps)
            shifted = dataclasses.replace(self, base_shift=shift, max_shift=shift)
        return FlowSchedule.sampling_levels(shifted, num_steps, evenly=evenly)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Flux2Klein(Pipeline):
    """FLUX.2-klein and its base, of 4 and 9 billion parameters (Black Forest Labs 2026).

    Attributes:
      transformer: the denoiser.
      vae: the autoencoder, with 32 channels, whose latents are normalised in patches.
      text_encoder: a Qwen3, of the transformer's dtype.
      tokenizer: its tokenizer, with its chat template: a text is what a user says, and the answer is about to begin.
      schedule: noise levels, shifted by the image's size.
      timestep_range: see `Pipeline`.
      is_distilled: it generates in a few steps and without guidance. The base models do not.
      text_tokens: of every text, template and padding included.
      text_encoder_out_layers: after how many of the encoder's layers the states are taken, side by side.
    """

    transformer: Flux2Transformer2DModel
    vae: AutoencoderKLFlux2
    text_encoder: Qwen3TextEncoder
    tokenizer: transformers.Qwen2TokenizerFast
    schedule: Flux2Schedule
    timestep_range: tuple[int, int] | None = None
    is_distilled: bool = False
    text_tokens: int = 512
    text_encoder_out_layers: tuple[int, ...] = (9, 18, 27)

    CLASS_NAME: ClassVar = "Flux2KleinPipeline"
    NETWORKS: ClassVar = {
        "transformer": Flux2Transformer2DModel,
        "vae": AutoencoderKLFlux2,
        "text_encoder": Qwen3TextEncoder,
    }
    PARTS: ClassVar = {
        "transformer": ("diffusers", "Flux2Transformer2DModel"),
        "vae": ("diffusers", "AutoencoderKLFlux2"),
        "text_encoder": ("transformers", "Qwen3ForCausalLM"),
        "tokenizer": ("transformers", "Qwen2TokenizerFast"),
    }
    INDEX_FIELDS: ClassVar = {"is_distilled": options.flag()}
    SCHEDULE: ClassVar = Flux2Schedule
    LATENTS_A_SIDE: ClassVar = PATCH
    LATENT_SIZE: ClassVar = 128
    DENOISER: ClassVar = "transformer"
    LARGE_ENCODERS: ClassVar = ("text_encoder",)
    LATENT_MULTIPLE: ClassVar = PATCH
    RELEASED: ClassVar = {
        "flux2-klein-4b": lambda: _released(Flux2TransformerConfig.klein_4b(), Qwen3TextConfig.qwen3_4b(), True),
        "flux2-klein-base-4b": lambda: _released(Flux2TransformerConfig.klein_4b(), Qwen3TextConfig.qwen3_4b(), False),
        "flux2-klein-9b": lambda: _released(Flux2TransformerConfig.klein_9b(), Qwen3TextConfig.qwen3_8b(), True),
        "flux2-klein-base-9b": lambda: _released(Flux2TransformerConfig.klein_9b(), Qwen3TextConfig.qwen3_8b(), False),
    }
    SETTINGS: ClassVar = {
        "text_tokens": options.whole(1, 512),
        "text_encoder_out_layers": options.items(options.whole(0, 1000), high=1000),
    }
    PUBLISHED_LEFT_OUT: ClassVar = 12
    EVEN_LEVELS: ClassVar = True

    def __post_init__(self) -> None:
        super().__post_init__()
        layers, encoder = self.text_encoder_out_layers, self.text_encoder.config
        if max(layers) > encoder.num_hidden_layers:
            raise InputError(
                f"text_encoder_out_layers has {max(layers)}, but the text encoder {encoder.num_hidden_layers} layers",
                code="mismatched-parts",
            )
        width, encoded = self.transformer.config.joint_attention_dim, len(layers) * encoder.hidden_size
        if width != encoded:
            raise InputError(
                f"the transformer takes text states of width {width}, but {len(layers)} layers of the text encoder give"
                f" {encoded}: the two are not of the same model, or text_encoder_out_layers names others than it needs",
                code="mismatched-parts",
            )
        object.__setattr__(self, "text_encoder", self.text_encoder.taking(layers))

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> dict[str, np.ndarray]:
        """Turns texts into ids, each in the chat template with an empty thought behind it.

        Returns ``ids`` int32 ``[num_texts, text_tokens]`` and ``lengths`` int32 ``[num_texts]``, without padding.
        Raises InputError as in `Pipeline`, and where the tokenizer has no chat template.
        """
        prompts = fast_tokenizers.apply_chat_template(self.tokenizer, texts)
        ids, lengths = fast_tokenizers.fast_ids(self.tokenizer, prompts, self.text_tokens)
        return {"ids": ids, "lengths": lengths}

    @staticmethod
    def encode_conditions(networks: Mapping[str, Network], ids: Mapping[str, jax.Array]) -> jax.Array:
        """See `Pipeline`. Released models have ``[n, 512, 7680]`` (4B) and ``[n, 512, 12288]`` (9B).

        The transformer attends to padding as well.
        """
        return networks["text_encoder"](ids["ids"], ids["lengths"])

    @staticmethod
    def denoise(
        denoiser: Network, noisy: jax.Array, times: jax.Array, conditions: jax.Array, **keywords: Any
    ) -> jax.Array:
        """See `Pipeline`. The transformer takes noise levels, without the factor of 1,000."""
        return denoiser(noisy, times / 1000, conditions, **keywords)

    @staticmethod
    def encode_latents(autoencoder: Network, images: jax.Array, noise: jax.Array | None = None) -> jax.Array:
        """See `Pipeline`. Normalised by the autoencoder's statistics."""
        mean, logvar = (part.astype(jnp.float32) for part in autoencoder.encode(images))
        return autoencoder.normalize(mean if noise is None else mean + jnp.exp(0.5 * logvar) * noise)

    @staticmethod
    def decode_images(autoencoder: Network, latents: jax.Array) -> jax.Array:
        """See `Pipeline`."""
        return autoencoder.decode(autoencoder.denormalize(latents))

    def guided(self, guidance_scale: float) -> tuple[Self, float]:
        """See `Pipeline`: the distilled models take no guidance."""
        return self, 1.0 if self.is_distilled else super().guided(guidance_scale)[1]

    @staticmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """See `Pipeline`. What the choice of the encoder's layers decides is checked once it is known."""
        transformer, encoder = configs["transformer"], configs["text_encoder"]
        if transformer.guidance_embeds:
            raise InputError(
                "guidance_embeds of the transformer is not supported for FLUX.2-klein",
                code="unsupported-option",
            )
        stable_diffusion.check_latents(transformer.latent_channels, configs["vae"], "transformer")
        if transformer.joint_attention_dim % encoder.hidden_size:
            raise InputError(
                f"the transformer takes text states of width {transformer.joint_attention_dim}, which is not a multiple"
                f" of the text encoder's {encoder.hidden_size}: the two are not of the same model",
                code="mismatched-parts",
            )
        stable_diffusion.check_vocabulary("tokenizer", num_tokens["tokenizer"], "text encoder", encoder)


def _released(transformer: Flux2TransformerConfig, text_encoder: Qwen3TextConfig, is_distilled: bool) -> Description:
    configs = {"transformer": transformer, "vae": AutoencoderKLFlux2Config.flux2(), "text_encoder": text_encoder}
    schedule = Flux2Schedule(shift=3.0, use_dynamic_shifting=True)
    return Description(Flux2Klein, schedule, None, configs, {"is_distilled": is_distilled})
