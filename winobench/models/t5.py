"""T5 (Raffel et al., 2020), T5 1.1 and FLAN-T5, as published: an encoder and a decoder with relative positions.

Compared with other transformers: attention scores are not scaled, but have a learned bias for each head and distance,
which all layers of a stack share. Norms divide by the root mean square. Neither they nor dense layers have a bias. T5
1.0 reads the logits off the input embeddings, scaled by ``d_model ** -0.5``; 1.1 and FLAN-T5 have their own head.
"""

from __future__ import annotations

import functools
import math
from typing import Any, ClassVar, NamedTuple, overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import AbstractMesh, Mesh

from winobench.models import tensor_parallel
from winobench.models.base import KeyTable, Network, embedding
from winobench.models.bert import ACTIVATIONS
from winobench.models.decoder import Projection, RMSNorm, with_spare_row
from winobench.models.t5_config import T5Config


class T5Cache(NamedTuple):
    """Cache of the decoder's earlier tokens, and of the encoder's states.

    Attributes:
      keys: of each layer's self-attention, [B, length, heads, d_kv].
      values: the same.
      cross_keys: of each layer's attention to the encoder's states, [B, S, heads, d_kv].
      cross_values: the same.
      mask: bool [B, S], which of the encoder's states are text.
      used: int32 scalar, number of tokens so far. Those of all rows are equally many.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    cross_keys: tuple[jax.Array, ...]
    cross_values: tuple[jax.Array, ...]
    mask: jax.Array
    used: jax.Array


@functools.cache
def _buckets(longest: int, num_buckets: int, max_distance: int, both_ways: bool) -> np.ndarray:
    """The bucket of each distance (key minus query) from -longest to longest: int32 [2 * longest + 1].

    Up to half of the buckets of a direction are for one distance each, the others for ranges that grow
    logarithmically up to ``max_distance``. A decoder, which looks back only, has all buckets for that direction.
    """
    distance = np.arange(-longest, longest + 1)
    ahead = np.zeros(len(distance), np.int32)
    if both_ways:
        num_buckets //= 2
        ahead = num_buckets * (distance > 0).astype(np.int32)
        distance = np.abs(distance)
    else:
        distance = np.maximum(-distance, 0)
    exact = num_buckets // 2
    # In float32, as published: where a range ends on a whole number, its rounding decides.
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact), dtype=np.float32)
    ranges = ratio / np.float32(math.log(max_distance / exact)) * np.float32(num_buckets - exact)
    far = np.minimum(exact + ranges.astype(np.int32), num_buckets - 1)
    return (ahead + np.where(distance < exact, distance, far)).astype(np.int32)


def _norm(config: T5Config, *, int8: bool = False, **kwargs: Any) -> RMSNorm:
    return RMSNorm(config.d_model, epsilon=config.layer_norm_epsilon, **kwargs)


class T5Attention(nnx.Module):
    """Attention without scaling. That of a stack's first layer holds the biases that all its layers add."""

    def __init__(self, config: T5Config, *, has_bias: bool, **kwargs: Any):
        self.heads = config.num_heads
        inner = config.num_heads * config.d_kv
        self.q = Projection(config.d_model, inner, **kwargs)
        self.k = Projection(config.d_model, inner, **kwargs)
        self.v = Projection(config.d_model, inner, **kwargs)
        self.o = Projection(inner, config.d_model, **kwargs)
        if has_bias:
            kwargs = {"dtype": jnp.float32, "param_dtype": kwargs["param_dtype"], "rngs": kwargs["rngs"]}
            count, deviation = config.relative_attention_num_buckets, config.d_model**-0.5
            self.relative_attention_bias = embedding(count, config.num_heads, deviation=deviation, **kwargs)

    def keys_values(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """x [B, S, d_model] -> keys and values, each [B, S, heads, d_kv]."""
        return self._split(self.k(x)), self._split(self.v(x))

    def attend(self, x: jax.Array, keys: jax.Array, values: jax.Array, bias: jax.Array) -> jax.Array:
        """x [B, T, d_model], keys and values [B, S, heads, d_kv], bias over [B, heads, T, S] -> [B, T, d_model]."""
        query = with_spare_row(self._split(self.q(x)), axis=1)
        scores = jnp.einsum("bthd,bshd->bhts", query, keys, preferred_element_type=jnp.float32)
        weights = jax.nn.softmax(scores + bias, axis=-1).astype(values.dtype)
        result = jnp.einsum("bhts,bshd->bthd", weights, values)
        return self.o(result[:, : x.shape[1]].reshape(*x.shape[:-1], -1))

    def _split(self, x: jax.Array) -> jax.Array:
        return x.reshape(*x.shape[:-1], self.heads, -1)


class T5SelfAttentionLayer(nnx.Module):
    """Self-attention and the norm before it, under the published names."""

    def __init__(self, config: T5Config, *, has_bias: bool, **kwargs: Any):
        self.SelfAttention = T5Attention(config, has_bias=has_bias, **kwargs)
        self.layer_norm = _norm(config, **kwargs)


class T5CrossAttentionLayer(nnx.Module):
    """Attention to the encoder's states and the norm before it, under the published names."""

    def __init__(self, config: T5Config, **kwargs: Any):
        self.EncDecAttention = T5Attention(config, has_bias=False, **kwargs)
        self.layer_norm = _norm(config, **kwargs)


class T5FeedForward(nnx.Module):
    """Two dense layers with an activation between them, or three with a gate."""

    def __init__(self, config: T5Config, **kwargs: Any):
        self.is_gated = config.feed_forward_proj == "gated-gelu"
        self.activation = config.activation
        if self.is_gated:
            self.wi_0 = Projection(config.d_model, config.d_ff, **kwargs)
            self.wi_1 = Projection(config.d_model, config.d_ff, **kwargs)
        else:
            self.wi = Projection(config.d_model, config.d_ff, **kwargs)
        self.wo = Projection(config.d_ff, config.d_model, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., d_model] -> the same shape."""
        activation = ACTIVATIONS[self.activation]
        if self.is_gated:
            return self.wo(activation(self.wi_0(x)) * self.wi_1(x))
        return self.wo(activation(self.wi(x)))


class T5FeedForwardLayer(nnx.Module):
    """The feed-forward layer after its norm and around a residual."""

    def __init__(self, config: T5Config, **kwargs: Any):
        self.DenseReluDense = T5FeedForward(config, **kwargs)
        self.layer_norm = _norm(config, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., d_model] -> the same shape."""
        return x + self.DenseReluDense(self.layer_norm(x))


class T5Block(nnx.Module):
    """The sub-layers of a layer: two of the encoder's, three of the decoder's."""

    def __init__(self, config: T5Config, *, is_decoder: bool, has_bias: bool, **kwargs: Any):
        cross = [T5CrossAttentionLayer(config, **kwargs)] if is_decoder else []
        self.layer = nnx.List(
            [T5SelfAttentionLayer(config, has_bias=has_bias, **kwargs), *cross, T5FeedForwardLayer(config, **kwargs)]
        )


class T5Stack(nnx.Module):
    """Encoder or decoder: everything under ``encoder.`` or ``decoder.`` in the published weights."""

    def __init__(self, config: T5Config, *, is_decoder: bool, **kwargs: Any):
        self.is_decoder = is_decoder
        self.num_buckets = config.relative_attention_num_buckets
        self.max_distance = config.relative_attention_max_distance
        count = config.num_decoder_layers if is_decoder else config.num_layers
        self.block = nnx.List(
            [T5Block(config, is_decoder=is_decoder, has_bias=number == 0, **kwargs) for number in range(count)]
        )
        self.final_layer_norm = _norm(config, **kwargs)

    def encode(self, x: jax.Array, hidden: jax.Array | float = 0.0) -> jax.Array:
        """Embedded tokens [B, S, d_model] -> the encoder's states, of the same shape.

        Args:
          hidden: addend of the scores of keys, over [B, heads, S, S].
        """
        length = x.shape[1]
        bias = self.bias(jnp.arange(length), length) + hidden
        for block in self.block:
            attention, feed_forward = block.layer
            y = attention.layer_norm(x)
            x = x + attention.SelfAttention.attend(y, *attention.SelfAttention.keys_values(y), bias)
            x = feed_forward(x)
        return self.final_layer_norm(x)

    def bias(self, queries: jax.Array, num_keys: int) -> jax.Array:
        """The biases of distances: positions of queries [T], keys at 0, 1, ... -> float32 [1, heads, T, num_keys]."""
        table = _buckets(num_keys, self.num_buckets, self.max_distance, not self.is_decoder)
        bucket = jnp.asarray(table)[jnp.arange(num_keys) - queries[:, None] + num_keys]
        biases = self.block[0].layer[0].SelfAttention.relative_attention_bias(bucket)
        return jnp.moveaxis(biases, -1, 0)[None]


class T5ForConditionalGeneration(Network):
    """Encoder, decoder and head. Attribute names equal the names in the published weights
    (``encoder.block.0.layer...``). float16 overflows in published checkpoints. Use bfloat16.
    """

    config_class: ClassVar = T5Config
    weights_name: ClassVar[str] = "model"
    file_keys: ClassVar = KeyTable(
        # Made by early versions, where attention to the encoder's states has no biases.
        ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
        copies=dict.fromkeys(("encoder.embed_tokens.weight", "decoder.embed_tokens.weight"), "shared.weight"),
    )

    def build(self, config: T5Config, *, int8: bool = False, **kwargs: Any) -> None:
        self.shared = embedding(config.vocab_size, config.d_model, deviation=1.0, **kwargs)
        self.encoder = T5Stack(config, is_decoder=False, int8=int8, **kwargs)
        self.decoder = T5Stack(config, is_decoder=True, int8=int8, **kwargs)
        if not config.tie_word_embeddings:
            self.lm_head = Projection(config.d_model, config.vocab_size, **kwargs)

    def encode(self, input_ids: jax.Array, mask: jax.Array, prefix: jax.Array | None = None) -> jax.Array:
        """Encodes texts [B, S], behind a prefix [B, P, d_model] such as an image -> [B, P + S, d_model].

        ``mask`` is bool [B, P + S], False for padding. Each row has at least one token. Rows of padding are finite.
        """
        x = self.shared(input_ids)
        if prefix is not None:
            x = jnp.concatenate([prefix.astype(x.dtype), x], axis=1)
        return self.encoder.encode(x, _hidden(mask)[:, None, None])

    def make_cache(self, states: jax.Array, mask: jax.Array, length: int) -> T5Cache:
        """An empty cache for decoding with encoded texts: states [B, S, d_model], mask bool [B, S]."""
        crosses = [block.layer[1].EncDecAttention.keys_values(states) for block in self.decoder.block]
        shape = (len(states), length, self.config.num_heads, self.config.d_kv)
        empty = tuple(jnp.zeros(shape, self.dtype) for _ in crosses)
        keys, values = zip(*crosses, strict=True)
        return T5Cache(empty, empty, keys, values, jnp.asarray(mask, bool), jnp.zeros((), jnp.int32))

    @overload
    def decode(self, decoder_ids: jax.Array, states: jax.Array, mask: jax.Array) -> jax.Array: ...

    @overload
    def decode(self, decoder_ids: jax.Array, *, cache: T5Cache) -> tuple[jax.Array, T5Cache]: ...

    def decode(
        self,
        decoder_ids: jax.Array,
        states: jax.Array | None = None,
        mask: jax.Array | None = None,
        cache: T5Cache | None = None,
    ) -> jax.Array | tuple[jax.Array, T5Cache]:
        """The logits of each next token, float32 [B, T, vocab_size]. With a cache, also the new cache.

        ``decoder_ids`` are a whole output, from ``config.decoder_start_token_id`` on, or those behind a cache's.
        ``states`` and ``mask`` are those that `encode` has, and are not needed with a cache.
        """
        is_cached = cache is not None
        if cache is None:
            cache = self.make_cache(states, mask, decoder_ids.shape[1])
        positions = cache.used + jnp.arange(decoder_ids.shape[1])
        length = cache.keys[0].shape[1]
        bias = self.decoder.bias(positions, length) + _hidden(jnp.arange(length) <= positions[:, None])
        cross_bias = _hidden(cache.mask)[:, None, None]
        x = self.shared(decoder_ids)
        all_keys, all_values = [], []
        for number, block in enumerate(self.decoder.block):
            attention, cross, feed_forward = block.layer
            y = attention.layer_norm(x)
            keys, values = (
                jax.lax.dynamic_update_slice_in_dim(old, new.astype(old.dtype), cache.used, axis=1)
                for old, new in zip(
                    (cache.keys[number], cache.values[number]), attention.SelfAttention.keys_values(y), strict=True
                )
            )
            x = x + attention.SelfAttention.attend(y, keys, values, bias)
            x = x + cross.EncDecAttention.attend(
                cross.layer_norm(x), cache.cross_keys[number], cache.cross_values[number], cross_bias
            )
            x = feed_forward(x)
            all_keys.append(keys)
            all_values.append(values)
        logits = self._logits(self.decoder.final_layer_norm(x))
        if not is_cached:
            return logits
        used = cache.used + decoder_ids.shape[1]
        return logits, cache._replace(keys=tuple(all_keys), values=tuple(all_values), used=used)

    def _logits(self, x: jax.Array) -> jax.Array:
        if self.config.scale_decoder_outputs:
            x = x * self.config.d_model**-0.5
        # Rounded to bfloat16, logits of different tokens would often be equal.
        if not self.config.tie_word_embeddings:
            return self.lm_head(x, result=jnp.float32)
        head = self.shared.embedding[...].astype(self.dtype)
        return jnp.matmul(x, head.T, preferred_element_type=jnp.float32)


def parameter_shardings(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Shardings of a T5's parameters: see `winobench.models.tensor_parallel`.

    A layer of the encoder adds up partial results twice, one of the decoder three times, each embedding of tokens once.
    """
    return tensor_parallel.parameter_shardings(state, mesh, back=("o", "wo"), embedding="shared")


def _hidden(mask: jax.Array) -> jax.Array:
    """Addend of scores: 0 for keys in the mask, and elsewhere so low that the weight is 0.

    Minus infinity would make the weights of a row without any token, such as one that fills up a batch, no numbers.
    """
    return jnp.where(jnp.asarray(mask, bool), 0.0, jnp.finfo(jnp.float32).min)
