"""BLIP for image-text matching (Li et al., 2022), in the layout of transformers' ``BlipForImageTextRetrieval``.

A vision transformer encodes the image. A text encoder in the manner of BERT reads the text alone, for a cosine
similarity (image-text contrast, ITC), or attends to the image as well, for a decision between match and mismatch
(image-text matching, ITM).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models import clip, layers
from winobench.models.attention import dot_product_attention
from winobench.models.base import (
    KeyTable,
    Network,
    check_length,
    check_pixels,
    embedding,
    layer_norm,
    linear,
    parameter,
)
from winobench.models.bert import BertIntermediate, BertProjection, BertSelfAttention, KeysValues
from winobench.models.blip_config import BlipConfig, BlipTextConfig, BlipVisionConfig


class BlipVisionEmbeddings(nnx.Module):
    """Patches as vectors, one vector for the whole before them, and the embedding of each one's position."""

    def __init__(self, config: BlipVisionConfig, **kwargs: Any):
        self.dtype = kwargs["dtype"]
        width = config.hidden_size
        self.class_embedding = parameter(1, 1, width, **kwargs)
        self.patch_embedding = layers.Conv2d(3, width, config.patch_size, stride=config.patch_size, **kwargs)
        self.position_embedding = parameter(1, config.num_positions, width, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3] -> [B, positions, hidden_size]."""
        patches = self.patch_embedding(pixels)
        patches = patches.reshape(len(patches), -1, patches.shape[-1])
        whole = jnp.broadcast_to(self.class_embedding[...].astype(self.dtype), (len(patches), 1, patches.shape[-1]))
        return jnp.concatenate([whole, patches], axis=1) + self.position_embedding[...].astype(self.dtype)


class BlipAttention(nnx.Module):
    """Self-attention of the positions of an image."""

    def __init__(self, config: BlipVisionConfig, **kwargs: Any):
        self.heads = config.num_attention_heads
        self.qkv = linear(config.hidden_size, 3 * config.hidden_size, **kwargs)
        self.projection = linear(config.hidden_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, T, hidden_size] -> the same shape."""
        parts = jnp.split(self.qkv(x), 3, axis=-1)
        query, key, value = (part.reshape(*x.shape[:-1], self.heads, -1) for part in parts)
        return self.projection(dot_product_attention(query, key, value).reshape(x.shape))


class BlipVisionModel(nnx.Module):
    """The image encoder: everything under ``vision_model.`` in the published weights."""

    def __init__(self, config: BlipVisionConfig, **kwargs: Any):
        self.embeddings = BlipVisionEmbeddings(config, **kwargs)
        self.encoder = clip.CLIPEncoder(config, BlipAttention, **kwargs)
        self.post_layernorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3] -> [B, positions, hidden_size]."""
        return self.post_layernorm(self.encoder(self.embeddings(pixels))[0])


class BlipTextEmbeddings(nnx.Module):
    """Token and position embeddings and their norm."""

    def __init__(self, config: BlipTextConfig, **kwargs: Any):
        self.word_embeddings = embedding(config.vocab_size, config.hidden_size, **kwargs)
        self.position_embeddings = embedding(config.max_position_embeddings, config.hidden_size, **kwargs)
        self.LayerNorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids [B, L] -> [B, L, hidden_size]."""
        return self.LayerNorm(
            self.word_embeddings(input_ids) + self.position_embeddings(jnp.arange(input_ids.shape[-1]))
        )


class BlipTextAttention(nnx.Module):
    """Attention of a text to itself or to an image, and its output projection."""

    def __init__(self, config: BlipTextConfig, context_size: int, **kwargs: Any):
        # The published weights have these names.
        self.self = BertSelfAttention(config, context_size, **kwargs)
        self.output = BertProjection(config.hidden_size, config, **kwargs)

    def __call__(self, x: jax.Array, keys_values: KeysValues | None = None, lengths: jax.Array | None = None):
        """x [B, L, hidden_size], keys and values (of x itself when None), their number [B] -> [B, L, hidden_size]."""
        keys_values = self.self.keys_values(x) if keys_values is None else keys_values
        return self.output(self.self(x, keys_values, lengths), x)


class BlipTextLayer(nnx.Module):
    """Attention to the text, attention to the image if there is one, feed-forward."""

    def __init__(self, config: BlipTextConfig, **kwargs: Any):
        self.attention = BlipTextAttention(config, config.hidden_size, **kwargs)
        self.crossattention = BlipTextAttention(config, config.encoder_hidden_size, **kwargs)
        self.intermediate = BertIntermediate(config, **kwargs)
        self.output = BertProjection(config.intermediate_size, config, **kwargs)

    def __call__(self, x: jax.Array, lengths: jax.Array, image: KeysValues | None) -> jax.Array:
        """x [B, L, hidden_size], tokens of each text [B], keys and values of the images -> [B, L, hidden_size]."""
        x = self.attention(x, lengths=lengths)
        if image is not None:
            x = self.crossattention(x, image)
        return self.output(self.intermediate(x), x)


class BlipTextEncoder(nnx.Module):
    """The stack of layers of the text encoder."""

    def __init__(self, config: BlipTextConfig, **kwargs: Any):
        self.layer = nnx.List([BlipTextLayer(config, **kwargs) for _ in range(config.num_hidden_layers)])

    def __call__(self, x: jax.Array, lengths: jax.Array, image: tuple[KeysValues, ...] | None) -> jax.Array:
        """x [B, L, hidden_size], tokens of each text [B], each layer's keys and values -> [B, L, hidden_size]."""
        for number, layer in enumerate(self.layer):
            x = layer(x, lengths, None if image is None else image[number])
        return x


class BlipTextModel(nnx.Module):
    """The text encoder: everything under ``text_encoder.`` in the published weights."""

    def __init__(self, config: BlipTextConfig, **kwargs: Any):
        self.embeddings = BlipTextEmbeddings(config, **kwargs)
        self.encoder = BlipTextEncoder(config, **kwargs)

    def __call__(
        self, input_ids: jax.Array, lengths: jax.Array, image: tuple[KeysValues, ...] | None = None
    ) -> jax.Array:
        """input_ids [B, L], tokens of each text [B], each layer's keys and values -> [B, L, hidden_size]."""
        return self.encoder(self.embeddings(input_ids), lengths, image)


class BlipForImageTextRetrieval(Network):
    """Both encoders and both heads. Attribute names equal the names in the published weights
    (``text_encoder.encoder...``).
    """

    config_class: ClassVar = BlipConfig
    weights_name: ClassVar[str] = "model"
    # 0, 1, 2, ...: a buffer that the published files hold.
    file_keys: ClassVar = KeyTable(ignored=(r"text_encoder\.embeddings\.position_ids",))

    def build(self, config: BlipConfig, **kwargs: Any) -> None:
        self.vision_model = BlipVisionModel(config.vision_config, **kwargs)
        self.text_encoder = BlipTextModel(config.text_config, **kwargs)
        # Logits and cosines of different captions are equal in the 8 bits of bfloat16 too often: the heads, which cost
        # nothing, compute in float32 always.
        kwargs["dtype"] = jnp.float32
        self.vision_proj = linear(config.vision_config.hidden_size, config.image_text_hidden_size, **kwargs)
        self.text_proj = linear(config.text_config.hidden_size, config.image_text_hidden_size, **kwargs)
        self.itm_head = linear(config.text_config.hidden_size, 2, **kwargs)

    def image_states(self, pixels: jax.Array) -> jax.Array:
        """Normalised pixels [B, image_size, image_size, 3] -> [B, num_positions, hidden_size]: image, then patches."""
        check_pixels(self, pixels, self.config.vision_config.image_size)
        return self.vision_model(pixels)

    def image_keys_values(self, image_states: jax.Array) -> tuple[KeysValues, ...]:
        """Keys and values of images for each layer of the text encoder: most of the work of a pair, for any text."""
        return tuple(layer.crossattention.self.keys_values(image_states) for layer in self.text_encoder.encoder.layer)

    def text_states(
        self, input_ids: jax.Array, lengths: jax.Array, image: tuple[KeysValues, ...] | None = None
    ) -> jax.Array:
        """Texts [B, L], of ``lengths`` tokens each, alone or as they relate to one image each -> [B, L, hidden_size].

        Tokens behind the lengths are padding and not attended to. Their rows are finite.
        """
        check_length(self, input_ids, self.config.text_config.max_position_embeddings)
        return self.text_encoder(input_ids, lengths, image)

    def match_logits(self, input_ids: jax.Array, lengths: jax.Array, image: tuple[KeysValues, ...]) -> jax.Array:
        """Logits of mismatch and of match (ITM), float32 [B, 2]. Arguments as for `text_states`."""
        return self.itm_head(self.text_states(input_ids, lengths, image)[:, 0])

    def image_features(self, image_states: jax.Array) -> jax.Array:
        """Images as unit vectors of the joint space: [B, num_positions, width of images] -> float32 [B, width]."""
        return _unit_length(self.vision_proj(image_states[:, 0]))

    def text_features(self, input_ids: jax.Array, lengths: jax.Array) -> jax.Array:
        """Texts as unit vectors of the joint space, float32 [B, width]. Arguments as for `text_states`."""
        return _unit_length(self.text_proj(self.text_states(input_ids, lengths)[:, 0]))


def _unit_length(x: jax.Array) -> jax.Array:
    # The bound is torch's, for the vector of zeros.
    return x / jnp.maximum(jnp.linalg.norm(x, axis=-1, keepdims=True), 1e-12)
