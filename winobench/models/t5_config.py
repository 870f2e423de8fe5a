"""The config of T5's networks, in the published layout."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from winobench.models.bert import ACTIVATIONS
from winobench.models.clip import IDLE_OPTIONS
from winobench.models.config import NetworkConfig

FEED_FORWARDS = ("relu", "gated-gelu")
"""The feed-forward layer of T5 1.0, and of T5 1.1 and FLAN-T5, which a GELU gates."""

_USUAL_ACTIVATIONS = {"relu": "relu", "gated-gelu": "gelu_new"}

_NO_EFFECT = (
    IDLE_OPTIONS
    | {
        "bos_token_id",
        "classifier_dropout",
        "dropout_rate",
        "gradient_checkpointing",
        "is_gated_act",
        "n_positions",
        "output_past",
        "use_cache",
    }
) - {"tie_word_embeddings", "decoder_start_token_id"}


@dataclasses.dataclass(frozen=True)
class T5Config(NetworkConfig):
    """Shape of the network, with the names and defaults of the published ``config.json``."""

    vocab_size: int = 32128
    d_model: int = 512
    d_kv: int = 64  # width of a head
    d_ff: int = 2048
    num_layers: int = 6
    num_decoder_layers: int | None = None  # None for the encoder's
    num_heads: int = 8
    relative_attention_num_buckets: int = 32
    relative_attention_max_distance: int = 128  # all distances from here on are alike
    layer_norm_epsilon: float = 1e-6
    feed_forward_proj: str = "relu"  # one of FEED_FORWARDS
    dense_act_fn: str | None = None  # where it is unusual, as the exact GELU of BLIP-2
    tie_word_embeddings: bool = True
    scale_decoder_outputs: bool | None = None  # by d_model ** -0.5; None for tie_word_embeddings
    pad_token_id: int = 0
    eos_token_id: int = 1
    decoder_start_token_id: int = 0

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "t5"
    _only: ClassVar = {"is_decoder": (False,), "is_encoder_decoder": (True,), "pruned_heads": ({}, ())}
    _no_effect: ClassVar = _NO_EFFECT
    _optional: ClassVar = frozenset({"dense_act_fn"})

    def __post_init__(self):
        self._require_choice("feed_forward_proj", FEED_FORWARDS)
        if self.dense_act_fn == _USUAL_ACTIVATIONS.get(self.feed_forward_proj):
            object.__setattr__(self, "dense_act_fn", None)
        if self.num_decoder_layers is None:
            object.__setattr__(self, "num_decoder_layers", self.num_layers)
        if self.scale_decoder_outputs is None:
            object.__setattr__(self, "scale_decoder_outputs", self.tie_word_embeddings)
        self._require_counts()
        buckets = self.relative_attention_num_buckets
        self._require(buckets % 4 == 0, "relative_attention_num_buckets", "a multiple of 4")
        self._require(
            self.relative_attention_max_distance > buckets // 2,
            "relative_attention_max_distance",
            f"more than half of relative_attention_num_buckets={buckets}",
        )
        self._require_epsilon("layer_norm_epsilon")
        self._require_bool("tie_word_embeddings", "scale_decoder_outputs")
        if self.dense_act_fn is not None:
            self._require_choice("dense_act_fn", ACTIVATIONS)
        for name in ("pad_token_id", "eos_token_id", "decoder_start_token_id"):
            value = getattr(self, name)
            is_id = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < self.vocab_size
            self._require(is_id, name, f"one token id below vocab_size={self.vocab_size}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `NetworkConfig`."""
        if isinstance(values, Mapping):
            # Written as null where a default is meant.
            idle = ("num_decoder_layers", "tie_word_embeddings", "decoder_start_token_id")
            values = {key: value for key, value in values.items() if not (key in idle and value is None)}
        return super().from_dict(values)

    @property
    def activation(self) -> str:
        """Activation of the feed-forward layers, a name in `winobench.models.bert.ACTIVATIONS`."""
        return self.dense_act_fn or _USUAL_ACTIVATIONS[self.feed_forward_proj]
