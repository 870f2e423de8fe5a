"""Shape of a Qwen2.5-VL, read from transformers' ``config.json``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from winobench.models import clip
from winobench.models.config import NetworkConfig
from winobench.models.decoder_config import DecoderConfig
from winobench.models.qwen3_vl_config import Qwen3VLConfig, Qwen3VLTextConfig, Qwen3VLVisionConfig, check_heads

_TOKENS = {f"{name}_token_id" for name in ("video", "vision", "vision_start", "vision_end")}


@dataclasses.dataclass(frozen=True)
class Qwen25VLVisionConfig(NetworkConfig):
    """Shape of the vision tower, with the names and defaults of transformers' ``config.json``."""

    depth: int = 32
    hidden_size: int = 3584
    intermediate_size: int = 3420
    num_heads: int = 16
    patch_size: int = 14
    spatial_merge_size: int = 2  # patches along a side of a square, which is one state of the language model
    temporal_patch_size: int = 2  # frames
    window_size: int = 112  # pixels along a side of a window, within which most layers attend
    out_hidden_size: int = 3584
    fullatt_block_indexes: tuple[int, ...] = (7, 15, 23, 31)  # layers that attend to the whole image

    mlp_bias: ClassVar[bool] = True  # as `winobench.models.decoder.DecoderMLP` looks for it
    deepstack_visual_indexes: ClassVar[tuple[int, ...]] = ()

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "qwen2_5_vl_vision"
    _only: ClassVar = Qwen3VLVisionConfig._only | {"in_chans": (3,), "hidden_act": ("silu",)}
    # The first one is for videos, the other one the patches' size once more.
    _no_effect: ClassVar = clip.IDLE_OPTIONS | {"tokens_per_second", "spatial_patch_size"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. Published files call the tower by the name of the whole network."""
        if isinstance(values, Mapping) and values.get("model_type") == Qwen25VLConfig._class_value:
            values = {**values, "model_type": cls._class_value}
        return super().from_dict(values)

    def __post_init__(self):
        self._require_counts()
        check_heads(self)
        layers = self.fullatt_block_indexes
        is_list = isinstance(layers, tuple) and all(type(layer) is int and layer >= 0 for layer in layers)
        self._require(is_list, "fullatt_block_indexes", "numbers of layers")
        side = self.patch_size * self.spatial_merge_size
        self._require(self.window_size >= side, "window_size", f"at least one square of {side} pixels")

    @property
    def window(self) -> int:
        """Patches along a side of a window."""
        return self.window_size // self.spatial_merge_size // self.patch_size * self.spatial_merge_size


@dataclasses.dataclass(frozen=True)
class Qwen25VLTextConfig(Qwen3VLTextConfig):
    """Shape of the language model, a Qwen2 whose rotations follow three coordinates."""

    model_type: str = "qwen2"
    mrope_section: tuple[int, int, int] = (16, 24, 24)

    _file_type: ClassVar[str] = "qwen2_5_vl_text"
    _family: ClassVar[str] = "Qwen2.5-VL"
    _interleaved: ClassVar[bool] = False
    _rope_theta: ClassVar[float] = 1e6
    _defaults: ClassVar = {
        **{"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80},
        **{"num_attention_heads": 64, "num_key_value_heads": 8, "rms_norm_eps": 1e-5},
        **{"bos_token_id": 151643, "eos_token_id": 151645},
    }
    _no_effect: ClassVar = DecoderConfig._no_effect | _TOKENS


@dataclasses.dataclass(frozen=True)
class Qwen25VLConfig(Qwen3VLConfig):
    """Shape of the whole network, with the names of the published ``config.json``."""

    vision_config: Qwen25VLVisionConfig = dataclasses.field(
        default_factory=lambda: Qwen25VLVisionConfig(out_hidden_size=8192)
    )
    text_config: Qwen25VLTextConfig = dataclasses.field(default_factory=lambda: Qwen25VLTextConfig.from_dict({}))

    architecture: ClassVar[str] = "Qwen2_5_VLForConditionalGeneration"
    _class_value: ClassVar = "qwen2_5_vl"
    _parts: ClassVar = {"vision_config": Qwen25VLVisionConfig, "text_config": Qwen25VLTextConfig}
    _no_effect: ClassVar = Qwen3VLConfig._no_effect | _TOKENS

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. Published files have no part for the language model: its options are with the others.

        Some later versions of transformers save both. The part counts.
        """
        if not isinstance(values, Mapping):
            return super().from_dict(values)
        own = {"architectures", "image_token_id", "model_type", "vision_config", *_TOKENS}
        text = values.get("text_config")
        if text is None:
            text = {key: value for key, value in values.items() if key not in own}
            values = {key: value for key, value in values.items() if key in own}
        elif isinstance(text, Mapping):
            values = {key: value for key, value in values.items() if key in own or key not in text}
        return super().from_dict({**values, "text_config": text})
