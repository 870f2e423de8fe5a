"""Blocks of transformers in which an image and a text attend to each other (Esser et al., 2024).

Image and text are two streams with their own layers, which meet in one softmax; FLUX has blocks with one stream,
too. Time and pooled text modulate every norm. The layout is that of diffusers' published weights. Norms, rotations and
scores are float32 in any compute dtype.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import parallel
from winobench.models import layers
from winobench.models.attention import dot_product_attention
from winobench.models.base import linear
from winobench.models.decoder import RMSNorm

EPSILON = 1e-6
"""Of all norms of Stable Diffusion 3 and FLUX.1. It is in no config."""

Rotations = tuple[jax.Array, jax.Array]
"""Cosines and sines of the tokens' rotations, each [tokens, 1, head_dim / 2] float32. With n before it, of each row."""


def rotated(x: jax.Array, turns: Rotations) -> jax.Array:
    """Turns features 2 i and 2 i + 1 of x [n, tokens, heads, head_dim] float32 by the tokens' i-th angle."""
    cosines, sines = turns
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cosines - odd * sines, odd * cosines + even * sines], axis=-1).reshape(x.shape)


def modulated(x: jax.Array, shift: jax.Array, scale: jax.Array, *, epsilon: float = EPSILON) -> jax.Array:
    """Layer norm over the last axis, times 1 + scale, plus shift. Float32 within, rounded once to the dtype of x.

    x is [n, tokens, width], shift and scale are [n, width].
    """
    values, shift, scale = (part.astype(jnp.float32) for part in (x, shift[:, None], scale[:, None]))
    values = values - jnp.mean(values, axis=-1, keepdims=True)
    values = values * jax.lax.rsqrt(jnp.mean(jnp.square(values), axis=-1, keepdims=True) + epsilon)
    return (values * (1 + scale) + shift).astype(x.dtype)


class AdaLayerNormContinuous(nnx.Module):
    """The norm before the output, whose scale and shift, in this order, are a dense layer of the condition."""

    def __init__(self, width: int, *, bias: bool = True, epsilon: float = EPSILON, **kwargs: Any):
        self.epsilon = epsilon
        self.linear = linear(width, 2 * width, bias=bias, **kwargs)

    def __call__(self, x: jax.Array, condition: jax.Array) -> jax.Array:
        """x [n, tokens, width], condition [n, width] -> the shape of x."""
        scale, shift = jnp.split(self.linear(jax.nn.silu(condition)), 2, axis=-1)
        return modulated(x, shift, scale, epsilon=self.epsilon)


class Modulation(nnx.Module):
    """The dense layer from the condition to a block's shifts, scales and gates."""

    def __init__(self, width: int, count: int, **kwargs: Any):
        self.count = count
        self.linear = linear(width, count * width, **kwargs)

    def __call__(self, condition: jax.Array) -> list[jax.Array]:
        """condition [n, width], after SiLU -> as many arrays of its shape as there are numbers to modulate by."""
        return jnp.split(self.linear(condition), self.count, axis=-1)


class GELU(nnx.Module):
    """A dense layer and GELU by its tanh formula."""

    def __init__(self, inputs: int, outputs: int, **kwargs: Any):
        self.proj = linear(inputs, outputs, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., inputs] -> [..., outputs]."""
        return jax.nn.gelu(self.proj(x), approximate=True)


class FeedForward(nnx.Module):
    """To four times the width and back."""

    def __init__(self, width: int, **kwargs: Any):
        inner = 4 * width
        self.net = nnx.List([GELU(width, inner, **kwargs), layers.Identity(), linear(inner, width, **kwargs)])

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., width] -> [..., width]."""
        for layer in self.net:
            x = layer(x)
        return x


def head_norms(head_dim: int, epsilon: float | None, *, param_dtype: Any, **_: Any) -> list[RMSNorm | None]:
    """The norms of queries and keys, None without an epsilon. Results are float32, for the rotation that follows."""
    if epsilon is None:
        return [None, None]
    return [RMSNorm(head_dim, epsilon=epsilon, dtype=jnp.float32, param_dtype=param_dtype) for _ in range(2)]


def prepared(x: jax.Array, norm: RMSNorm | None, turns: Rotations | None, *, joined: bool = False) -> jax.Array:
    """Queries or keys [n, tokens, heads, head_dim], normed and rotated where they are to be, rounded once.

    With ``joined``, they become a part of a larger array.
    """
    y = x if norm is None else norm(x, apart=joined or turns is not None)
    return (y if turns is None else rotated(y, turns)).astype(x.dtype)


def attend(queries: jax.Array, keys: jax.Array, values: jax.Array, lengths: jax.Array | None = None) -> jax.Array:
    """Full attention [n, tokens, heads, head_dim] -> [n, tokens, heads * head_dim].

    Nothing attends to tokens from ``lengths``, int32 [n], on.
    """
    return dot_product_attention(queries, keys, values, lengths=lengths).reshape(*queries.shape[:2], -1)


class SelfAttention(nnx.Module):
    """Attention within one stream, with norms of queries and keys if there is an epsilon.

    FLUX has no output projection here, but one behind what it computes next to the attention.
    """

    def __init__(
        self, heads: int, head_dim: int, *, bias: bool, epsilon: float | None, with_output: bool = False, **kwargs: Any
    ):
        width = heads * head_dim
        kwargs = {"bias": bias, **kwargs}
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (linear(width, width, **kwargs) for _ in range(3))
        self.norm_q, self.norm_k = head_norms(head_dim, epsilon, **kwargs)
        self.to_out = nnx.List([linear(width, width, **kwargs)]) if with_output else None

    def projections(self, x: jax.Array, turns: Rotations | None, **how: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        """x [n, tokens, width] -> queries and keys (`prepared`) and values, each [n, tokens, heads, head_dim]."""
        return _projected(x, self.heads, (self.to_q, self.to_k, self.to_v), (self.norm_q, self.norm_k), turns, **how)

    def __call__(self, x: jax.Array, turns: Rotations | None = None, lengths: jax.Array | None = None) -> jax.Array:
        """x [n, tokens, width] -> the same shape. Lengths as in `attend`."""
        y = attend(*self.projections(x, turns), lengths)
        return y if self.to_out is None else self.to_out[0](y)


class JointAttention(SelfAttention):
    """Attention over a text and an image, each with its own projections (Esser et al., 2024, Fig. 2b).

    With ``text_ends``, the last use of the text, there is no output projection of it.
    """

    def __init__(
        self, heads: int, head_dim: int, *, bias: bool, epsilon: float | None, text_ends: bool = False, **kwargs: Any
    ):
        width = heads * head_dim
        kwargs = {"bias": bias, **kwargs}
        super().__init__(heads, head_dim, epsilon=epsilon, with_output=True, **kwargs)
        self.add_q_proj, self.add_k_proj, self.add_v_proj = (linear(width, width, **kwargs) for _ in range(3))
        self.norm_added_q, self.norm_added_k = head_norms(head_dim, epsilon, **kwargs)
        self.to_add_out = None if text_ends else linear(width, width, **kwargs)

    def __call__(
        self, image: jax.Array, text: jax.Array, turns: Rotations | None = None
    ) -> tuple[jax.Array, jax.Array | None]:
        """image [n, patches, width], text [n, tokens, width]. Rotations of the text's tokens first -> both shapes."""
        length = text.shape[1]
        of_text, of_image = (None, None) if turns is None else zip(*(jnp.split(part, [length]) for part in turns), strict=True)
        layers_of_text = (self.add_q_proj, self.add_k_proj, self.add_v_proj)
        text_parts = _projected(
            text, self.heads, layers_of_text, (self.norm_added_q, self.norm_added_k), of_text, joined=True
        )
        image_parts = self.projections(image, of_image, joined=True)
        # Keys and values of both streams are one array each. Queries need not be, nor what they find.
        joined = [jnp.concatenate(parts, axis=1) for parts in zip(text_parts[1:], image_parts[1:], strict=True)]
        from_image = self.to_out[0](attend(image_parts[0], *joined))
        return from_image, None if self.to_add_out is None else self.to_add_out(attend(text_parts[0], *joined))


def _projected(
    x: jax.Array,
    heads: int,
    projections: tuple[nnx.Module, ...],
    norms: tuple[RMSNorm | None, ...],
    turns: Rotations | None,
    *,
    joined: bool = False,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Queries and keys (`prepared`) and values of a stream."""
    queries, keys, values = (split_heads(layer(x), heads) for layer in projections)
    return prepared(queries, norms[0], turns), prepared(keys, norms[1], turns, joined=joined), values


def of_parts(layer: nnx.Module, *parts: jax.Array) -> jax.Array:
    """The dense layer of parts that follow each other along the features. A product each, and none of all as one array.

    Equal to the one product but for rounding.
    """
    if type(layer) is not nnx.Linear or not parallel.runs_on_one_device():
        return layer(jnp.concatenate(parts, axis=-1))
    kernels = jnp.split(layer.kernel[...].astype(layer.dtype), np.cumsum([part.shape[-1] for part in parts])[:-1])
    y = sum(part.astype(layer.dtype) @ kernel for part, kernel in zip(parts, kernels, strict=True))
    return y if layer.bias is None else y + layer.bias[...].astype(layer.dtype)


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[n, tokens, width] -> [n, tokens, heads, width / heads]."""
    return x.reshape(*x.shape[:-1], heads, -1)
