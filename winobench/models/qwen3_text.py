"""Qwen3 (2025) as the text encoder of text-to-image models: states from between its layers, which predict no token."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import released
from winobench.models.base import KeyTable, Network
from winobench.models.decoder import Decoder, Projection
from winobench.models.decoder_config import DecoderConfig


@dataclasses.dataclass(frozen=True)
class Qwen3TextConfig(DecoderConfig):
    """`DecoderConfig` of a Qwen3."""

    model_type: str = "qwen3"
    out_layers: tuple[int, ...] = (
        9,
        18,
        27,
    )  # states are taken after so many layers: diffusers' ``text_encoder_out_layers``

    def __post_init__(self):
        super().__post_init__()
        self._require(self.model_type == "qwen3", "model_type", "'qwen3'")

    @classmethod
    def qwen3_4b(cls) -> Self:
        """Config of FLUX.2-klein-4B and of Z-Image."""
        return cls(**vars(released.language_model("qwen3-4b")))

    @classmethod
    def qwen3_8b(cls) -> Self:
        """Config of FLUX.2-klein-9B."""
        return cls(**vars(released.language_model("qwen3-8b")))


class Qwen3TextEncoder(Network):
    """Some of a Qwen3's states, under the attribute names of ``Qwen3ForCausalLM``. float16 overflows: use bfloat16.

    Layers behind the last states that are taken, the last norm and the output matrix are held for the files' sake only.
    """

    config_class: ClassVar = Qwen3TextConfig
    weights_name: ClassVar[str] = "model"

    def build(self, config: Qwen3TextConfig, **kwargs: Any) -> None:
        # In the files, the output matrix is next to the rest.
        self.model = Decoder(dataclasses.replace(config, tie_word_embeddings=True), **kwargs)
        tied = config.tie_word_embeddings
        self.lm_head = None if tied else Projection(config.hidden_size, config.vocab_size, **kwargs)

    def __call__(self, input_ids: jax.Array, lengths: jax.Array) -> jax.Array:
        """Encodes texts int32 [n, s], padded at the end, of ``lengths`` tokens each. Nothing attends to padding."""
        places = jnp.arange(input_ids.shape[1])
        positions = jnp.broadcast_to(places, input_ids.shape)
        own = jnp.broadcast_to((places < lengths[:, None])[:, None], (*input_ids.shape, len(places)))
        return jnp.concatenate(self.model.states_after(self.config.out_layers, input_ids, positions, own), axis=-1)

    def taking(self, out_layers: tuple[int, ...]) -> Self:
        """This network, with the same arrays, and other ``out_layers``."""
        other = nnx.merge(*nnx.split(self))
        other.config = dataclasses.replace(self.config, out_layers=out_layers)
        return other


class Qwen3Model(Qwen3TextEncoder):
    """`Qwen3TextEncoder` without an output matrix, for pipelines whose files lack it."""

    # With the prefix of a model that writes, or without, and what that one has besides.
    file_keys: ClassVar = KeyTable(
        renames=((r"(embed_tokens|layers|norm)\.", r"model.\1."),), ignored=(r"lm_head\.weight",)
    )

    def build(self, config: Qwen3TextConfig, **kwargs: Any) -> None:
        super().build(dataclasses.replace(config, tie_word_embeddings=True), **kwargs)
