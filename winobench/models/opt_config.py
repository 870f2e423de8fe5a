"""Shape of an OPT, read from transformers' ``config.json``."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from winobench.base import options
from winobench.base.errors import InputError
from winobench.models.clip import FIXED_OPTIONS, IDLE_OPTIONS
from winobench.models.config import NetworkConfig

_OF_TRAINING = {"activation_dropout", "attention_dropout", "dropout", "init_std", "layerdrop"}


@dataclasses.dataclass(frozen=True)
class OPTConfig(NetworkConfig):
    """Shape of the network, with the names and defaults of the published ``config.json``."""

    vocab_size: int = 50272
    hidden_size: int = 768
    ffn_dim: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    max_position_embeddings: int = 2048
    word_embed_proj_dim: int | None = None  # None for hidden_size
    tie_word_embeddings: bool = True
    bos_token_id: int = 2
    eos_token_id: int = 2  # in BLIP-2 the new line
    pad_token_id: int = 1  # kept for the file's sake (padding has negative positions)

    layer_norm_eps: ClassVar[float] = 1e-5  # torch's default: no file names another
    attention_bias: ClassVar[bool] = True
    input_bias: ClassVar[bool] = True
    query_key_norm: ClassVar[bool] = False
    rotary: ClassVar[bool] = False

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "opt"
    _only: ClassVar = {key: values for key, values in FIXED_OPTIONS.items() if key not in _OF_TRAINING} | {
        "activation_function": ("relu",),
        # Those of 350m and of Galactica are other networks.
        "do_layer_norm_before": (True,),
        "enable_bias": (True,),
        "layer_norm_elementwise_affine": (True,),
    }
    _no_effect: ClassVar = IDLE_OPTIONS | _OF_TRAINING | {"use_cache"}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`."""
        if isinstance(values, Mapping) and (value := values.get("_remove_final_layer_norm", False)) is not False:
            raise InputError(
                f"{cls.__name__}: unsupported option _remove_final_layer_norm={options.quote(value)}. winobench"
                " implements False only.",
                code="unsupported-option",
            )
        return super().from_dict(values)

    def __post_init__(self):
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        width = self.hidden_size
        if self.word_embed_proj_dim is None:
            object.__setattr__(self, "word_embed_proj_dim", width)
        self._require(self.word_embed_proj_dim == width, "word_embed_proj_dim", f"hidden_size={width}")
        self._require_bool("tie_word_embeddings")
        self._require_token_ids("bos_token_id", "eos_token_id", "pad_token_id")

    @property
    def num_key_value_heads(self) -> int:
        """Number of heads of keys, equal to the number of queries' heads."""
        return self.num_attention_heads

    @property
    def head_dim(self) -> int:
        """Width of a head."""
        return self.hidden_size // self.num_attention_heads

    @property
    def longest(self) -> int:
        """Number of tokens of the longest text: the model has no more positions."""
        return self.max_position_embeddings
