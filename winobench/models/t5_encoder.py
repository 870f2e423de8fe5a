"""T5's encoder by itself, as text-to-image models take it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax

from winobench.models.base import KeyTable, Network, embedding
from winobench.models.t5 import T5Config, T5Stack

# What a decoder alone has.
_OF_DECODERS = frozenset(
    {"decoder_start_token_id", "num_decoder_layers", "scale_decoder_outputs", "tie_word_embeddings"}
)


@dataclasses.dataclass(frozen=True)
class T5EncoderConfig(T5Config):
    """`T5Config` of an encoder alone. Options of the decoder are dropped."""

    _only: ClassVar = {"is_decoder": (False,), "is_encoder_decoder": (True, False), "pruned_heads": ({}, ())}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """See `T5Config`."""
        if isinstance(values, Mapping):
            values = {key: value for key, value in values.items() if key not in _OF_DECODERS}
        return super().from_dict(values)

    def to_dict(self) -> dict[str, Any]:
        """See `NetworkConfig`."""
        values = {key: value for key, value in super().to_dict().items() if key not in _OF_DECODERS}
        return values | {"architectures": ["T5EncoderModel"], "is_encoder_decoder": False}

    @classmethod
    def t5_xxl(cls) -> Self:
        """T5 1.1 XXL (Raffel et al. 2020): ``text_encoder_3`` of Stable Diffusion 3, ``text_encoder_2`` of FLUX.1."""
        return cls(d_model=4096, d_ff=10_240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu")


class T5EncoderModel(Network):
    """T5's encoder by itself, as text-to-image models take it: padding is looked at like any other token.

    float16 overflows in published checkpoints. Use bfloat16.
    """

    config_class: ClassVar = T5EncoderConfig
    weights_name: ClassVar[str] = "model"
    file_keys: ClassVar = KeyTable(copies={"encoder.embed_tokens.weight": "shared.weight"})

    def build(self, config: T5EncoderConfig, **kwargs: Any) -> None:
        self.shared = embedding(config.vocab_size, config.d_model, deviation=1.0, **kwargs)
        self.encoder = T5Stack(config, is_decoder=False, int8=False, **kwargs)

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids [B, S] int32 -> [B, S, d_model] in the compute dtype."""
        return self.encoder.encode(self.shared(input_ids))
