"""OPT (Zhang et al., 2022), the language model of the first BLIP-2, in the layout of transformers.

A `winobench.models.decoder.Decoder` with learned positions instead of rotations, layer norms, and a feed-forward with
one ReLU. All dense layers have biases. The input of the layers of an OPT of 350 million parameters, and its norms
behind attention and feed-forward, are not implemented.
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh, Mesh

from winobench.models import tensor_parallel
from winobench.models.base import embedding, layer_norm
from winobench.models.decoder import Decoder, DecoderAttention, Projection, Stored, TokenLayout
from winobench.models.opt_config import OPTConfig

# Rows of the table of positions before the first token's. None of them is ever read.
_OFFSET = 2


class OPTLayer(nnx.Module):
    """Attention and feed-forward, each after a norm and around a residual. Published names but ``self_attn.o_proj``."""

    def __init__(self, config: OPTConfig, *, int8: bool, **kwargs: Any):
        self.self_attn_layer_norm = self.make_norm(config, **kwargs)
        self.self_attn = DecoderAttention(config, int8=int8, **kwargs)
        self.final_layer_norm = self.make_norm(config, **kwargs)
        self.fc1 = Projection(config.hidden_size, config.ffn_dim, bias=True, int8=int8, **kwargs)
        self.fc2 = Projection(config.ffn_dim, config.hidden_size, bias=True, int8=int8, **kwargs)

    @staticmethod
    def make_norm(config: OPTConfig, **kwargs: Any) -> nnx.LayerNorm:
        """One of the norms, which are all alike."""
        return layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(
        self, x: jax.Array, layout: TokenLayout, stored: Stored | None, shared: Stored | None
    ) -> tuple[jax.Array, Stored | None]:
        """See the attention layer."""
        attended, stored = self.self_attn(self.self_attn_layer_norm(x), layout, stored, shared)
        x = x + attended
        return x + self.fc2(jax.nn.relu(self.fc1(self.final_layer_norm(x)))), stored


class OPTForCausalLM(Decoder):
    """A language model. Arguments and methods as in `Decoder`. Its last norm is called ``norm``, as there."""

    config_class: ClassVar = OPTConfig
    layer_class: ClassVar = OPTLayer

    def build(self, config: OPTConfig, *, int8: bool = False, **kwargs: Any) -> None:
        super().build(config, int8=int8, **kwargs)
        self.embed_positions = embedding(config.max_position_embeddings + _OFFSET, config.hidden_size, **kwargs)

    def enter(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """See `Decoder`: the embeddings of the positions are added."""
        of_positions = jnp.take(self.embed_positions.embedding[...], jnp.maximum(positions, 0) + _OFFSET, axis=0)
        return x + of_positions.astype(x.dtype)


def parameter_shardings(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Shardings of an OPT's parameters: see `winobench.models.tensor_parallel` and a decoder's."""
    return tensor_parallel.parameter_shardings(
        state,
        mesh,
        back=("o_proj", "fc2"),
        embedding="embed_tokens",
        # Biases of sums, whose states are whole.
        whole=("embed_positions", "self_attn_layer_norm", "final_layer_norm", "norm"),
    )
