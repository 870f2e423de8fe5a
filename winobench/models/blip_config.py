"""The configs of BLIP's networks, in the published layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from winobench.base.errors import InputError
from winobench.models.clip import IDLE_OPTIONS
from winobench.models.config import NetworkConfig

# What acts in training or in generation alone, and the widths of projections that this network does not have.
_NO_EFFECT = IDLE_OPTIONS | {
    "add_cross_attention",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "bos_token_id",
    "dropout",
    "eos_token_id",
    "hidden_dropout_prob",
    "label_smoothing",
    "logit_scale_init_value",
    "pad_token_id",
    "projection_dim",
    "use_cache",
}


_ONLY = {"hidden_act": ("gelu",), "is_encoder_decoder": (False,), "pruned_heads": ({}, ())}


@dataclasses.dataclass(frozen=True)
class BlipVisionConfig(NetworkConfig):
    """Shape of the image encoder, with the names and defaults of the published ``config.json``."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    image_size: int = 384
    patch_size: int = 16
    layer_norm_eps: float = 1e-5  # 1e-6 in the original code (published configs rely on this)

    hidden_act: ClassVar = "gelu"

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip_vision_model"
    _only: ClassVar = _ONLY | {"num_channels": (3,), "is_decoder": (False,)}
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        self._require(
            self.image_size % self.patch_size == 0, "image_size", f"a multiple of patch_size={self.patch_size}"
        )
        self._require_epsilon("layer_norm_eps")

    @property
    def num_positions(self) -> int:
        """Number of states of an image: one a patch, and one before them for the whole."""
        return (self.image_size // self.patch_size) ** 2 + 1


@dataclasses.dataclass(frozen=True)
class BlipTextConfig(NetworkConfig):
    """Shape of the text encoder, with the names and defaults of the published ``config.json``."""

    vocab_size: int = 30524
    hidden_size: int = 768
    encoder_hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    # Configs written by transformers rely on its default, 8. All published files name 12, except revisions of the hub
    # repositories before April 2023, which name 8 by mistake.
    num_attention_heads: int = 8
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-12
    bos_token_id: int | None = 30522  # [DEC], which begins texts in BLIP's decoder; [ENC] comes after it

    hidden_act: ClassVar = "gelu"
    hidden_dropout_prob: ClassVar = 0.0
    attention_probs_dropout_prob: ClassVar = 0.0
    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip_text_model"
    _only: ClassVar = _ONLY | {"is_decoder": (True,), "position_embedding_type": ("absolute",)}
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        self._require_epsilon("layer_norm_eps")
        if self.bos_token_id is not None:
            self._require_token_ids("bos_token_id")


@dataclasses.dataclass(frozen=True)
class BlipConfig(NetworkConfig):
    """Shape of the whole network, with the names and defaults of the published ``config.json``."""

    text_config: BlipTextConfig = BlipTextConfig()
    vision_config: BlipVisionConfig = BlipVisionConfig()
    image_text_hidden_size: int = 256

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip"
    architecture: ClassVar = "BlipForImageTextRetrieval"
    _only: ClassVar = {"is_encoder_decoder": (False,)}
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_counts()
        width = self.vision_config.hidden_size
        if self.text_config.encoder_hidden_size != width:
            raise InputError(
                f"BlipConfig: the text encoder attends to states of width {self.text_config.encoder_hidden_size}"
                f" (encoder_hidden_size), but images have {width} (hidden_size).",
                code="mismatched-parts",
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. ``encoder_hidden_size`` is the image encoder's width: early files leave it out."""
        if isinstance(values, Mapping):
            named = values.get("architectures") or [cls.architecture]
            if cls.architecture not in named:
                raise InputError(
                    f"BlipConfig: the config belongs to {named[0]}, which has no head for image-text matching. Take a"
                    " checkpoint such as Salesforce/blip-itm-base-coco.",
                    code="no-task-head",
                )
            vision = BlipVisionConfig.from_dict(values.get("vision_config") or {})
            text = values.get("text_config") or {}
            if isinstance(text, Mapping):
                text = {**text, "encoder_hidden_size": vision.hidden_size}
            values = {**values, "vision_config": vision, "text_config": BlipTextConfig.from_dict(text)}
        return super().from_dict(values)
