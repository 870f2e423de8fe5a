"""The vision transformer of CLIP (Radford et al., 2021), in the published layout."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import clip, layers
from winobench.models.base import embedding, layer_norm, parameter
from winobench.models.config import NetworkConfig


@dataclasses.dataclass(frozen=True)
class CLIPVisionConfig(NetworkConfig):
    """Shape of a vision transformer, with the names and defaults of the published ``config.json``."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    projection_dim: int | None = 512  # kept for the file's sake
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    image_size: int = 224
    patch_size: int = 32
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "clip_vision_model"
    _only: ClassVar = clip.FIXED_OPTIONS | {"num_channels": (3,)}
    # This tower does not use the ids of words, but older versions wrote them into its config too.
    _no_effect: ClassVar = clip.IDLE_OPTIONS | {"bos_token_id", "eos_token_id", "pad_token_id"}

    def __post_init__(self):
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        self._require(self.patch_size <= self.image_size, "patch_size", f"at most image_size={self.image_size}")
        self._require_choice("hidden_act", clip.ACTIVATIONS)
        self._require_epsilon("layer_norm_eps")


class CLIPVisionEmbeddings(nnx.Module):
    """Patches of an image as vectors, behind one for the whole image, with their positions."""

    def __init__(self, config: CLIPVisionConfig, **kwargs: Any):
        self.dtype = kwargs["dtype"]
        self.class_embedding = parameter(config.hidden_size, **kwargs)
        self.patch_embedding = layers.Conv2d(
            3, config.hidden_size, config.patch_size, stride=config.patch_size, bias=False, **kwargs
        )
        patches = (config.image_size // config.patch_size) ** 2
        self.position_embedding = embedding(1 + patches, config.hidden_size, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3] -> [B, 1 + patches, hidden_size]."""
        patches = self.patch_embedding(pixels)
        batch, width = len(patches), patches.shape[-1]
        whole = jnp.broadcast_to(self.class_embedding[...].astype(self.dtype), (batch, 1, width))
        states = jnp.concatenate([whole, patches.reshape(batch, -1, width)], axis=1)
        return states + self.position_embedding(jnp.arange(states.shape[1]))


class CLIPVisionTransformer(nnx.Module):
    """Embeddings, encoder and norms: everything under ``vision_model.`` in the published weights."""

    def __init__(self, config: CLIPVisionConfig, **kwargs: Any):
        self.embeddings = CLIPVisionEmbeddings(config, **kwargs)
        # The published name, misspelt.
        self.pre_layrnorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)
        self.encoder = clip.CLIPEncoder(config, **kwargs)
        self.post_layernorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3], normalised -> [B, hidden_size], the state of the whole image."""
        states, _ = self.encoder(self.pre_layrnorm(self.embeddings(pixels)))
        return self.post_layernorm(states[:, 0])

    def states_after(self, counts: Sequence[int], pixels: jax.Array) -> list[jax.Array]:
        """States [B, 1 + patches, hidden_size] after some of the layers, before any norm. Others are not computed."""
        states = [self.pre_layrnorm(self.embeddings(pixels))]
        for layer in itertools.islice(self.encoder.layers, max(counts)):
            states.append(layer(states[-1]))
        return [states[count] for count in counts]
