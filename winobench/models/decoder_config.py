"""Shape of a decoder-only language model, read from transformers' ``config.json``."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.models.clip import FIXED_OPTIONS, IDLE_OPTIONS
from winobench.models.config import NetworkConfig

_LLAMA = "llama"
_QWEN2 = "qwen2"
_QWEN3 = "qwen3"
MODEL_TYPES = (_LLAMA, _QWEN2, _QWEN3)
"""Values of ``model_type`` that this network implements; ``llava`` holds one of them in its ``text_config``."""

# What the options are where a file leaves them out, if that differs from LLaMA's.
_OF_QWEN = {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "bos_token_id": None,
    "eos_token_id": None,
}
_DEFAULTS: dict[str, dict[str, Any]] = {_QWEN2: _OF_QWEN, _QWEN3: _OF_QWEN | {"head_dim": 128}}
# Of lengths in tokens and of their ratios: beyond this no float32 tells two positions apart.
_LARGEST_FACTOR = 10**9
# Types of rotary scaling -> the options that each needs. "linear" slows all rotations (Chen et al., 2023), "llama3"
# those with fewer turns in the original length than low_freq_factor, and in part those up to high_freq_factor.
# "dynamic" changes texts beyond max_position_embeddings alone, whose keys would change as they grow: not implemented.
_SCALINGS: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
}


@dataclasses.dataclass(frozen=True)
class RopeScaling:
    """Slower rotations for texts that are longer than the texts of the first training."""

    rope_type: str  # see _SCALINGS
    factor: float  # how many times as long texts may be
    low_freq_factor: float | None = None
    high_freq_factor: float | None = None
    original_max_position_embeddings: int | None = None


@dataclasses.dataclass(frozen=True)
class DecoderConfig(NetworkConfig):
    """Shape of a decoder, with the names and defaults of transformers' ``config.json`` of a LLaMA."""

    model_type: str = _LLAMA
    vocab_size: int = 32000  # rows of the embedding, which may exceed the tokenizer's tokens
    hidden_size: int = 4096
    intermediate_size: int = 11008
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: int | None = None  # None for num_attention_heads
    head_dim: int | None = None  # None for hidden_size / num_attention_heads
    hidden_act: str = "silu"
    max_position_embeddings: int = 2048  # in training. Longer texts are computed
    rms_norm_eps: float = 1e-6
    rope_theta: float = 10000.0
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    bos_token_id: int | None = 1  # None where texts begin with no token
    eos_token_id: int | tuple[int, ...] | None = 2
    pad_token_id: int | None = None  # kept for the file's sake (padding has negative positions)

    rotary: ClassVar[bool] = True  # queries and keys are rotated by their positions

    _only: ClassVar = FIXED_OPTIONS | {
        "rope_interleaved": (False,),
        "sliding_window": (None,),
        "use_sliding_window": (False,),
        "layer_types": ("full_attention",),
    }
    _no_effect: ClassVar = IDLE_OPTIONS | {
        "use_cache",
        "pretraining_tp",  # in how many parts torch computes a product
        "max_sequence_length",
        "max_window_layers",
        "is_llama_config",
        "image_token_id",
        "image_token_index",
    }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`. Reads the language side of a ``llava`` file, and both ways to write rotary options."""
        cls._require_object(values)
        values = dict(values)
        if values.get("model_type") == "llava":
            values = _language_side(values)
        model_type = values.setdefault("model_type", _LLAMA)
        if model_type not in MODEL_TYPES:
            raise InputError(
                f"{cls.__name__}: the model type {options.quote(model_type)} is not one of {', '.join(MODEL_TYPES)} and"
                " llava. Choose a model of one of these families.",
                code="wrong-kind-of-model",
            )
        if values.get("quantization_config"):
            raise InputError(
                f"{cls.__name__}: the weights are quantised (quantization_config), which is not read. Name "
                "the unquantised model, and have its weights rounded while they are loaded (int8) if they must be.",
                code="unsupported-checkpoint",
            )
        values = {**_DEFAULTS.get(model_type, {}), **values}
        if not values.get("use_sliding_window", model_type == _LLAMA):
            values.pop("sliding_window", None)  # the width of a window that is not used
        values.pop("quantization_config", None)
        values |= _rotary_options(values)
        del values["rope_parameters"]
        return super().from_dict(values)

    def __post_init__(self):
        self._require_choice("model_type", MODEL_TYPES)
        self._require_counts()
        heads = self.num_attention_heads
        if self.num_key_value_heads is None:
            object.__setattr__(self, "num_key_value_heads", heads)
        if self.head_dim is None:
            self._require_divisor("num_attention_heads", "hidden_size")
            object.__setattr__(self, "head_dim", self.hidden_size // heads)
        self._require_positive("num_key_value_heads", "head_dim")
        self._require_divisor("num_key_value_heads", "num_attention_heads")
        self._require(self.head_dim % 2 == 0, "head_dim", "an even number")
        self._require(self.hidden_act == "silu", "hidden_act", "'silu'")
        if self.model_type == _QWEN2:
            for key in ("attention_bias", "mlp_bias"):
                self._require(not getattr(self, key), key, "False for a Qwen2, whose biases are always the same")
        self._require_epsilon("rms_norm_eps")
        self._require_number("rope_theta", high=1e12)
        self._require_bool("tie_word_embeddings", "attention_bias", "mlp_bias")

    @property
    def input_bias(self) -> bool:
        """The projections to queries, keys and values have biases. In a Qwen2 these have them, and no others."""
        return self.attention_bias or self.model_type == _QWEN2

    @property
    def query_key_norm(self) -> bool:
        """Each head of queries and keys is normalised before it is rotated."""
        return self.model_type == _QWEN3

    @property
    def longest(self) -> int | None:
        """Number of tokens beyond which texts cannot be computed; None for no such limit."""
        scaling = self.rope_scaling
        return self.max_position_embeddings if scaling is not None and scaling.rope_type == "dynamic" else None

    def to_dict(self) -> dict[str, Any]:
        """See `NetworkConfig`."""
        values = dataclasses.asdict(self)
        scaling = values.pop("rope_scaling")
        rope = {key: value for key, value in (scaling or {"rope_type": "default"}).items() if value is not None}
        values["rope_parameters"] = rope | {"rope_theta": values.pop("rope_theta")}
        if isinstance(self.eos_token_id, tuple):
            values["eos_token_id"] = list(self.eos_token_id)
        architecture = f"{self.model_type.capitalize()}ForCausalLM"
        for key in {_QWEN2: ("attention_bias", "mlp_bias"), _QWEN3: ("mlp_bias",)}.get(self.model_type, ()):
            del values[key]
        return {"architectures": [architecture], **values}


def _language_side(values: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a llava file's language model."""
    text = values.get("text_config")
    if not isinstance(text, Mapping):
        raise InputError(
            "DecoderConfig: the llava config has no text_config. Take the model in transformers' layout, such as "
            "llava-hf/llava-1.5-7b-hf.",
            code="unsupported-checkpoint",
        )
    tied = bool(values.get("tie_word_embeddings")) or bool(text.get("tie_word_embeddings"))
    return {**text, "tie_word_embeddings": tied}


def _rotary_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """``rope_theta`` and ``rope_scaling`` from either way to write them. The result holds the key of the newer one.

    transformers 5 writes ``rope_parameters`` with all. Earlier versions ``rope_theta`` and, where there is scaling,
    ``rope_scaling``, whose type was first called ``type``.
    """
    rotary: dict[str, Any] = {"rope_theta": values["rope_theta"]} if values.get("rope_theta") is not None else {}
    for key in ("rope_scaling", "rope_parameters"):
        part = values.get(key)
        if part is None:
            continue
        if not isinstance(part, Mapping):
            raise InputError(
                f"DecoderConfig: {key}={options.quote(part)} in the config is not an object of options.",
                code="not-an-object",
            )
        part = dict(part)
        older = part.pop("type", None)
        if older is not None:
            part.setdefault("rope_type", older)
        for name in sorted(part.keys() & rotary.keys()):
            if part[name] != rotary[name]:
                raise InputError(
                    f"DecoderConfig: the config has {name}={options.quote(rotary[name])} in one place and"
                    f" {options.quote(part[name])} in {key}: keep the one that the model was trained with.",
                    code="contradicting-options",
                )
        rotary |= part
    kind = rotary.pop("rope_type", "default")
    theta = rotary.pop("rope_theta", DecoderConfig.rope_theta)
    if rotary.pop("partial_rotary_factor", 1.0) != 1.0:
        raise InputError(
            "DecoderConfig: partial_rotary_factor other than 1 is not implemented. Choose another model.",
            code="unsupported-option",
        )
    if not isinstance(kind, str) or kind not in _SCALINGS:
        raise InputError(
            f"DecoderConfig: unsupported rope_type={options.quote(kind)}. winobench implements {', '.join(_SCALINGS)}.",
            code="unsupported-option",
        )
    # transformers notes the original length with any type.
    if unknown := sorted(rotary.keys() - {*_SCALINGS[kind], "original_max_position_embeddings"}):
        raise InputError(
            f"DecoderConfig: unknown option {unknown[0]}={options.quote(rotary[unknown[0]])} of rope_type {kind!r} in"
            " the config. Remove it if it is idle.",
            code="unknown-option",
        )
    scaling = None if kind == "default" else _scaling(kind, rotary)
    return {"rope_theta": theta, "rope_scaling": scaling, "rope_parameters": None}


def _scaling(kind: str, given: Mapping[str, Any]) -> RopeScaling:
    chosen = {}
    for key in _SCALINGS[kind]:
        value = given.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _LARGEST_FACTOR:
            raise InputError(
                f"DecoderConfig: rope_type {kind!r} needs a positive {key} below {_LARGEST_FACTOR:,}, not"
                f" {options.quote(value)}.",
                code="unsupported-option",
            )
        chosen[key] = value
    if kind == "llama3" and chosen["low_freq_factor"] >= chosen["high_freq_factor"]:
        raise InputError(
            "DecoderConfig: rope_type 'llama3' needs a low_freq_factor below its high_freq_factor.",
            code="unsupported-option",
        )
    return RopeScaling(kind, **chosen)


def inverse_wavelengths(config: DecoderConfig) -> np.ndarray:
    """Angle in radians by which each pair of a head's numbers turns from one position to the next.

    Float32 [head_dim / 2]. Powers are taken in float32, as in the code that models were trained with.
    """
    exponents = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    turns = np.float32(1.0) / np.power(np.float32(config.rope_theta), exponents)
    scaling = config.rope_scaling
    if scaling is None or scaling.rope_type == "dynamic":
        return turns
    slow = turns / np.float32(scaling.factor)
    if scaling.rope_type == "linear":
        return slow
    # How often each pair turns within the original length decides: between the two limits linearly.
    cycles = scaling.original_max_position_embeddings * turns / np.float32(2 * math.pi)
    span = scaling.high_freq_factor - scaling.low_freq_factor
    kept = np.clip((cycles - np.float32(scaling.low_freq_factor)) / np.float32(span), 0.0, 1.0)
    return ((1 - kept) * slow + kept * turns).astype(np.float32)
