"""The configs of BLIP's networks, in the published layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from winobench.base.errors import InputError
from winobench.models.clip import IDLE_OPTIONS
from winobench.models.config import NetworkConfig, is_count

ARCHITECTURE = "BlipForImageTextRetrieval"


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


def _require_whole_heads(config: BlipVisionConfig | BlipTextConfig) -> None:
    config._require(
        config.hidden_size % config.num_attention_heads == 0,
        "num_attention_heads",
        f"a divisor of hidden_size={config.hidden_size}",
    )


@dataclasses.dataclass(frozen=True)
class BlipVisionConfig(NetworkConfig):
    """Shape of the image encoder, with the names and defaults of the published ``config.json``.

    Attributes:
      hidden_size: width of the states.
      intermediate_size: width within the feed-forward layers.
      num_hidden_layers: number of layers.
      num_attention_heads: number of heads.
      image_size: height and width of an image in pixels.
      patch_size: height and width of a patch in pixels.
      layer_norm_eps: epsilon of the layer norms. The original code has 1e-6. The published configs rely on 1e-5.
    """

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    image_size: int = 384
    patch_size: int = 16
    layer_norm_eps: float = 1e-5

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip_vision_model"
    _only: ClassVar = _ONLY | {"num_channels": (3,), "is_decoder": (False,)}
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_positive(
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "image_size",
            "patch_size",
        )
        _require_whole_heads(self)
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
    """Shape of the text encoder, with the names and defaults of the published ``config.json``.

    Attributes:
      vocab_size: number of token ids.
      hidden_size: width of the states.
      encoder_hidden_size: width of the image states that are attended to.
      intermediate_size: width within the feed-forward layers.
      num_hidden_layers: number of layers.
      num_attention_heads: number of heads. The default, 8, is that of transformers, on which configs written by it
        rely. Every published BLIP has 12 and says so, except in revisions of the hub repositories before April 2023,
        whose 8 was a mistake.
      max_position_embeddings: longest text in tokens.
      layer_norm_eps: epsilon of the layer norms.
      bos_token_id: id of the token ``[DEC]``, which begins texts in BLIP's decoder, and after which ``[ENC]`` comes.
    """

    vocab_size: int = 30524
    hidden_size: int = 768
    encoder_hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-12
    bos_token_id: int | None = 30522

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip_text_model"
    _only: ClassVar = _ONLY | {"is_decoder": (True,), "position_embedding_type": ("absolute",)}
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_positive(
            "vocab_size",
            "hidden_size",
            "encoder_hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
            "max_position_embeddings",
        )
        _require_whole_heads(self)
        self._require_epsilon("layer_norm_eps")
        bos = self.bos_token_id
        self._require(bos is None or is_count(bos) or (bos == 0 and bos is not False), "bos_token_id", "one token id")


@dataclasses.dataclass(frozen=True)
class BlipConfig(NetworkConfig):
    """Shape of the whole network, with the names and defaults of the published ``config.json``.

    Attributes:
      text_config: of the text encoder.
      vision_config: of the image encoder.
      image_text_hidden_size: width of the joint space of images and texts.
    """

    text_config: BlipTextConfig = BlipTextConfig()
    vision_config: BlipVisionConfig = BlipVisionConfig()
    image_text_hidden_size: int = 256

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "blip"
    _only: ClassVar = {"is_encoder_decoder": (False,)}
    _no_effect: ClassVar = _NO_EFFECT

    def __post_init__(self):
        self._require_positive("image_text_hidden_size")
        width = self.vision_config.hidden_size
        if self.text_config.encoder_hidden_size != width:
            raise InputError(
                f"BlipConfig: the text encoder attends to states of width {self.text_config.encoder_hidden_size}"
                f" (encoder_hidden_size), but those of images have {width} (hidden_size).",
                code="mismatched-parts",
            )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Builds the config from the contents of a published ``config.json``. See the base class.

        The width of the image states that the text encoder attends to is that of the image encoder, whatever the file
        says: early files leave it out.
        """
        if isinstance(values, Mapping):
            named = values.get("architectures") or [ARCHITECTURE]
            if ARCHITECTURE not in named:
                raise InputError(
                    f"BlipConfig: the config is that of {named[0]}, which has no head for image-text matching. Take a"
                    " checkpoint such as Salesforce/blip-itm-base-coco.",
                    code="no-task-head",
                )
            vision = BlipVisionConfig.from_dict(values.get("vision_config") or {})
            text = values.get("text_config") or {}
            if isinstance(text, Mapping):
                text = {**text, "encoder_hidden_size": vision.hidden_size}
            values = {**values, "vision_config": vision, "text_config": BlipTextConfig.from_dict(text)}
        return super().from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """The contents of a ``config.json`` that describes this network, ready for ``json.dump``."""
        parts = {"text_config": self.text_config.to_dict(), "vision_config": self.vision_config.to_dict()}
        return {"architectures": [ARCHITECTURE]} | super().to_dict() | parts
