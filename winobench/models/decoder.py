"""Decoder-only language models: LLaMA 1 to 3 (Touvron et al., 2023; Grattafiori et al., 2024) and Qwen3 (2025).

One network serves them all: tokens, layers of causal attention with rotary positions (Su et al., 2021) and a gated
feed-forward (Shazeer, 2020), each after a root-mean-square norm (Zhang and Sennrich, 2019). The language side of
LLaVA-1.5 is a LLaMA. Norms, rotations, attention scores and softmax are float32 in every compute dtype.

A text may be computed at once or piece by piece: the keys and values of what came before are in a `Cache` of fixed
length, so that every step of a generation has one shape and is compiled once.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from winobench import parallel
from winobench.models.decoder_config import DecoderConfig, inverse_wavelengths

# Scores of what may not be attended to. Finite, so that a row that may attend to nothing, which only padding has, gets
# finite results, which nobody reads.
_NOWHERE = -1e30


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far; a pytree.

    Attributes:
      keys: [layers, B, length, key-value heads, head_dim], rotated.
      values: [layers, B, length, key-value heads, head_dim].
      written: bool [B, length], which slots hold a token. A token's slot is its position.
    """

    keys: jax.Array
    values: jax.Array
    written: jax.Array

    @property
    def length(self) -> int:
        """Number of slots."""
        return self.keys.shape[2]

    def repeat(self, count: int) -> Cache:
        """Each row ``count`` times: B rows become ``B * count``, for several continuations of the same text."""
        return Cache(
            jnp.repeat(self.keys, count, axis=1),
            jnp.repeat(self.values, count, axis=1),
            jnp.repeat(self.written, count, axis=0),
        )

    def resize(self, length: int) -> Cache:
        """The same with another number of slots; new ones are empty, and what lies beyond the new length is lost."""
        more = max(0, length - self.length)
        keys, values = (
            jnp.pad(x, ((0, 0), (0, 0), (0, more), (0, 0), (0, 0)))[:, :, :length] for x in (self.keys, self.values)
        )
        return Cache(keys, values, jnp.pad(self.written, ((0, 0), (0, more)))[:, :length])


def make_cache(config: DecoderConfig, batch: int, length: int, dtype: Any = jnp.float32) -> Cache:
    """An empty cache.

    Args:
      config: the network's shape.
      batch: number of texts B.
      length: number of slots, at least the number of tokens of the longest text with its continuation.
      dtype: of keys and values, the network's compute dtype.

    Raises:
      ValueError: if the model cannot compute texts of this length.
    """
    _check_length(config, length)
    shape = (config.num_hidden_layers, batch, length, config.num_key_value_heads, config.head_dim)
    return Cache(jnp.zeros(shape, dtype), jnp.zeros(shape, dtype), jnp.zeros((batch, length), bool))


def _check_length(config: DecoderConfig, length: int) -> None:
    if config.longest is not None and length > config.longest:
        raise ValueError(
            f"Decoder: {length} tokens, but rotations with the dynamic scaling of this model are implemented up to "
            f"{config.longest}; shorten the texts."
        )


class Projection(nnx.Module):
    """A dense layer on the last axis; ``kernel`` is [inputs, outputs].

    With ``int8`` the kernel holds whole numbers of 8 bits, and ``kernel_scale`` [outputs] float32 is what each output
    channel's numbers are multiples of. The product is computed in the compute dtype, and its result is scaled: the
    kernel is never held in another dtype than its own, where XLA converts on the fly.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        bias: bool = False,
        int8: bool = False,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        self.dtype = dtype
        if int8:
            self.kernel = nnx.Param(jnp.zeros((inputs, outputs), jnp.int8))
            self.kernel_scale = nnx.Param(jnp.ones((outputs,), jnp.float32))
        else:
            self.kernel = nnx.Param(nnx.initializers.normal(0.02)(rngs.params(), (inputs, outputs), param_dtype))
            self.kernel_scale = None
        self.bias = nnx.Param(jnp.zeros((outputs,), param_dtype)) if bias else None

    def __call__(self, x: jax.Array, *, result: Any = None) -> jax.Array:
        """x [..., inputs] -> [..., outputs] in the compute dtype, or in the dtype ``result``."""
        result = self.dtype if result is None else result
        kernel = self.kernel[...].astype(self.dtype)
        if self.kernel_scale is None:
            y = jnp.matmul(x, kernel, preferred_element_type=result)
        else:
            y = jnp.matmul(x, kernel, preferred_element_type=jnp.float32)
            y = (y * self.kernel_scale[...]).astype(result)
        return y if self.bias is None else y + self.bias[...].astype(result)


def quantise(kernel: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rounds a kernel to 8 bits, symmetrically about 0, with a scale for each output channel.

    Args:
      kernel: [inputs, outputs].

    Returns:
      int8 [inputs, outputs] within -127 to 127, and float32 [outputs] that its columns are to be multiplied with.
    """
    kernel = kernel.astype(jnp.float32)
    largest = jnp.max(jnp.abs(kernel), axis=0)
    scale = jnp.where(largest > 0, largest / 127.0, 1.0)
    return jnp.round(kernel / scale).astype(jnp.int8), scale


class RMSNorm(nnx.Module):
    """Divides by the root mean square over the last axis, in float32, and scales."""

    def __init__(self, features: int, *, epsilon: float, dtype: Any, param_dtype: Any):
        self.epsilon = epsilon
        self.dtype = dtype
        self.scale = nnx.Param(jnp.ones((features,), param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., features] -> the same shape in the compute dtype."""
        x = x.astype(jnp.float32)
        x = x * jax.lax.rsqrt(jnp.mean(jnp.square(x), axis=-1, keepdims=True) + self.epsilon)
        return (x * self.scale[...].astype(jnp.float32)).astype(self.dtype)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Places:
    """Where tokens are, the same for all layers.

    Attributes:
      cosines, sines: [B, s, 1, head_dim / 2] float32, of the tokens' rotations.
      allowed: bool [B, s, slots], which slots each token attends to.
      slots: int32 [B, s], where keys and values go; a number beyond the last slot for padding.
    """

    cosines: jax.Array
    sines: jax.Array
    allowed: jax.Array
    slots: jax.Array


def _rotate(x: jax.Array, places: _Places) -> jax.Array:
    """Turns each pair (i, i + head_dim / 2) of every head by its position's angle; [B, s, heads, head_dim]."""
    first, second = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    turned = (
        first * places.cosines - second * places.sines,
        second * places.cosines + first * places.sines,
    )
    return jnp.concatenate(turned, axis=-1).astype(x.dtype)


def _attend(query: jax.Array, key: jax.Array, value: jax.Array, allowed: jax.Array) -> jax.Array:
    """Grouped-query attention, scores and softmax in float32.

    Plain products: which slots may be attended to differs from row to row and with what the cache holds, which the
    fused kernels take as an array of biases only; and on CPUs these products are faster than
    ``jax.nn.dot_product_attention`` (see ``winobench.models.layers``). Keys and values are not repeated for the heads
    that share them.

    Args:
      query: [B, s, heads, head_dim].
      key: [B, slots, key-value heads, head_dim].
      value: [B, slots, key-value heads, head_dim].
      allowed: bool [B, s, slots].

    Returns:
      [B, s, heads, head_dim] in the dtype of ``query``.
    """
    batch, length, heads, width = query.shape
    grouped = query.reshape(batch, length, key.shape[2], -1, width)
    scores = jnp.einsum("btkgd,bskd->bkgts", grouped, key, preferred_element_type=jnp.float32) * width**-0.5
    scores = jnp.where(allowed[:, None, None], scores, _NOWHERE)
    weights = jnp.exp(scores - jnp.max(scores, axis=-1, keepdims=True))
    total = jnp.sum(weights, axis=-1)
    result = jnp.einsum("bkgts,bskd->btkgd", weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
    result = result / jnp.moveaxis(total, 3, 1)[..., None]
    return result.reshape(batch, length, heads, width).astype(query.dtype)


class DecoderAttention(nnx.Module):
    """Causal attention with rotary positions."""

    def __init__(self, config: DecoderConfig, *, int8: bool, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.head_dim = config.head_dim
        kwargs = {"bias": config.attention_bias, "int8": int8, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        queries = config.num_attention_heads * config.head_dim
        keys = config.num_key_value_heads * config.head_dim
        self.q_proj = Projection(config.hidden_size, queries, **kwargs)
        self.k_proj = Projection(config.hidden_size, keys, **kwargs)
        self.v_proj = Projection(config.hidden_size, keys, **kwargs)
        self.o_proj = Projection(queries, config.hidden_size, **kwargs)

        def norm():
            if not config.query_key_norm:
                return None
            return RMSNorm(config.head_dim, epsilon=config.rms_norm_eps, dtype=dtype, param_dtype=param_dtype)

        self.q_norm = norm()
        self.k_norm = norm()

    def __call__(
        self, x: jax.Array, places: _Places, stored: tuple[jax.Array, jax.Array] | None, layer: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
        """x [B, s, hidden_size] -> the same shape, and the keys and values of all layers with those of x in them."""
        query, key, value = (
            projection(x).reshape(*x.shape[:-1], -1, self.head_dim)
            for projection in (self.q_proj, self.k_proj, self.v_proj)
        )
        if self.q_norm is not None:
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = _rotate(query, places), _rotate(key, places)
        if stored is not None:
            rows = jnp.arange(x.shape[0])[:, None]
            stored = tuple(
                # Slots beyond the end, those of padding, are written nowhere.
                array.at[layer, rows, places.slots].set(new.astype(array.dtype), mode="drop", unique_indices=True)
                for array, new in zip(stored, (key, value), strict=True)
            )
            key, value = (jax.lax.dynamic_index_in_dim(array, layer, keepdims=False) for array in stored)
        result = _attend(query, key.astype(query.dtype), value.astype(query.dtype), places.allowed)
        return self.o_proj(result.reshape(*x.shape[:-1], -1)), stored


class DecoderMLP(nnx.Module):
    """The gated feed-forward."""

    def __init__(self, config: DecoderConfig, *, int8: bool, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"bias": config.mlp_bias, "int8": int8, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.gate_proj = Projection(config.hidden_size, config.intermediate_size, **kwargs)
        self.up_proj = Projection(config.hidden_size, config.intermediate_size, **kwargs)
        self.down_proj = Projection(config.intermediate_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., hidden_size] -> the same shape."""
        return self.down_proj(jax.nn.silu(self.gate_proj(x)) * self.up_proj(x))


class DecoderLayer(nnx.Module):
    """Attention and feed-forward, each after a norm and around a residual."""

    def __init__(self, config: DecoderConfig, *, int8: bool, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype}
        self.input_layernorm = RMSNorm(config.hidden_size, epsilon=config.rms_norm_eps, **kwargs)
        self.self_attn = DecoderAttention(config, int8=int8, rngs=rngs, **kwargs)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, epsilon=config.rms_norm_eps, **kwargs)
        self.mlp = DecoderMLP(config, int8=int8, rngs=rngs, **kwargs)

    def __call__(
        self, x: jax.Array, places: _Places, stored: tuple[jax.Array, jax.Array] | None, layer: jax.Array
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array] | None]:
        """As the attention."""
        attended, stored = self.self_attn(self.input_layernorm(x), places, stored, layer)
        x = x + attended
        return x + self.mlp(self.post_attention_layernorm(x)), stored


class Decoder(nnx.Module):
    """A language model: the states of tokens, and the logits of what follows them.

    The parameters of all layers are stacked, [layers, ...], and a loop (`jax.lax.scan`) walks them: 40 layers compile
    as fast as one. The cache is carried through the loop and written in place.

    Args:
      config: the network's shape.
      int8: the layers' projections hold 8-bit numbers; embedding, output, norms and biases keep ``param_dtype``.
      dtype: compute dtype, float32 or bfloat16.
      param_dtype: dtype of the parameters.
      rngs: source of the initial parameters.
    """

    config_class: ClassVar = DecoderConfig

    def __init__(
        self,
        config: DecoderConfig,
        *,
        int8: bool = False,
        dtype: Any = jnp.float32,
        param_dtype: Any = jnp.float32,
        rngs: nnx.Rngs,
    ):
        self.config = config
        self.int8 = int8
        self.dtype = jnp.dtype(dtype)
        kwargs = {"dtype": self.dtype, "param_dtype": jnp.dtype(param_dtype)}
        self.embed_tokens = nnx.Embed(
            config.vocab_size,
            config.hidden_size,
            embedding_init=nnx.initializers.normal(0.02),
            rngs=rngs,
            **kwargs,
        )
        keys = jax.random.split(rngs.params(), config.num_hidden_layers)
        self.layers = nnx.vmap(lambda key: DecoderLayer(config, int8=int8, rngs=nnx.Rngs(key), **kwargs))(keys)
        self.norm = RMSNorm(config.hidden_size, epsilon=config.rms_norm_eps, **kwargs)
        tied = config.tie_word_embeddings
        self.lm_head = None if tied else Projection(config.hidden_size, config.vocab_size, rngs=rngs, **kwargs)

    def __call__(
        self,
        input_ids: jax.Array,
        positions: jax.Array,
        cache: Cache | None = None,
        mask: jax.Array | None = None,
    ) -> tuple[jax.Array, Cache | None]:
        """Computes the states of some tokens.

        Args:
          input_ids: [B, s] int32, within the vocabulary.
          positions: [B, s] int32, each token's position in its text, which is its slot in the cache as well; no two of
            a row are the same, unless there is no cache and ``mask`` keeps them apart. Negative for padding, which may
            be anywhere: it is written nowhere, nobody attends to it, and its own states mean nothing. Positions beyond
            the cache's last slot are written nowhere, without notice.
          cache: what came before. Tokens attend to the slots up to their own position that are written, these tokens
            included; slots that are written already are overwritten. Without a cache, tokens attend to those of
            ``input_ids`` at their own position or before.
          mask: bool [B, s, slots of the cache, or s without one]; where False, a token does not attend although it
            otherwise would.

        Returns:
          [B, s, hidden_size] in the compute dtype, after the last norm, and the cache with the new tokens in it (None
          without a cache).

        Raises:
          ValueError: if the texts are longer than the model's kind of rotary scaling allows.
        """
        _check_length(self.config, input_ids.shape[1])
        places, written = self._places(positions, cache, mask)
        x = jnp.take(self.embed_tokens.embedding[...], input_ids, axis=0).astype(self.dtype)
        graph, stacked = nnx.split(self.layers)

        def step(carry: Any, item: tuple[Any, jax.Array]) -> tuple[Any, None]:
            x, stored = carry
            state, layer = item
            return nnx.merge(graph, state)(x, places, stored, layer), None

        stored = None if cache is None else (cache.keys, cache.values)
        numbers = jnp.arange(self.config.num_hidden_layers)
        (x, stored), _ = jax.lax.scan(step, (x, stored), (stacked, numbers))
        return self.norm(x), None if cache is None else Cache(*stored, written)

    def logits(self, hidden: jax.Array) -> jax.Array:
        """Scores every token as the next one.

        Args:
          hidden: [..., hidden_size], what the network returned, or the part of it that matters.

        Returns:
          [..., vocab_size] float32.
        """
        if self.lm_head is not None:
            return self.lm_head(hidden, result=jnp.float32)
        embedding = self.embed_tokens.embedding[...].astype(self.dtype)
        return jnp.einsum("...d,vd->...v", hidden, embedding, preferred_element_type=jnp.float32)

    def _places(
        self, positions: jax.Array, cache: Cache | None, mask: jax.Array | None
    ) -> tuple[_Places, jax.Array | None]:
        """Where the tokens are, and the slots that are written once they are."""
        batch, length = positions.shape
        angles = jnp.maximum(positions, 0).astype(jnp.float32)[..., None] * inverse_wavelengths(self.config)
        if cache is None:
            slots, written = positions, None
            reached = (positions[:, None, :] >= 0) & (positions[:, None, :] <= positions[:, :, None])
        else:
            # Each padding gets a number of its own, so that the indices are unique.
            slots = jnp.where(positions < 0, cache.length + jnp.arange(length), positions)
            rows = jnp.arange(batch)[:, None]
            written = cache.written.at[rows, slots].set(True, mode="drop", unique_indices=True)
            reached = written[:, None, :] & (jnp.arange(cache.length) <= positions[:, :, None])
        if mask is not None:
            reached = reached & mask
        return _Places(jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None], reached, slots), written


def parameter_shardings(state: Any, mesh: Mesh | AbstractMesh) -> Any:
    """Where each parameter of a decoder lives.

    As `winobench.parallel.parameter_shardings`, but the projections back to the states are split along their inputs,
    which are the outputs of those before them: a layer then adds up partial results twice, and nothing else travels
    (Shoeybi et al., 2019). Norms, and what belongs to the outputs of these projections, are whole on every device.

    Args:
      state: the network's state, of arrays or of shapes.
      mesh: the mesh; one without devices will do.

    Returns:
      The same pytree with a `NamedSharding` at each leaf.
    """
    usual = parallel.parameter_shardings(state, mesh)
    parts = mesh.shape.get(parallel.MODEL_AXIS, 1)
    if parts == 1:
        return usual
    whole = NamedSharding(mesh, PartitionSpec())
    inputs_split = NamedSharding(mesh, PartitionSpec(None, parallel.MODEL_AXIS, None))

    def sharding(path: tuple[Any, ...], leaf: Any, usual: NamedSharding) -> NamedSharding:
        owner, name = (entry.key for entry in path[-3:-1])  # the last entry is the parameter's value
        if name == "scale":
            return whole
        if owner in ("o_proj", "down_proj"):
            if name != "kernel":
                return whole
            if leaf.shape[-2] % parts == 0:
                return inputs_split
        return usual

    return jax.tree_util.tree_map_with_path(sharding, state, usual)


def cache_shardings(config: DecoderConfig, batch: int, mesh: Mesh | AbstractMesh) -> Cache:
    """Where a cache lives: its rows are split over the data axis, its heads over the model axis, where divisible.

    Returns:
      A cache with a `NamedSharding` at each leaf.
    """
    rows = parallel.DATA_AXIS if batch % mesh.shape[parallel.DATA_AXIS] == 0 else None
    parts = mesh.shape.get(parallel.MODEL_AXIS, 1)
    heads = parallel.MODEL_AXIS if parts > 1 and config.num_key_value_heads % parts == 0 else None
    stored = NamedSharding(mesh, PartitionSpec(None, rows, None, heads, None))
    return Cache(stored, stored, NamedSharding(mesh, PartitionSpec(rows, None)))
