"""Blocks of transformers in which the positions of an image and of a text attend to each other (Esser et al. 2024).

Image and text have weights of their own and meet in one softmax. Time and pooled text set scale, shift and gate of
every block. Torch's attribute names; norms and scores in float32 whatever the compute dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models.attention import dot_product_attention
from winobench.models.base import linear
from winobench.models.layers import Identity, TimestepEmbedding, timestep_embedding

NORM_EPSILON = 1e-6
"""Of all norms in these transformers."""

_TIME_FEATURES = 256

Rotation = Callable[[jax.Array], jax.Array]
"""[B, positions, heads, head size] -> the same, turned by the positions."""


class RMSNorm(nnx.Module):
    """Root mean square norm of the last axis (Zhang and Sennrich 2019), in float32; ``weight`` is [features]."""

    def __init__(self, features: int, *, epsilon: float = NORM_EPSILON, dtype: Any, param_dtype: Any):
        self.epsilon = epsilon
        self.dtype = dtype
        self.weight = nnx.Param(jnp.ones((features,), param_dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., features] -> the same shape in the compute dtype."""
        values = x.astype(jnp.float32)
        scale = jax.lax.rsqrt(jnp.mean(jnp.square(values), axis=-1, keepdims=True) + self.epsilon)
        return (values * scale * self.weight[...].astype(jnp.float32)).astype(self.dtype)


def normalised(x: jax.Array) -> jax.Array:
    """Layer norm of the last axis without parameters: float32."""
    values = x.astype(jnp.float32)
    values = values - values.mean(axis=-1, keepdims=True)
    return values * jax.lax.rsqrt(jnp.mean(jnp.square(values), axis=-1, keepdims=True) + NORM_EPSILON)


def modulated(x: jax.Array, scale: jax.Array, shift: jax.Array) -> jax.Array:
    """x [B, T, features], normalised, times 1 + scale [B, features] plus shift [B, features]: float32."""
    return x * (1 + scale.astype(jnp.float32)[:, None]) + shift.astype(jnp.float32)[:, None]


class Modulation(nnx.Module):
    """SiLU and a dense layer that make a number of vectors of the conditions; the published ``AdaLayerNorm*``."""

    def __init__(self, conditions: int, features: int, count: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.count = count
        self.linear = linear(conditions, count * features, dtype=dtype, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, conditions: jax.Array) -> list[jax.Array]:
        """[B, conditions] -> ``count`` arrays [B, features], in the order of the published file."""
        return jnp.split(self.linear(jax.nn.silu(conditions)), self.count, axis=-1)


class LastNorm(nnx.Module):
    """The norm ahead of the output, whose vectors are scale and shift (``AdaLayerNormContinuous``)."""

    def __init__(self, features: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.dtype = dtype
        self.linear = linear(features, 2 * features, dtype=dtype, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: jax.Array, conditions: jax.Array) -> jax.Array:
        """x [B, T, features], conditions [B, features] -> [B, T, features]."""
        scale, shift = jnp.split(self.linear(jax.nn.silu(conditions)), 2, axis=-1)
        return modulated(normalised(x), scale, shift).astype(self.dtype)


class GELU(nnx.Module):
    """A dense layer and the tanh form of GELU."""

    def __init__(self, inputs: int, outputs: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.proj = linear(inputs, outputs, dtype=dtype, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., inputs] -> [..., outputs]."""
        return jax.nn.gelu(self.proj(x), approximate=True)


class FeedForward(nnx.Module):
    """GELU to four times the width and back."""

    def __init__(self, features: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.net = nnx.List(
            [GELU(features, 4 * features, **kwargs), Identity(), linear(4 * features, features, **kwargs)]
        )

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., features] -> [..., features]."""
        for layer in self.net:
            x = layer(x)
        return x


class JointAttention(nnx.Module):
    """Attention of an image's positions and, unless there is none, a text's to all of both.

    Args:
      features: width of both.
      heads: number of heads.
      head_size: of each.
      with_text: a text takes part, with projections of its own.
      text_ends: nothing is wanted of the text any more, so that it has no output projection.
      qk_norm: queries and keys are normalised, head by head.
      text_first: which of the two comes first in the softmax; the result is the same but for rounding.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        head_size: int,
        *,
        with_text: bool = True,
        text_ends: bool = False,
        qk_norm: bool = False,
        text_first: bool = False,
        dtype: Any,
        param_dtype: Any,
        rngs: nnx.Rngs,
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.heads, self.head_size, self.text_first = heads, head_size, text_first
        inner = heads * head_size
        self.to_q, self.to_k, self.to_v = (linear(features, inner, **kwargs) for _ in range(3))
        self.to_out = nnx.List([linear(inner, features, **kwargs)])
        names = ("norm_q", "norm_k")
        if with_text:
            self.add_q_proj, self.add_k_proj, self.add_v_proj = (linear(features, inner, **kwargs) for _ in range(3))
            self.to_add_out = None if text_ends else linear(inner, features, **kwargs)
            names += ("norm_added_q", "norm_added_k")
        for name in names:
            norm = RMSNorm(head_size, dtype=dtype, param_dtype=param_dtype) if qk_norm else None
            setattr(self, name, norm)

    def __call__(
        self, image: jax.Array, text: jax.Array | None = None, rotate: Rotation | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """image [B, T, features], text [B, S, features] -> both again; None for a text that is not wanted.

        ``rotate`` turns queries and keys of all positions, in the order of the softmax.
        """
        query, key, value = self._heads(image, self.to_q, self.to_k, self.to_v, self.norm_q, self.norm_k)
        if text is not None:
            added = self._heads(
                text, self.add_q_proj, self.add_k_proj, self.add_v_proj, self.norm_added_q, self.norm_added_k
            )
            pairs = zip(added, (query, key, value), strict=True)
            query, key, value = (jnp.concatenate(both if self.text_first else both[::-1], axis=1) for both in pairs)
        if rotate is not None:
            query, key = rotate(query), rotate(key)
        mixed = dot_product_attention(query, key, value)
        mixed = mixed.reshape(*mixed.shape[:2], -1)
        if text is None:
            return self.to_out[0](mixed), None
        first = text.shape[1] if self.text_first else image.shape[1]
        parts = (mixed[:, :first], mixed[:, first:])
        of_image, of_text = reversed(parts) if self.text_first else parts
        return self.to_out[0](of_image), None if self.to_add_out is None else self.to_add_out(of_text)

    def _heads(self, x: jax.Array, to_query, to_key, to_value, norm_query, norm_key) -> tuple[jax.Array, ...]:
        """Queries, keys and values of x [B, T, features]: [B, T, heads, head size] each."""
        query, key, value = (
            layer(x).reshape(*x.shape[:2], self.heads, self.head_size) for layer in (to_query, to_key, to_value)
        )
        return (query if norm_query is None else norm_query(query), key if norm_key is None else norm_key(key), value)


class TextProjection(nnx.Module):
    """Two dense layers with SiLU between them, of the pooled text."""

    def __init__(self, inputs: int, outputs: int, *, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.linear_1 = linear(inputs, outputs, **kwargs)
        self.linear_2 = linear(outputs, outputs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, inputs] -> [B, outputs]."""
        return self.linear_2(jax.nn.silu(self.linear_1(x)))


class TimeTextEmbedding(nnx.Module):
    """The conditions of all blocks: time, pooled text, and guidance where the model takes it."""

    def __init__(
        self, features: int, pooled: int, *, with_guidance: bool = False, dtype: Any, param_dtype: Any, rngs: nnx.Rngs
    ):
        kwargs = {"dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.dtype = dtype
        self.timestep_embedder = TimestepEmbedding(_TIME_FEATURES, features, **kwargs)
        self.guidance_embedder = TimestepEmbedding(_TIME_FEATURES, features, **kwargs) if with_guidance else None
        self.text_embedder = TextProjection(pooled, features, **kwargs)

    def __call__(self, times: jax.Array, pooled: jax.Array, guidance: jax.Array | None = None) -> jax.Array:
        """times [B], pooled [B, width], guidance [B] if the model takes it -> [B, features]."""
        states = self.timestep_embedder(self._waves(times))
        if self.guidance_embedder is not None:
            states = states + self.guidance_embedder(self._waves(guidance))
        return states + self.text_embedder(pooled.astype(self.dtype))

    def _waves(self, numbers: jax.Array) -> jax.Array:
        waves = timestep_embedding(numbers, _TIME_FEATURES, flip_sin_to_cos=True, freq_shift=0)
        return waves.astype(self.dtype)
