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

from winobench.models import layers
from winobench.models.attention import dot_product_attention
from winobench.models.base import Network, layer_norm, linear
from winobench.models.blip_config import BlipConfig, BlipTextConfig, BlipVisionConfig

# One layer's keys and values of an image: twice [B, T, heads, head_size].
KeysValues = tuple[jax.Array, jax.Array]


def _split(x: jax.Array, heads: int) -> jax.Array:
    """[..., width] -> [..., heads, width / heads]."""
    return x.reshape(*x.shape[:-1], heads, -1)


class BlipVisionEmbeddings(nnx.Module):
    """Patches as vectors, one vector for the whole before them, and the embedding of each one's position."""

    def __init__(self, config: BlipVisionConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.dtype = dtype
        init, width = nnx.initializers.normal(0.02), config.hidden_size
        self.class_embedding = nnx.Param(init(rngs.params(), (1, 1, width), param_dtype))
        self.patch_embedding = layers.Conv2d(
            3, width, config.patch_size, stride=config.patch_size, dtype=dtype, param_dtype=param_dtype, rngs=rngs
        )
        self.position_embedding = nnx.Param(init(rngs.params(), (1, config.num_positions, width), param_dtype))

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3] -> [B, positions, hidden_size]."""
        patches = self.patch_embedding(pixels)
        patches = patches.reshape(len(patches), -1, patches.shape[-1])
        whole = jnp.broadcast_to(self.class_embedding[...].astype(self.dtype), (len(patches), 1, patches.shape[-1]))
        return jnp.concatenate([whole, patches], axis=1) + self.position_embedding[...].astype(self.dtype)


class BlipAttention(nnx.Module):
    """Self-attention of the positions of an image."""

    def __init__(self, config: BlipVisionConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.heads = config.num_attention_heads
        self.qkv = linear(config.hidden_size, 3 * config.hidden_size, **kwargs)
        self.projection = linear(config.hidden_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, T, hidden_size] -> the same shape."""
        query, key, value = (_split(part, self.heads) for part in jnp.split(self.qkv(x), 3, axis=-1))
        return self.projection(dot_product_attention(query, key, value).reshape(x.shape))


class BlipMLP(nnx.Module):
    """The feed-forward layer of the image encoder."""

    def __init__(self, config: BlipVisionConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.fc1 = linear(config.hidden_size, config.intermediate_size, **kwargs)
        self.fc2 = linear(config.intermediate_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, T, hidden_size] -> the same shape."""
        return self.fc2(jax.nn.gelu(self.fc1(x), approximate=False))


class BlipEncoderLayer(nnx.Module):
    """Attention and feed-forward, each after a layer norm and around a residual."""

    def __init__(self, config: BlipVisionConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.self_attn = BlipAttention(config, **kwargs)
        self.layer_norm1 = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)
        self.mlp = BlipMLP(config, **kwargs)
        self.layer_norm2 = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, T, hidden_size] -> the same shape."""
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class BlipEncoder(nnx.Module):
    """The stack of layers of the image encoder."""

    def __init__(self, config: BlipVisionConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.layers = nnx.List([BlipEncoderLayer(config, **kwargs) for _ in range(config.num_hidden_layers)])

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, T, hidden_size] -> the same shape."""
        for layer in self.layers:
            x = layer(x)
        return x


class BlipVisionModel(nnx.Module):
    """The image encoder: everything under ``vision_model.`` in the published weights."""

    def __init__(self, config: BlipVisionConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.embeddings = BlipVisionEmbeddings(config, **kwargs)
        self.encoder = BlipEncoder(config, **kwargs)
        self.post_layernorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, image_size, image_size, 3] -> [B, positions, hidden_size]."""
        return self.post_layernorm(self.encoder(self.embeddings(pixels)))


class BlipTextEmbeddings(nnx.Module):
    """Token and position embeddings and their norm."""

    def __init__(self, config: BlipTextConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        init = nnx.initializers.normal(0.02)
        self.word_embeddings = nnx.Embed(config.vocab_size, config.hidden_size, embedding_init=init, **kwargs)
        self.position_embeddings = nnx.Embed(
            config.max_position_embeddings, config.hidden_size, embedding_init=init, **kwargs
        )
        self.LayerNorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, input_ids: jax.Array) -> jax.Array:
        """input_ids [B, L] -> [B, L, hidden_size]."""
        return self.LayerNorm(
            self.word_embeddings(input_ids) + self.position_embeddings(jnp.arange(input_ids.shape[-1]))
        )


class BlipTextSelfAttention(nnx.Module):
    """The projections of one attention of the text encoder and the attention itself.

    Args:
      config: of the text encoder.
      context_size: width of what is attended to.
    """

    def __init__(self, config: BlipTextConfig, context_size: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.heads = config.num_attention_heads
        self.query = linear(config.hidden_size, config.hidden_size, **kwargs)
        self.key = linear(context_size, config.hidden_size, **kwargs)
        self.value = linear(context_size, config.hidden_size, **kwargs)

    def keys_values(self, context: jax.Array) -> KeysValues:
        """context [B, S, context_size] -> keys and values, each [B, S, heads, head_size]."""
        return _split(self.key(context), self.heads), _split(self.value(context), self.heads)

    def __call__(self, x: jax.Array, keys_values: KeysValues, lengths: jax.Array | None) -> jax.Array:
        """x [B, L, hidden_size], results of ``keys_values``, their number [B] or None -> [B, L, hidden_size]."""
        query = _split(self.query(x), self.heads)
        return dot_product_attention(query, *keys_values, lengths=lengths).reshape(x.shape)


class BlipTextProjection(nnx.Module):
    """A dense layer, around which there is a residual with a norm after it."""

    def __init__(self, inputs: int, config: BlipTextConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.dense = linear(inputs, config.hidden_size, **kwargs)
        self.LayerNorm = layer_norm(config.hidden_size, epsilon=config.layer_norm_eps, **kwargs)

    def __call__(self, x: jax.Array, residual: jax.Array) -> jax.Array:
        """x [B, L, inputs], residual [B, L, hidden_size] -> [B, L, hidden_size]."""
        return self.LayerNorm(self.dense(x) + residual)


class BlipTextAttention(nnx.Module):
    """Attention of a text to itself or to an image, and its output projection."""

    def __init__(self, config: BlipTextConfig, context_size: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        # The published weights have these names.
        self.self = BlipTextSelfAttention(config, context_size, **kwargs)
        self.output = BlipTextProjection(config.hidden_size, config, **kwargs)

    def __call__(self, x: jax.Array, keys_values: KeysValues | None = None, lengths: jax.Array | None = None):
        """x [B, L, hidden_size], keys and values (of x itself when None), their number [B] -> [B, L, hidden_size]."""
        keys_values = self.self.keys_values(x) if keys_values is None else keys_values
        return self.output(self.self(x, keys_values, lengths), x)


class BlipTextIntermediate(nnx.Module):
    """The first half of the feed-forward layer."""

    def __init__(self, config: BlipTextConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.dense = linear(
            config.hidden_size, config.intermediate_size, dtype=dtype, param_dtype=param_dtype, rngs=rngs
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, L, hidden_size] -> [B, L, intermediate_size]."""
        return jax.nn.gelu(self.dense(x), approximate=False)


class BlipTextLayer(nnx.Module):
    """Attention to the text, attention to the image if there is one, feed-forward."""

    def __init__(self, config: BlipTextConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.attention = BlipTextAttention(config, config.hidden_size, **kwargs)
        self.crossattention = BlipTextAttention(config, config.encoder_hidden_size, **kwargs)
        self.intermediate = BlipTextIntermediate(config, **kwargs)
        self.output = BlipTextProjection(config.intermediate_size, config, **kwargs)

    def __call__(self, x: jax.Array, lengths: jax.Array, image: KeysValues | None) -> jax.Array:
        """x [B, L, hidden_size], tokens of each text [B], keys and values of the images -> [B, L, hidden_size]."""
        x = self.attention(x, lengths=lengths)
        if image is not None:
            x = self.crossattention(x, image)
        return self.output(self.intermediate(x), x)


class BlipTextEncoder(nnx.Module):
    """The stack of layers of the text encoder."""

    def __init__(self, config: BlipTextConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.layer = nnx.List([BlipTextLayer(config, **kwargs) for _ in range(config.num_hidden_layers)])

    def __call__(self, x: jax.Array, lengths: jax.Array, image: tuple[KeysValues, ...] | None) -> jax.Array:
        """x [B, L, hidden_size], tokens of each text [B], each layer's keys and values -> [B, L, hidden_size]."""
        for number, layer in enumerate(self.layer):
            x = layer(x, lengths, None if image is None else image[number])
        return x


class BlipTextModel(nnx.Module):
    """The text encoder: everything under ``text_encoder.`` in the published weights."""

    def __init__(self, config: BlipTextConfig, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
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

    Args:
      dtype: compute dtype of the encoders, that of the states too.
    """

    config_class: ClassVar = BlipConfig
    weights_name: ClassVar[str] = "model"

    def build(self, config: BlipConfig, **kwargs: Any) -> None:
        """Makes the layers. See `Network`."""
        self.vision_model = BlipVisionModel(config.vision_config, **kwargs)
        self.text_encoder = BlipTextModel(config.text_config, **kwargs)
        # Logits and cosines of different captions are equal in the 8 bits of bfloat16 too often: the heads, which cost
        # nothing, compute in float32 always.
        kwargs["dtype"] = jnp.float32
        self.vision_proj = linear(config.vision_config.hidden_size, config.image_text_hidden_size, **kwargs)
        self.text_proj = linear(config.text_config.hidden_size, config.image_text_hidden_size, **kwargs)
        self.itm_head = linear(config.text_config.hidden_size, 2, **kwargs)

    def image_states(self, pixels: jax.Array) -> jax.Array:
        """Encodes images.

        Args:
          pixels: [B, image_size, image_size, 3], RGB, normalised by the image processor.

        Returns:
          [B, num_positions, hidden_size of images]: the whole image, then its patches row by row.
        """
        size = self.config.vision_config.image_size
        if pixels.shape[1:] != (size, size, 3):
            raise ValueError(
                f"BlipForImageTextRetrieval: images of the shape {list(pixels.shape[1:])}, but the positions are those"
                f" of [{size}, {size}, 3]. Resize the images."
            )
        return self.vision_model(pixels)

    def image_keys_values(self, image_states: jax.Array) -> tuple[KeysValues, ...]:
        """What the text encoder's cross-attentions make of an image. It does not depend on the text.

        They are most of the work of a pair, so keep them where an image meets several texts.

        Args:
          image_states: [B, num_positions, hidden_size of images].

        Returns:
          For each layer of the text encoder, keys and values, [B, num_positions, heads, head_size] each.
        """
        return tuple(layer.crossattention.self.keys_values(image_states) for layer in self.text_encoder.encoder.layer)

    def text_states(
        self, input_ids: jax.Array, lengths: jax.Array, image: tuple[KeysValues, ...] | None = None
    ) -> jax.Array:
        """Encodes texts, alone or as they relate to one image each.

        Args:
          input_ids: [B, L] int32, L up to ``max_position_embeddings``.
          lengths: [B] int32, at least 1: tokens of each text. Those behind them are padding and not attended to.

        Returns:
          [B, L, hidden_size of texts]. Rows of padding hold anything finite.
        """
        length, positions = input_ids.shape[-1], self.config.text_config.max_position_embeddings
        if length > positions:
            raise ValueError(
                f"BlipForImageTextRetrieval: {length} tokens, but there are only {positions} positions. Truncate the"
                " texts."
            )
        return self.text_encoder(input_ids, lengths, image)

    def match_logits(self, input_ids: jax.Array, lengths: jax.Array, image: tuple[KeysValues, ...]) -> jax.Array:
        """Decides whether texts match images (ITM). Arguments as for `text_states`.

        Returns float32 [B, 2]: the logits of mismatch and of match.
        """
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
