"""Stable Diffusion 3 and 3.5: a transformer on a straight path, and three text encoders."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.checkpoints import fast_tokenizers, tokenizer_files
from winobench.diffusion import stable_diffusion
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.diffusion.folders import Description
from winobench.diffusion.pipeline import Pipeline
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.base import Network
from winobench.models.clip import CLIPTextModelWithProjection, CLIPTextProjectionConfig
from winobench.models.t5_encoder import T5EncoderConfig, T5EncoderModel
from winobench.models.transformer_sd3 import SD3Transformer2DModel, SD3TransformerConfig, TextConditions

if TYPE_CHECKING:
    import transformers

_T5_TOKENS = 256


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class StableDiffusion3(Pipeline):
    """Stable Diffusion 3 (Esser et al. 2024) and 3.5.

    The transformer attends to the penultimate states of both CLIP encoders, side by side and filled up with zeros, and
    behind them to T5's. It also takes both projected pooled texts.

    Attributes:
      transformer: the denoiser.
      vae: the autoencoder, with 16 channels.
      text_encoder: CLIP ViT-L's, with its projection.
      text_encoder_2: OpenCLIP ViT-bigG's, with its projection.
      text_encoder_3: T5's, of the transformer's dtype; None where it is left out, and its states are zeros.
      tokenizer: a ``transformers.CLIPTokenizer``.
      tokenizer_2: the same with another token for padding.
      tokenizer_3: T5's; None as well.
      schedule: noise levels, shifted by 3.
      timestep_range: see `Pipeline`.
      zero_t5: leave the third encoder out, which is then not loaded.
      text_tokens: of every text for T5, padding included. Or zeros, where it is left out.
    """

    transformer: SD3Transformer2DModel
    vae: AutoencoderKL
    text_encoder: CLIPTextModelWithProjection
    text_encoder_2: CLIPTextModelWithProjection
    text_encoder_3: T5EncoderModel | None
    tokenizer: transformers.CLIPTokenizer
    tokenizer_2: transformers.CLIPTokenizer
    tokenizer_3: transformers.T5Tokenizer | None
    schedule: FlowSchedule
    timestep_range: tuple[int, int] | None = None
    zero_t5: bool = False
    text_tokens: int = _T5_TOKENS

    CLASS_NAME: ClassVar = "StableDiffusion3Pipeline"
    NETWORKS: ClassVar = {
        "transformer": SD3Transformer2DModel,
        "vae": AutoencoderKL,
        "text_encoder": CLIPTextModelWithProjection,
        "text_encoder_2": CLIPTextModelWithProjection,
        "text_encoder_3": T5EncoderModel,
    }
    TOKENIZERS: ClassVar = ("tokenizer", "tokenizer_2", "tokenizer_3")
    PARTS: ClassVar = {
        "transformer": ("diffusers", "SD3Transformer2DModel"),
        "vae": ("diffusers", "AutoencoderKL"),
        "text_encoder": ("transformers", "CLIPTextModelWithProjection"),
        "text_encoder_2": ("transformers", "CLIPTextModelWithProjection"),
        "text_encoder_3": ("transformers", "T5EncoderModel"),
        "tokenizer": ("transformers", "CLIPTokenizer"),
        "tokenizer_2": ("transformers", "CLIPTokenizer"),
        "tokenizer_3": ("transformers", "T5Tokenizer"),
    }
    OPTIONAL: ClassVar = ("text_encoder_3", "tokenizer_3")
    SCHEDULE: ClassVar = FlowSchedule
    DENOISER: ClassVar = "transformer"
    LARGE_ENCODERS: ClassVar = ("text_encoder_3",)
    RELEASED: ClassVar = {
        "sd3-medium": lambda: _released(SD3TransformerConfig.sd3_medium()),
        "sd35-medium": lambda: _released(SD3TransformerConfig.sd35_medium()),
        "sd35-large": lambda: _released(SD3TransformerConfig.sd35_large()),
    }
    SETTINGS: ClassVar = {"zero_t5": options.flag(), "text_tokens": options.whole(0, 512)}

    def __post_init__(self) -> None:
        if self.zero_t5 or self.text_encoder_3 is None:
            for name, value in {"zero_t5": True, **dict.fromkeys(self.OPTIONAL)}.items():
                object.__setattr__(self, name, value)
        super().__post_init__()
        if self.text_tokens == 0 and not self.zero_t5:
            raise InputError(
                "text_tokens is 0, but T5 needs a token at least: leave it out by zero_t5", code="out-of-range"
            )

    @classmethod
    def left_out(cls, settings: Mapping[str, Any]) -> tuple[str, ...]:
        """See `Pipeline`."""
        return cls.OPTIONAL if settings.get("zero_t5") else ()

    @property
    def max_text_tokens(self) -> int:
        """Number of tokens of every text of the CLIP encoders, start, end and padding included."""
        pairs = ((self.tokenizer, self.text_encoder), (self.tokenizer_2, self.text_encoder_2))
        return min(stable_diffusion.max_text_tokens(*pair) for pair in pairs)

    def tokenize(self, texts: Sequence[str], *, image_size: int | None = None) -> dict[str, np.ndarray]:
        """Turns texts into ids of the three tokenizers.

        Returns ``ids`` and ``ids_2``, int32 ``[num_texts, max_text_tokens]``; ``ids_3`` int32
        ``[num_texts, text_tokens]``, zeros where T5 is left out.
        """
        length = self.max_text_tokens
        ids = tokenizer_files.clip_ids(self.tokenizer, texts, length)
        ids_2 = tokenizer_files.clip_ids(self.tokenizer_2, texts, length)
        if self.tokenizer_3 is None:
            ids_3 = np.zeros((len(ids), self.text_tokens), np.int32)
        else:
            ids_3, _ = fast_tokenizers.fast_ids(self.tokenizer_3, texts, self.text_tokens)
        return {"ids": ids, "ids_2": ids_2, "ids_3": ids_3}

    @staticmethod
    def encode_conditions(networks: Mapping[str, Network], ids: Mapping[str, jax.Array]) -> TextConditions:
        """See `Pipeline`. Released models have states ``[n, 333, 4096]`` and pooled texts ``[n, 2048]``.

        Without T5, states are as wide as CLIP's alone: `denoise` fills them up.
        """
        first = networks["text_encoder"](ids["ids"])
        second = networks["text_encoder_2"](ids["ids_2"])
        clip = jnp.concatenate([first.penultimate, second.penultimate], axis=-1)
        if "text_encoder_3" in networks:
            third = networks["text_encoder_3"](ids["ids_3"]).astype(clip.dtype)
            clip = _widened(clip, third.shape[-1])
        else:
            third = jnp.zeros((*ids["ids_3"].shape, clip.shape[-1]), clip.dtype)
        return TextConditions(
            states=jnp.concatenate([clip, third], axis=1),
            pooled=jnp.concatenate([first.text_embeds, second.text_embeds], axis=-1),
        )

    @staticmethod
    def denoise(
        denoiser: Network, noisy: jax.Array, times: jax.Array, conditions: TextConditions, **keywords: Any
    ) -> jax.Array:
        """See `Pipeline`."""
        conditions = conditions._replace(states=_widened(conditions.states, denoiser.config.joint_attention_dim))
        return denoiser(noisy, times, conditions, **keywords)

    @staticmethod
    def check_fit(configs: Mapping[str, Any], num_tokens: Mapping[str, int]) -> None:
        """See `Pipeline`."""
        transformer, first, second = configs["transformer"], configs["text_encoder"], configs["text_encoder_2"]
        stable_diffusion.check_latents(transformer.in_channels, configs["vae"], "transformer")
        width, of_clip = transformer.joint_attention_dim, first.hidden_size + second.hidden_size
        third = configs.get("text_encoder_3")
        if width < of_clip or (third and third.d_model != width):
            of_t5 = f"T5's have {third.d_model} and " if third else ""
            raise InputError(
                f"the transformer takes text states of width {width}, but {of_t5}CLIP's have {of_clip}: the parts are"
                " not of the same model",
                code="mismatched-parts",
            )
        if third:
            stable_diffusion.check_vocabulary("tokenizer_3", num_tokens["tokenizer_3"], "third text encoder", third)
        pooled = first.projection_dim + second.projection_dim
        wanted = transformer.pooled_projection_dim
        stable_diffusion.check_width("transformer", "a pooled text", wanted, "the pair of CLIP encoders", pooled)
        stable_diffusion.check_vocabulary("tokenizer", num_tokens["tokenizer"], "text encoder", first)
        stable_diffusion.check_vocabulary("tokenizer_2", num_tokens["tokenizer_2"], "second text encoder", second)

    def own_identity(self) -> dict[str, Any]:
        """See `Pipeline`."""
        identity = {**super().own_identity(), "max_text_tokens": [self.max_text_tokens, self.text_tokens]}
        return {**identity, "settings": {"zero_t5": self.zero_t5}}


def _widened(states: jax.Array, width: int) -> jax.Array:
    """States [..., at most width], filled up with zeros."""
    return jnp.pad(states, (*[(0, 0)] * (states.ndim - 1), (0, width - states.shape[-1])))


def _released(transformer: SD3TransformerConfig) -> Description:
    configs = {
        "transformer": transformer,
        "vae": AutoencoderKLConfig.sd3(),
        "text_encoder": CLIPTextProjectionConfig.sd3(),
        "text_encoder_2": CLIPTextProjectionConfig.sdxl_2(),
        "text_encoder_3": T5EncoderConfig.t5_xxl(),
    }
    return Description(StableDiffusion3, FlowSchedule(shift=3.0), None, configs)
