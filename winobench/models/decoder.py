"""Decoder-only language models: LLaMA 1 to 3 (Touvron et al., 2023; Grattafiori et al., 2024), Qwen2, 2.5 and 3 (2025).

One network serves them all: tokens, layers of causal attention with rotary positions (Su et al., 2021) and a gated
feed-forward (Shazeer, 2020), each after a root-mean-square norm (Zhang and Sennrich, 2019). The language side of
LLaVA-1.5 is a LLaMA. Norms, rotations, attention scores and softmax are float32 in every compute dtype.

A text may be computed at once or piece by piece: the keys and values of earlier tokens are in a `Cache` of fixed
length, so that every step of a generation has one shape and is compiled once.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh, Mesh

from winobench import parallel
from winobench.models import tensor_parallel
from winobench.models.base import KeyTable, Network, embedding, parameter
from winobench.models.decoder_cache import Cache, check_length
from winobench.models.decoder_config import DecoderConfig, inverse_wavelengths

# Scores of what may not be attended to. Finite, so that a row that may attend to nothing, which only padding has, gets
# finite results, which nobody reads.
_NOWHERE = -1e30


def _dense(x: jax.Array, kernel: jax.Array, result: Any) -> jax.Array:
    """[..., inputs] and [inputs, outputs] -> [..., outputs] in the dtype ``result``."""
    if x.size == x.shape[-1]:  # all there is, is one row
        return _matmul(x.reshape(1, -1), kernel, result).reshape(*x.shape[:-1], -1)
    return jnp.matmul(x, kernel, preferred_element_type=result)


def with_spare_row(rows: jax.Array, axis: int = -2) -> jax.Array:
    """The rows of a product, with one more that is computed for nothing where a TPU would compute a single one.

    XLA leaves a single row to the TPU's vector unit: by the compiler's cycles, a token's attention to 1,791 slots then
    takes three times as long.
    """
    if rows.shape[axis] > 1 or not parallel.is_traced_for("tpu"):
        return rows
    return jnp.concatenate([rows, jnp.zeros_like(rows)], axis=axis)


def _matmul(rows: jax.Array, matrix: jax.Array, result: Any) -> jax.Array:
    """[..., n, inputs] and [..., inputs, outputs] -> [..., n, outputs] in the dtype ``result``."""
    products = jnp.matmul(with_spare_row(rows), matrix, preferred_element_type=result)
    return products[..., : rows.shape[-2], :]


class Projection(nnx.Module):
    """A dense layer on the last axis; ``kernel`` is [inputs, outputs].

    With ``int8`` the kernel holds whole numbers of 8 bits, and ``kernel_scale`` [outputs] float32 is what each output
    channel's numbers are multiples of. The product is computed in the compute dtype, and its result is scaled: the
    kernel is never held in another dtype than its own, where XLA converts on the fly.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool = False, int8: bool = False, **kwargs: Any):
        self.dtype = kwargs["dtype"]
        self.kernel_scale = nnx.Param(jnp.ones((outputs,), jnp.float32)) if int8 else None
        shape = (inputs, outputs)
        self.kernel = nnx.Param(jnp.zeros(shape, jnp.int8)) if int8 else parameter(*shape, **kwargs)
        self.bias = nnx.Param(jnp.zeros((outputs,), kwargs["param_dtype"])) if bias else None

    def __call__(self, x: jax.Array, *, result: Any = None) -> jax.Array:
        """x [..., inputs] -> [..., outputs] in the compute dtype, or in the dtype ``result``."""
        result = self.dtype if result is None else result
        kernel = self.kernel[...].astype(self.dtype)
        if self.kernel_scale is None:
            y = _dense(x, kernel, result)
        else:
            y = _dense(x, kernel, jnp.float32)
            y = (y * self.kernel_scale[...]).astype(result)
        return y if self.bias is None else y + self.bias[...].astype(result)


def quantise(kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rounds a kernel [inputs, outputs] to int8 within -127 to 127, with a float32 scale for each output channel."""
    kernel = kernel.astype(jnp.float32)
    largest = jnp.max(jnp.abs(kernel), axis=0)
    scale = jnp.where(largest > 0, largest / 127.0, 1.0)
    return jnp.round(kernel / scale).astype(jnp.int8), scale


class RMSNorm(nnx.Module):
    """Divides by the root mean square over the last axis, in float32, and scales."""

    def __init__(self, features: int, *, epsilon: float, dtype: Any, param_dtype: Any, rngs: Any = None):
        self.epsilon = epsilon
        self.dtype = dtype
        self.scale = nnx.Param(jnp.ones((features,), param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., features] -> the same shape in the compute dtype."""
        return rms_norm(x, self.scale[...], self.epsilon).astype(self.dtype)


def rms_norm(x: jax.Array, scale: jax.Array, epsilon: float, *, apart: bool = False) -> jax.Array:
    """`RMSNorm` as a function, in float32.

    With ``apart``, XLA does not make one kernel of the whole norm, and the scaling is part of what follows.
    """
    x = x.astype(jnp.float32)
    factors = jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + epsilon)
    x = x * (jax.lax.optimization_barrier(factors) if apart else factors)
    return x * scale.astype(jnp.float32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TokenLayout:
    """Positions, slots and masks of tokens, the same for all layers."""

    cosines: jax.Array | None  # [B, s, 1, head_dim / 2] float32, of the rotations; None where nothing is rotated
    sines: jax.Array | None
    allowed: jax.Array  # bool [B, s, slots], which slots each token attends to
    slots: jax.Array  # int32 [B, s], where keys and values go, beyond the last slot for padding
    prefix: jax.Array | None  # bool [1 or B, slots of the prefix], which of them hold a token


def rotate(x: jax.Array, cosines: jax.Array, sines: jax.Array) -> jax.Array:
    """Turns each pair (i, i + head_dim / 2) of every head of x [B, s, heads, head_dim] by its angle, in float32."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = (first * cosines - second * sines, second * cosines + first * sines)
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


Stored = tuple[jax.Array, jax.Array]
"""Keys [B, key-value heads, head_dim, slots] and values [B, key-value heads, slots, head_dim]."""


def _attend(
    query: jax.Array, own: Stored, allowed: jax.Array, shared: Stored | None, shared_allowed: jax.Array | None
) -> jax.Array:
    """Grouped-query attention: query [B, s, heads, head_dim] -> the same shape. Scores and softmax are float32.

    Plain products: which slots may be attended to differs from row to row and with what the cache holds, which the
    fused kernels take as an array of biases only, and on CPUs these products are faster than
    ``jax.nn.dot_product_attention`` (see ``winobench.models.attention``). Keys and values are not repeated for the
    heads that share them, nor a prefix's for the rows: the queries of all who share them are rows of one matrix.
    """
    batch, length, _, width = query.shape
    groups = own[0].shape[1]
    # [B, key-value heads, heads that share them, s, head_dim]
    query_rows = jnp.moveaxis(query.reshape(batch, length, groups, -1, width), 1, 3)

    def product(rows: jax.Array, matrix: jax.Array) -> jax.Array:
        """[B, groups, heads, s, inputs] and [B or 1, groups, inputs, outputs] -> [B, groups, heads, s, outputs]."""
        if matrix.shape[0] == batch:
            flat = rows.reshape(batch, groups, -1, rows.shape[-1])
            return _matmul(flat, matrix, jnp.float32).reshape(*rows.shape[:-1], -1)
        rows = jnp.moveaxis(rows, 0, 1)
        flat = rows.reshape(groups, -1, rows.shape[-1])
        result = _matmul(flat, matrix[0], jnp.float32)
        return jnp.moveaxis(result.reshape(*rows.shape[:-1], -1), 1, 0)

    parts = [(own, allowed[:, None, None])]
    if shared is not None:
        parts.append((shared, shared_allowed[:, None, None, None]))
    scores = [jnp.where(mask, product(query_rows, key) * width**-0.5, _NOWHERE) for (key, _), mask in parts]
    largest = functools.reduce(jnp.maximum, (jnp.max(part, axis=-1, keepdims=True) for part in scores))
    weights = [jnp.exp(part - largest) for part in scores]
    total = sum(jnp.sum(part, axis=-1, keepdims=True) for part in weights)
    result = sum(product(part.astype(query.dtype), value) for part, ((_, value), _) in zip(weights, parts, strict=True))
    return jnp.moveaxis(result / total, 3, 1).reshape(query.shape).astype(query.dtype)


class DecoderAttention(nnx.Module):
    """Causal attention, with rotary positions where the config has them."""

    def __init__(self, config: DecoderConfig, *, int8: bool, **kwargs: Any):
        self.head_dim = config.head_dim
        options = {"int8": int8, **kwargs}
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj, self.k_proj, self.v_proj = (
            Projection(config.hidden_size, width, bias=config.input_bias, **options) for width in (queries, keys, keys)
        )
        self.o_proj = Projection(queries, config.hidden_size, bias=config.attention_bias, **options)
        self.q_norm, self.k_norm = (
            RMSNorm(config.head_dim, epsilon=config.rms_norm_eps, **kwargs) if config.query_key_norm else None
            for _ in range(2)
        )

    def __call__(
        self, x: jax.Array, layout: TokenLayout, stored: Stored | None, shared: Stored | None
    ) -> tuple[jax.Array, Stored | None]:
        """x [B, s, hidden_size] -> the same shape, and the cached keys and values with x's in them."""
        query, key, value = (
            projection(x).reshape(*x.shape[:-1], -1, self.head_dim)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        if layout.cosines is not None:
            query, key = (rotate(x, layout.cosines, layout.sines) for x in (query, key))
        if stored is None:
            own = jnp.moveaxis(key, 1, 3), jnp.moveaxis(value, 1, 2)
        else:
            rows = jnp.arange(x.shape[0])[:, None]
            # Slots beyond the end, for padding, are written nowhere.
            options = {"mode": "drop", "unique_indices": True}
            keys, values = stored
            keys = keys.at[rows, :, :, layout.slots].set(key.astype(keys.dtype), **options)
            values = values.at[rows, :, layout.slots].set(value.astype(values.dtype), **options)
            own = stored = keys, values
        own, shared = jax.tree.map(lambda array: array.astype(query.dtype), (own, shared))
        result = _attend(query, own, layout.allowed, shared, layout.prefix)
        return self.o_proj(result.reshape(*x.shape[:-1], -1)), stored


class DecoderMLP(nnx.Module):
    """The gated feed-forward."""

    def __init__(self, config: DecoderConfig, *, int8: bool, **kwargs: Any):
        kwargs = {"bias": config.mlp_bias, "int8": int8, **kwargs}
        self.gate_proj = Projection(config.hidden_size, config.intermediate_size, **kwargs)
        self.up_proj = Projection(config.hidden_size, config.intermediate_size, **kwargs)
        self.down_proj = Projection(config.intermediate_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., hidden_size] -> the same shape."""
        return self.down_proj(jax.nn.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nnx.Module):
    """Attention and feed-forward, each after a norm and around a residual."""

    def __init__(self, config: DecoderConfig, *, int8: bool, **kwargs: Any):
        self.input_layernorm = self.make_norm(config, **kwargs)
        self.self_attn = DecoderAttention(config, int8=int8, **kwargs)
        self.post_attention_layernorm = self.make_norm(config, **kwargs)
        self.mlp = DecoderMLP(config, int8=int8, **kwargs)

    @staticmethod
    def make_norm(config: DecoderConfig, **kwargs: Any) -> RMSNorm:
        """One of the norms of states, which are all alike."""
        return RMSNorm(config.hidden_size, epsilon=config.rms_norm_eps, **kwargs)

    def __call__(
        self, x: jax.Array, layout: TokenLayout, stored: Stored | None, shared: Stored | None
    ) -> tuple[jax.Array, Stored | None]:
        """See the attention layer."""
        attended, stored = self.self_attn(self.input_layernorm(x), layout, stored, shared)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), stored


class Decoder(Network):
    """A language model: the states of tokens, and the logits of what follows them.

    Every layer's parameters and its part of the cache are their own arrays, and programs have all layers one after
    the other: a loop over stacked ones (`jax.lax.scan`) would copy each layer's out of the stack at every step. With
    ``int8`` the layers' projections hold 8-bit numbers.
    """

    config_class: ClassVar = DecoderConfig
    layer_class: ClassVar = DecoderLayer
    file_keys: ClassVar = KeyTable(
        # The language side of LLaVA, as it was saved before transformers 4.52 and since then.
        renames=((r"language_model\.(model|lm_head)\.", r"\1."), (r"model\.language_model\.", r"model.")),
        ignored=(
            r"model\.(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",  # a buffer of transformers before 4.31
            r"(model\.)?(vision_tower|multi_modal_projector)\..*",
        ),
    )

    def build(self, config: DecoderConfig, *, int8: bool = False, **kwargs: Any) -> None:
        self.int8 = int8
        self.embed_tokens = embedding(config.vocab_size, config.hidden_size, **kwargs)
        self.layers = nnx.List([self.layer_class(config, int8=int8, **kwargs) for _ in range(config.num_hidden_layers)])
        self.norm = self.layer_class.make_norm(config, **kwargs)
        tied = config.tie_word_embeddings
        self.lm_head = None if tied else Projection(config.hidden_size, config.vocab_size, **kwargs)

    def __call__(
        self,
        input_ids: jax.Array,
        positions: jax.Array,
        cache: Cache | None = None,
        mask: jax.Array | None = None,
        prefix: jax.Array | None = None,
        rotations: jax.Array | None = None,
        additions: Sequence[jax.Array] = (),
    ) -> tuple[jax.Array, Cache | None]:
        """Computes the states of some tokens.

        Args:
          input_ids: [B, s] int32, within the vocabulary.
          positions: [B, s] int32, each token's position in its text, which is its slot in the cache as well. No two of
            a row are the same, unless a cache is missing and ``mask`` keeps them apart. Negative for padding, which may
            be anywhere: it is written nowhere, nobody attends to it, and its own states mean nothing. Positions beyond
            the cache's last slot are written nowhere, without notice.
          cache: the earlier tokens. Tokens attend to its prefix, whose positions are before all of ``positions``, and
            to the slots up to their own position that are written, with these tokens. Slots that are written already
            are overwritten. Without a cache, tokens attend to the ones in ``input_ids`` at their own position or
            before.
          mask: bool [B, s, slots of the cache, or s without one]. Where False, a token does not attend although
            it otherwise would. The prefix has none.
          prefix: [B, P, hidden_size], inputs before the embeddings of the tokens, such as an image. Positions,
            mask, rotations, additions and result then cover P + s tokens.
          rotations: int32 [B, s, head_dim / 2], the positions that the pairs of each token's heads are turned by; None
            for the ones in ``positions``, and what the cache has them ahead.
          additions: addends of the states behind each of the first layers, [B, s, hidden_size].

        Returns:
          [B, s, hidden_size] in the compute dtype, after the last norm, and the cache with the new tokens in it (None
          without a cache).
        """
        check_length(self.config, positions.shape[1])
        layout, written = self._layout(positions, cache, mask, rotations)
        x = self.embed(input_ids)
        if prefix is not None:
            x = jnp.concatenate([prefix.astype(x.dtype), x], axis=1)
        x = self.enter(x, positions)
        before = shared = [None] * len(self.layers)
        if cache is not None:
            before = zip(cache.keys, cache.values, strict=True)
            if cache.prefix is not None:
                shared = zip(cache.prefix.keys, cache.prefix.values, strict=True)
        stored = []
        for number, (layer, own, prefix) in enumerate(zip(self.layers, before, shared, strict=True)):
            x, after = layer(x, layout, own, prefix)
            stored.append(after)
            if number < len(additions):
                x = x + additions[number].astype(x.dtype)
        if cache is None:
            return self.norm(x), None
        keys, values = zip(*stored, strict=True)
        return self.norm(x), dataclasses.replace(cache, keys=keys, values=values, written=written)

    def states_after(
        self, counts: Sequence[int], input_ids: jax.Array, positions: jax.Array, mask: jax.Array | None = None
    ) -> list[jax.Array]:
        """States [B, s, hidden_size] of texts after some of the layers. Those behind are not computed."""
        check_length(self.config, input_ids.shape[1])
        layout, _ = self._layout(positions, None, mask)
        states = [self.enter(self.embed(input_ids), positions)]
        for layer in itertools.islice(self.layers, max(counts)):
            states.append(layer(states[-1], layout, None, None)[0])
        if max(counts) == len(self.layers):
            states[-1] = self.norm(states[-1])
        return [states[count] for count in counts]

    def logits(self, hidden: jax.Array) -> jax.Array:
        """States [..., hidden_size] -> scores of every token as the next one, [..., vocab_size] float32."""
        if self.lm_head is not None:
            return self.lm_head(hidden, result=jnp.float32)
        embedding = self.embed_tokens.embedding[...].astype(self.dtype)
        return jnp.einsum("...d,vd->...v", hidden, embedding, preferred_element_type=jnp.float32)

    def embed(self, input_ids: jax.Array) -> jax.Array:
        """Tokens, int32 [...], as `enter` takes them: [..., hidden_size] in the compute dtype."""
        return jnp.take(self.embed_tokens.embedding[...], input_ids, axis=0).astype(self.dtype)

    def enter(self, x: jax.Array, positions: jax.Array) -> jax.Array:
        """Input of the first layer [B, s, hidden_size], from embeddings and their positions: here the embeddings."""
        return x

    def _layout(
        self, positions: jax.Array, cache: Cache | None, mask: jax.Array | None, rotations: jax.Array | None = None
    ) -> tuple[TokenLayout, jax.Array | None]:
        """Layout of the tokens, and the slots that are written after them."""
        batch, length = positions.shape
        cosines = sines = prefix = None
        if self.config.rotary:
            if rotations is None:
                ahead = 0 if cache is None or cache.ahead is None else cache.ahead[:, None]
                rotations = jnp.maximum(positions + ahead, 0)[..., None]
            angles = rotations.astype(jnp.float32) * inverse_wavelengths(self.config)
            cosines, sines = jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None]
        if cache is None:
            slots, written = positions, None
            reached = (positions[:, None, :] >= 0) & (positions[:, None, :] <= positions[:, :, None])
        else:
            own = positions
            if cache.prefix is not None:
                prefix = cache.prefix.written
                own = positions - jnp.sum(prefix, axis=1, keepdims=True, dtype=positions.dtype)
            # Each padding gets its own number, so that the indices are unique.
            slots = jnp.where(positions < 0, cache.length + jnp.arange(length), own)
            rows = jnp.arange(batch)[:, None]
            written = cache.written.at[rows, slots].set(True, mode="drop", unique_indices=True)
            reached = written[:, None, :] & (jnp.arange(cache.length) <= own[:, :, None])
        if mask is not None:
            reached = reached & mask
        return TokenLayout(cosines, sines, reached, slots, prefix), written


def parameter_shardings(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Shardings of a decoder's parameters: see `winobench.models.tensor_parallel`.

    A layer adds up partial results twice, the embedding once, and the choice of a token compares one number for each
    row and device twice. Nothing else travels.
    """
    return tensor_parallel.parameter_shardings(state, mesh, back=("o_proj", "down_proj"), embedding="embed_tokens")
