"""The configs of BLIP-2 and InstructBLIP, in the published layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from winobench.base import options
from winobench.base.errors import InputError
from winobench.models.blip_config import BlipVisionConfig
from winobench.models.clip import IDLE_OPTIONS
from winobench.models.config import NetworkConfig, is_count
from winobench.models.decoder_config import DecoderConfig
from winobench.models.opt_config import OPTConfig
from winobench.models.t5_config import T5Config

# What acts in training or in generation alone, and the head for matching, which these networks do not have.
_NO_EFFECT = IDLE_OPTIONS | {
    "attention_probs_dropout_prob",
    "bos_token_id",
    "classifier_dropout",
    "eos_token_id",
    "gradient_checkpointing",
    "hidden_dropout_prob",
    "image_text_hidden_size",
    "is_encoder_decoder",
    "pad_token_id",
    "use_cache",
    "video_token_index",
}


@dataclasses.dataclass(frozen=True)
class Blip2VisionConfig(BlipVisionConfig):
    """Shape of the image encoder, EVA-CLIP's ViT-g by default. Options as in `BlipVisionConfig`."""

    hidden_size: int = 1408
    intermediate_size: int = 6144
    num_hidden_layers: int = 39
    num_attention_heads: int = 16
    image_size: int = 224
    patch_size: int = 14
    layer_norm_eps: float = 1e-6

    _class_value: ClassVar = "blip_2_vision_model"
    _only: ClassVar = BlipVisionConfig._only | {"qkv_bias": (True,), "add_cross_attention": (False,)}


@dataclasses.dataclass(frozen=True)
class InstructBlipVisionConfig(Blip2VisionConfig):
    """The same under InstructBLIP's name."""

    _class_value: ClassVar = "instructblip_vision_model"


@dataclasses.dataclass(frozen=True)
class Blip2QFormerConfig(NetworkConfig):
    """Shape of the Q-Former, with the names and defaults of the published ``config.json``."""

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-12
    cross_attention_frequency: int = 2  # every so many layers, from the first on, attend to the image
    encoder_hidden_size: int = 1408

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip_2_qformer"
    hidden_act: ClassVar = "gelu"
    hidden_dropout_prob: ClassVar = 0.0
    attention_probs_dropout_prob: ClassVar = 0.0
    _only: ClassVar = {
        "add_cross_attention": (False,),
        "hidden_act": ("gelu",),
        "is_decoder": (False,),
        "position_embedding_type": ("absolute",),
        "pruned_heads": ({}, ()),
        "use_qformer_text_input": (False,),
    }
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        self._require_epsilon("layer_norm_eps")

    def attends_to_images(self, layer: int) -> bool:
        """Whether the layer of this number has cross-attention."""
        return layer % self.cross_attention_frequency == 0


@dataclasses.dataclass(frozen=True)
class InstructBlipQFormerConfig(Blip2QFormerConfig):
    """The same of a Q-Former that reads the question, too."""

    _class_value: ClassVar = "instructblip_qformer"


@dataclasses.dataclass(frozen=True)
class Blip2Config(NetworkConfig):
    """Shape of the whole network, with the names and defaults of the published ``config.json``."""

    vision_config: Blip2VisionConfig = Blip2VisionConfig()
    qformer_config: Blip2QFormerConfig = Blip2QFormerConfig()
    text_config: T5Config | OPTConfig | DecoderConfig = dataclasses.field(default_factory=T5Config)
    num_query_tokens: int = 32  # states of an image that the language model reads
    image_token_index: int | None = None  # None in files of 2024 and before

    architecture: ClassVar[str] = "Blip2ForConditionalGeneration"
    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip-2"
    _no_effect: ClassVar = _NO_EFFECT | {"use_decoder_only_language_model"}
    _parts: ClassVar = {"vision_config": Blip2VisionConfig, "qformer_config": Blip2QFormerConfig}
    _languages: ClassVar = {"t5": T5Config, "opt": OPTConfig}

    def __post_init__(self):
        self._require_counts()
        token = self.image_token_index
        is_token = token is None or (is_count(token) and token < self.text_config.vocab_size)
        self._require(is_token, "image_token_index", f"a token id below {self.text_config.vocab_size}")
        width = self.vision_config.hidden_size
        if self.qformer_config.encoder_hidden_size != width:
            raise InputError(
                f"{type(self).__name__}: the Q-Former attends to states of width"
                f" {self.qformer_config.encoder_hidden_size} (encoder_hidden_size), but images have {width}"
                " (hidden_size).",
                code="mismatched-parts",
            )

    @property
    def image_states(self) -> int:
        """Number of states that the language model reads of an image."""
        return self.num_query_tokens

    @property
    def text_width(self) -> int:
        """Width of the language model's states."""
        text = self.text_config
        return text.d_model if isinstance(text, T5Config) else text.hidden_size

    @property
    def start(self) -> int | None:
        """The token that an answer of a T5 begins with; None of a decoder alone, which continues from the question."""
        return getattr(self.text_config, "decoder_start_token_id", None)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. The Q-Former's ``encoder_hidden_size`` is the image encoder's width in any case."""
        if isinstance(values, Mapping):
            named = values.get("architectures") or [cls.architecture]
            if not isinstance(named, list | tuple) or cls.architecture not in named:
                first = named[0] if isinstance(named, list | tuple) else options.quote(named)
                raise InputError(
                    f"{cls.__name__}: the config describes {first}, which writes no text. Take a checkpoint of"
                    f" {cls.architecture}.",
                    code="no-task-head",
                )
            text = values.get("text_config") or {}
            kind = text.get("model_type", "opt") if isinstance(text, Mapping) else None
            if not isinstance(kind, str) or kind not in cls._languages:
                raise InputError(
                    f"{cls.__name__}: the language model is of the type {options.quote(kind)}, but winobench implements"
                    f" {' and '.join(map(repr, cls._languages))} only. Take a checkpoint with FLAN-T5.",
                    code="unsupported-option",
                )
            vision = cls._parts["vision_config"].from_dict(values.get("vision_config") or {})
            part = values.get("qformer_config") or {}
            if isinstance(part, Mapping):
                part = {**part, "encoder_hidden_size": vision.hidden_size}
            text = cls._languages[kind].from_dict(text)
            values = {**values, "vision_config": vision, "qformer_config": part, "text_config": text}
        return super().from_dict(values)


@dataclasses.dataclass(frozen=True)
class InstructBlipConfig(Blip2Config):
    """The same of InstructBLIP, whose Q-Former reads the question, too."""

    vision_config: InstructBlipVisionConfig = InstructBlipVisionConfig()
    qformer_config: InstructBlipQFormerConfig = InstructBlipQFormerConfig()

    architecture: ClassVar[str] = "InstructBlipForConditionalGeneration"
    _class_value: ClassVar = "instructblip"
    _parts: ClassVar = {"vision_config": InstructBlipVisionConfig, "qformer_config": InstructBlipQFormerConfig}
    _languages: ClassVar = {"t5": T5Config, "llama": DecoderConfig}
