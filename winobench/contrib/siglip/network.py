"""SigLIP (Zhai et al., 2023) and SigLIP 2 of fixed resolution (Tschannen et al., 2025): two towers, a sigmoid loss.

The two have one network. They differ in weights, tokenizer and image processor. The layers are CLIP's
(`winobench.models.clip`), without a causal mask. A text's vector is its last position's, padding or not. An
image's is what a learned query finds among its patches.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import base, clip, layers
from winobench.models.attention import dot_product_attention
from winobench.models.base import KeyTable, Network, kernel_init, layer_norm, linear
from winobench.models.clip_model import unit
from winobench.models.config import NetworkConfig

# Where training starts: ln 10 and -10 (Zhai et al., Section 3.2).
_LOGIT_SCALE = 2.302585
_LOGIT_BIAS = -10.0
# Networks do not use the ids of words. Transformers writes CLIP's.
_IDS = frozenset({"bos_token_id", "eos_token_id", "pad_token_id"})


@dataclasses.dataclass(frozen=True)
class _TowerConfig(NetworkConfig):
    """Options of both towers."""

    hidden_size: int = 768
    intermediate_size: int = 3072
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    hidden_act: str = "gelu_pytorch_tanh"
    layer_norm_eps: float = 1e-6

    _class_key: ClassVar = "model_type"
    _only: ClassVar = clip.FIXED_OPTIONS
    _no_effect: ClassVar = clip.IDLE_OPTIONS | _IDS

    def __post_init__(self):
        self._require_counts()
        self._require_divisor("num_attention_heads", "hidden_size")
        self._require_choice("hidden_act", clip.ACTIVATIONS)
        self._require_epsilon("layer_norm_eps")


@dataclasses.dataclass(frozen=True)
class SiglipTextConfig(_TowerConfig):
    """Shape of the text tower, with the names and defaults of the published ``config.json``."""

    vocab_size: int = 32000
    max_position_embeddings: int = 64  # tokens of every text, padding included
    projection_size: int | None = None  # width of the joint space; None for hidden_size

    _class_value: ClassVar = "siglip_text_model"
    _optional: ClassVar = frozenset({"projection_size"})

    def __post_init__(self):
        super().__post_init__()
        if self.projection_size is not None:
            self._require_positive("projection_size")

    @property
    def width(self) -> int:
        """Width of the joint space."""
        return self.projection_size or self.hidden_size


@dataclasses.dataclass(frozen=True)
class SiglipVisionConfig(_TowerConfig):
    """Shape of the vision tower, with the names and defaults of the published ``config.json``."""

    image_size: int = 224
    patch_size: int = 16  # a remainder at the right and below is not read

    _class_value: ClassVar = "siglip_vision_model"
    _only: ClassVar = clip.FIXED_OPTIONS | {"num_channels": (3,), "vision_use_head": (True,)}

    def __post_init__(self):
        super().__post_init__()
        self._require(self.patch_size <= self.image_size, "patch_size", f"at most image_size={self.image_size}")


@dataclasses.dataclass(frozen=True)
class SiglipConfig(NetworkConfig):
    """Shape of both towers, with the names and defaults of the published ``config.json``."""

    text_config: SiglipTextConfig = dataclasses.field(default_factory=SiglipTextConfig)
    vision_config: SiglipVisionConfig = dataclasses.field(default_factory=SiglipVisionConfig)

    _class_key: ClassVar = "model_type"
    _class_value: ClassVar = "siglip"
    architecture: ClassVar = "SiglipModel"
    _parts: ClassVar = {"text_config": SiglipTextConfig, "vision_config": SiglipVisionConfig}
    _no_effect: ClassVar = clip.IDLE_OPTIONS

    def __post_init__(self):
        width = self.vision_config.hidden_size
        self.text_config._require(
            self.text_config.width == width, "projection_size", f"the vision tower's hidden_size, {width}"
        )


class SiglipTextTransformer(nnx.Module):
    """Everything under ``text_model.`` in the published weights."""

    def __init__(self, config: SiglipTextConfig, **kwargs: Any):
        self.embeddings = clip.CLIPTextEmbeddings(config, **kwargs)
        self.encoder = clip.CLIPEncoder(config, **kwargs)
        self.final_layer_norm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)
        self.head = linear(config.hidden_size, config.width, **kwargs)

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids [B, L] -> [B, width], of the last position."""
        states, _ = self.encoder(self.embeddings(input_ids))
        return self.head(self.final_layer_norm(states[:, -1]))


class SiglipVisionEmbeddings(nnx.Module):
    """Patches of an image as vectors, with their positions."""

    def __init__(self, config: SiglipVisionConfig, **kwargs: Any):
        size = config.patch_size
        self.patch_embedding = layers.Conv2d(3, config.hidden_size, size, stride=size, **kwargs)
        self.position_embedding = base.embedding((config.image_size // size) ** 2, config.hidden_size, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3] -> [B, patches, hidden_size]."""
        patches = self.patch_embedding(pixels)
        states = patches.reshape(len(patches), -1, patches.shape[-1])
        return states + self.position_embedding(jnp.arange(states.shape[1]))


class SiglipPoolingAttention(nnx.Module):
    """Attention of queries to other states, with the parameters of ``torch.nn.MultiheadAttention``."""

    def __init__(self, config: SiglipVisionConfig, **kwargs: Any):
        width = config.hidden_size
        self.heads = config.num_attention_heads
        self.dtype = kwargs["dtype"]
        # Those of queries, keys and values, one below the other.
        self.in_proj_weight = base.parameter(3 * width, width, init=kernel_init, **kwargs)
        self.in_proj_bias = nnx.Param(jnp.zeros((3 * width,), kwargs["param_dtype"]))
        self.out_proj = linear(width, width, **kwargs)

    def __call__(self, queries: jax.Array, states: jax.Array) -> jax.Array:
        """queries [B, T, hidden_size], states [B, S, hidden_size] -> [B, T, hidden_size]."""
        weights = jnp.split(self.in_proj_weight[...].astype(self.dtype), 3)
        biases = jnp.split(self.in_proj_bias[...].astype(self.dtype), 3)
        query, key, value = (
            (x @ weight.T + bias).reshape(*x.shape[:-1], self.heads, -1)
            for x, weight, bias in zip((queries, states, states), weights, biases, strict=True)
        )
        return self.out_proj(dot_product_attention(query, key, value).reshape(queries.shape))


class SiglipMultiheadAttentionPoolingHead(nnx.Module):
    """One vector of an image's patches: what a learned query finds among them, and a feed-forward layer."""

    def __init__(self, config: SiglipVisionConfig, **kwargs: Any):
        self.dtype = kwargs["dtype"]
        self.probe = base.parameter(1, 1, config.hidden_size, init=nnx.initializers.normal(1.0), **kwargs)
        self.attention = SiglipPoolingAttention(config, **kwargs)
        self.layernorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)
        self.mlp = clip.CLIPMLP(config, **kwargs)

    def __call__(self, states: jax.Array) -> jax.Array:
        """states [B, patches, hidden_size] -> [B, hidden_size]."""
        probe = jnp.broadcast_to(self.probe[...].astype(self.dtype), (len(states), 1, states.shape[-1]))
        found = self.attention(probe, states)
        return (found + self.mlp(self.layernorm(found)))[:, 0]


class SiglipVisionTransformer(nnx.Module):
    """Everything under ``vision_model.`` in the published weights."""

    def __init__(self, config: SiglipVisionConfig, **kwargs: Any):
        self.embeddings = SiglipVisionEmbeddings(config, **kwargs)
        self.encoder = clip.CLIPEncoder(config, **kwargs)
        self.post_layernorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)
        self.head = SiglipMultiheadAttentionPoolingHead(config, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3], normalised -> [B, hidden_size]."""
        states, _ = self.encoder(self.embeddings(pixels))
        return self.head(self.post_layernorm(states))


class SiglipModel(Network):
    """Texts and images as vectors of one space. Attribute names equal the names in transformers' published weights."""

    config_class: ClassVar = SiglipConfig
    weights_name: ClassVar[str] = "model"
    # 0, 1, 2, ...: buffers of transformers before 4.38.
    file_keys: ClassVar = KeyTable(ignored=(r"(text|vision)_model\.embeddings\.position_ids",))

    def build(self, config: SiglipConfig, **kwargs: Any) -> None:
        self.text_model = SiglipTextTransformer(config.text_config, **kwargs)
        self.vision_model = SiglipVisionTransformer(config.vision_config, **kwargs)
        self.logit_scale = nnx.Param(jnp.full((1,), _LOGIT_SCALE, kwargs["param_dtype"]))
        self.logit_bias = nnx.Param(jnp.full((1,), _LOGIT_BIAS, kwargs["param_dtype"]))

    def encode_images(self, pixels: jax.Array) -> jax.Array:
        """Normalised images [B, image_size, image_size, 3] as vectors, not normalised: [B, width]."""
        base.check_pixels(self, pixels, self.config.vision_config.image_size)
        return self.vision_model(pixels.astype(self.dtype))

    def encode_texts(self, input_ids: jax.Array) -> jax.Array:
        """Texts [B, L] as vectors, not normalised: [B, width]. Padding is attended to, as in training."""
        base.check_length(self, input_ids, self.config.text_config.max_position_embeddings)
        return self.text_model(input_ids)

    def logits(self, cosines: jax.Array) -> jax.Array:
        """Logits of the sigmoid from cosine similarities, float32 of any shape (Zhai et al., Eq. 2)."""
        scale, bias = (parameter[...].astype(jnp.float32)[0] for parameter in (self.logit_scale, self.logit_bias))
        return jnp.exp(scale) * cosines + bias

    def __call__(self, pixels: jax.Array, input_ids: jax.Array) -> jax.Array:
        """The logits of all pairs, float32 [images, texts]."""
        return self.logits(unit(self.encode_images(pixels)) @ unit(self.encode_texts(input_ids)).T)
