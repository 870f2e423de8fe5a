"""Shape of a Qwen3-VL, read from transformers' ``config.json``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from winobench.base.errors import InputError
from winobench.models import clip
from winobench.models.config import NetworkConfig, is_count
from winobench.models.decoder_config import DecoderConfig

ROPE_THETA = 10000.0  # of the vision tower


@dataclasses.dataclass(frozen=True)
class Qwen3VLVisionConfig(NetworkConfig):
    """Shape of the vision tower, with the names and defaults of the published ``config.json``."""

    depth: int = 27
    hidden_size: int = 1152
    hidden_act: str = "gelu_pytorch_tanh"
    intermediate_size: int = 4304
    num_heads: int = 16
    patch_size: int = 16
    spatial_merge_size: int = 2  # patches along a side of a square, which is one state of the language model
    temporal_patch_size: int = 2  # frames
    out_hidden_size: int = 3584
    num_position_embeddings: int = 2304  # a square, interpolated to an image's patches
    deepstack_visual_indexes: tuple[int, ...] = (
        8,
        16,
        24,
    )  # layers whose states are added to the language model's first ones

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "qwen3_vl_vision"
    _only: ClassVar = {"in_channels": (3,), "rope_parameters": (None, {"rope_type": "axial", "rope_theta": ROPE_THETA})}
    _no_effect: ClassVar = clip.IDLE_OPTIONS

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. Published files call the tower by the name of the whole network."""
        if isinstance(values, Mapping) and values.get("model_type") == Qwen3VLConfig._class_value:
            values = {**values, "model_type": cls._class_value}
        return super().from_dict(values)

    def __post_init__(self):
        self._require_counts()
        self._require_choice("hidden_act", clip.ACTIVATIONS)
        check_heads(self)
        self._require(self.positions_a_side**2 == self.num_position_embeddings, "num_position_embeddings", "a square")
        layers = self.deepstack_visual_indexes
        self._require(
            isinstance(layers, tuple)
            and all(type(layer) is int and 0 <= layer < self.depth for layer in layers)
            and list(layers) == sorted(set(layers)),
            "deepstack_visual_indexes",
            f"ascending numbers of layers below {self.depth}",
        )

    @property
    def positions_a_side(self) -> int:
        """Learned positions along each side of an image."""
        return math.isqrt(self.num_position_embeddings)


def check_heads(tower: Any) -> None:
    """Refuses a vision tower whose heads cannot be rotated.

    A quarter of a head's numbers turns by rows, another by columns, each in a pair with one of the other half.
    """
    width = tower.hidden_size
    tower._require(width % (4 * tower.num_heads) == 0, "num_heads", f"a divisor of a quarter of hidden_size={width}")


@dataclasses.dataclass(frozen=True)
class Qwen3VLTextConfig(DecoderConfig):
    """Shape of the language model, a Qwen3 whose rotations follow three coordinates."""

    model_type: str = "qwen3"
    mrope_section: tuple[int, int, int] = (24, 20, 20)  # pairs of a head that turn by time, rows, columns

    _file_type: ClassVar[str] = "qwen3_vl_text"
    _family: ClassVar[str] = "dense Qwen3-VL"
    _interleaved: ClassVar[bool] = True  # whether these pairs alternate
    # What options are where a file leaves them out.
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _rope_theta: ClassVar[float] = 500000.0

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. Either way to write rotary options is read."""
        if not isinstance(values, Mapping):
            return super().from_dict(values)
        values = {**cls._defaults, **values}
        model_type = values.get("model_type", cls._file_type)
        if model_type != cls._file_type:
            raise InputError(
                f"{cls.__name__}: the language model is a {model_type!r}, not a {cls._file_type!r}. Name a"
                f" {cls._family}.",
                code="wrong-kind-of-model",
            )
        values["model_type"] = cls.model_type
        for key in ("rope_scaling", "rope_parameters"):
            part = values.get(key)
            if not isinstance(part, Mapping):
                continue
            # "mrope" was the name of the usual rotations with a section.
            part = {key: "default" if value == "mrope" else value for key, value in part.items()}
            if (given := part.pop("mrope_interleaved", cls._interleaved)) is not cls._interleaved:
                raise InputError(
                    f"{cls.__name__}: unsupported option mrope_interleaved={given!r}. winobench implements"
                    f" {cls._interleaved} only.",
                    code="unsupported-option",
                )
            if "mrope_section" in part:
                values["mrope_section"] = part.pop("mrope_section")
            values[key] = part
        parts = [values, *(values.get(key) or {} for key in ("rope_scaling", "rope_parameters"))]
        if not any(isinstance(part, Mapping) and "rope_theta" in part for part in parts):
            values["rope_theta"] = cls._rope_theta
        return super().from_dict(values)

    def __post_init__(self):
        super().__post_init__()
        section = self.mrope_section
        self._require(
            isinstance(section, tuple)
            and len(section) == 3
            and all(type(count) is int and count >= 0 for count in section)
            and sum(section) == self.head_dim // 2,
            "mrope_section",
            f"three numbers of pairs, {self.head_dim // 2} in all",
        )

    @property
    def axes(self) -> tuple[int, ...]:
        """The coordinate that each pair of a head turns by: 0 for time, 1 for rows, 2 for columns.

        They follow each other, or alternate, beginning with time, which has the rest where the others are used up.
        """
        if not self._interleaved:
            return tuple(axis for axis, count in enumerate(self.mrope_section) for _ in range(count))
        return tuple(pair % 3 if pair < 3 * self.mrope_section[pair % 3] else 0 for pair in range(self.head_dim // 2))

    def to_dict(self) -> dict[str, Any]:
        """See `NetworkConfig`."""
        values = super().to_dict()
        for key in ("architectures", "mrope_section"):
            values.pop(key)
        own = {"mrope_section": list(self.mrope_section)} | ({"mrope_interleaved": True} if self._interleaved else {})
        return values | {"model_type": self._file_type, "rope_parameters": values["rope_parameters"] | own}


@dataclasses.dataclass(frozen=True)
class Qwen3VLConfig(NetworkConfig):
    """Shape of the whole network, with the names and defaults of the published ``config.json``."""

    vision_config: Qwen3VLVisionConfig = dataclasses.field(
        default_factory=lambda: Qwen3VLVisionConfig(out_hidden_size=4096)
    )
    text_config: Qwen3VLTextConfig = dataclasses.field(
        default_factory=lambda: Qwen3VLTextConfig(vocab_size=151936, head_dim=128)
    )
    image_token_id: int = 151655

    architecture: ClassVar[str] = "Qwen3VLForConditionalGeneration"
    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "qwen3_vl"
    _parts: ClassVar = {"vision_config": Qwen3VLVisionConfig, "text_config": Qwen3VLTextConfig}
    # The files' option for the head is not reliable. The other tokens are for texts and videos.
    _no_effect: ClassVar = clip.IDLE_OPTIONS | {
        "bos_token_id",
        "eos_token_id",
        "hidden_size",  # the language model's once more, which some files have
        "pad_token_id",
        "tie_word_embeddings",
        "use_cache",
        "video_token_id",
        "vision_end_token_id",
        "vision_start_token_id",
    }

    def __post_init__(self):
        token, vocab_size = self.image_token_id, self.text_config.vocab_size
        self._require(is_count(token) and token < vocab_size, "image_token_id", f"a token id below {vocab_size}")
        width, layers = self.text_config.hidden_size, self.text_config.num_hidden_layers
        vision = self.vision_config
        vision._require(vision.out_hidden_size == width, "out_hidden_size", f"the language model's hidden_size={width}")
        vision._require(
            len(vision.deepstack_visual_indexes) <= layers,
            "deepstack_visual_indexes",
            f"no more than the language model's {layers} layers",
        )

    @property
    def start(self) -> None:
        """An answer continues from the question, without a first token."""
        return None

    @property
    def image_token_index(self) -> int:
        """``image_token_id``, as other families call it."""
        return self.image_token_id
