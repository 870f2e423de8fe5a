"""Blocks of transformers in which an image and a text attend to each other (Esser et al., 2024).

Image and text are two streams with their own layers, which meet in one softmax; FLUX has blocks with one stream,
too. Time and pooled text modulate every norm. The layout follows diffusers' published weights. Norms, rotations and
scores are float32 in any compute dtype.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench import parallel
from winobench.models import layers, packed_attention
from winobench.models.attention import dot_product_attention
from winobench.models.base import linear
from winobench.models.decoder import RMSNorm, rms_norm
from winobench.models.float8 import Float8Linear

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
    """Dense layers to four times the width and back."""

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


def prepared(
    x: jax.Array, norm: Callable[..., jax.Array] | None, turns: Rotations | None, *, joined: bool = False
) -> jax.Array:
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

    FLUX has no output projection here, but one behind the layer next to the attention.
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

    def stream(self, x: jax.Array, turns: Rotations | None) -> Stream:
        """Tokens x [n, tokens, width]."""
        return Stream.of([layer(x) for layer in (self.to_q, self.to_k, self.to_v)], (self.norm_q, self.norm_k), turns)

    def __call__(self, x: jax.Array, turns: Rotations | None = None, lengths: jax.Array | None = None) -> jax.Array:
        """x [n, tokens, width] -> the same shape. Lengths as in `attend`."""
        (y,) = attended([self.stream(x, turns)], self.heads, lengths)
        return y if self.to_out is None else self.to_out[0](y)


class JointAttention(SelfAttention):
    """Attention over a text and an image, each with its own projections (Esser et al., 2024, Fig. 2b).

    With ``text_ends``, the last use of the text, the text has no output projection.
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
        turns_of_text, turns_of_image = (
            None if turns is None else tuple(part[tokens] for part in turns)
            for tokens in (slice(length), slice(length, None))
        )
        parts_of_text = [layer(text) for layer in (self.add_q_proj, self.add_k_proj, self.add_v_proj)]
        of_text = Stream.of(parts_of_text, (self.norm_added_q, self.norm_added_k), turns_of_text)
        from_text, from_image = attended([of_text, self.stream(image, turns_of_image)], self.heads)
        return self.to_out[0](from_image), None if self.to_add_out is None else self.to_add_out(from_text)


class Stream(NamedTuple):
    """Tokens that attend to each other, and to other streams' tokens.

    Attributes:
      parts: queries, keys and values, each [n, tokens, width].
      scales: of the norms of queries and keys, each [head_dim]; None without norms.
      epsilon: of both norms.
      turns: the tokens' rotations, if there are any.
    """

    parts: tuple[jax.Array, jax.Array, jax.Array]
    scales: tuple[jax.Array, jax.Array] | None
    epsilon: float | None
    turns: Rotations | None

    @classmethod
    def of(cls, parts: Sequence[jax.Array], norms: Sequence[RMSNorm | None], turns: Rotations | None) -> Self:
        """Makes a stream with the norms of queries and keys, both None without norms."""
        if norms[0] is None:
            return cls(tuple(parts), None, None, turns)
        return cls(tuple(parts), tuple(norm.scale[...] for norm in norms), norms[0].epsilon, turns)


def attended(streams: Sequence[Stream], heads: int, lengths: jax.Array | None = None) -> list[jax.Array]:
    """Attention results of each stream's tokens over all streams, each [n, tokens, width]. Lengths as in `attend`."""
    # Numbers are not differentiated.
    epsilon, arrays = streams[0].epsilon, [stream._replace(epsilon=None) for stream in streams]
    form = _in_one_kernel if _one_kernel_takes(streams, heads) else _apart
    return form(heads, epsilon, arrays, lengths)


def _apart(heads: int, epsilon: float | None, streams: Sequence[Stream], lengths: jax.Array | None) -> list[jax.Array]:
    """`attended` with norms and rotations ahead of the attention."""
    is_joint = len(streams) > 1
    queries, keys, values = [], [], []
    for parts, scales, _, turns in streams:
        norms = [functools.partial(rms_norm, scale=scale, epsilon=epsilon) for scale in scales or ()] or [None, None]
        query, key, value = (split_heads(part, heads) for part in parts)
        queries.append(prepared(query, norms[0], turns))
        keys.append(prepared(key, norms[1], turns, joined=is_joint))
        values.append(value)
    # Keys and values of the streams are one array each. Queries and results stay apart.
    keys, values = (jnp.concatenate(of_streams, axis=1) if is_joint else of_streams[0] for of_streams in (keys, values))
    return [attend(query, keys, values, lengths) for query in queries]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _in_one_kernel(
    heads: int, epsilon: float | None, streams: Sequence[Stream], lengths: jax.Array | None
) -> list[jax.Array]:
    """`_apart` by the kernel of TPUs, forward. Norms and rotations are part of it."""
    batch, _, width = streams[0].parts[0].shape
    ends = jnp.array([[stream.parts[1].shape[1]] * batch for stream in streams], jnp.int32)
    of_queries, of_keys = (
        [packed_attention.turned_by(scales and scales[n], turns, width // heads) for _, scales, _, turns in streams]
        for n in range(2)
    )
    attend = functools.partial(
        packed_attention.attend,
        streams=[stream.parts[1:] for stream in streams],
        ends=ends if lengths is None else lengths[None],
        heads=heads,
        scale=(width // heads) ** -0.5,
        epsilon=epsilon,
    )
    has_turns = of_queries[0] is not None
    return [
        attend(stream.parts[0], turns=[turns, *of_keys] if has_turns else None)
        for stream, turns in zip(streams, of_queries, strict=True)
    ]


def _forward(heads: int, epsilon: float | None, streams: Sequence[Stream], lengths: jax.Array | None):
    return jax.vjp(lambda streams: _apart(heads, epsilon, streams, lengths), streams)


def _backward(heads: int, epsilon: float | None, residuals: Any, gradients: list[jax.Array]):
    return (*residuals(gradients), None)


_in_one_kernel.defvjp(_forward, _backward)


def _one_kernel_takes(streams: Sequence[Stream], heads: int) -> bool:
    """Whether the program is of one TPU, or a TPU's part of one, and the kernel takes all queries."""
    if not parallel.is_traced_for("tpu") or not parallel.runs_on_one_device():
        return False
    query = streams[0].parts[0]
    keys = [stream.parts[1].shape[1] for stream in streams]
    how = {"are_rotated": streams[0].turns is not None}
    return all(
        packed_attention.takes(stream.parts[0].shape[1], keys, heads, query.shape[2] // heads, query.dtype, **how)
        for stream in streams
    )


def apply_to_parts(layer: nnx.Module, *parts: jax.Array) -> jax.Array:
    """The dense layer of parts that follow each other along the features. A product each, and none of all as one array.

    Equal to the one product but for rounding.
    """
    if isinstance(layer, Float8Linear):
        return layer(*parts)
    if type(layer) is not nnx.Linear or not parallel.runs_on_one_device():
        return layer(jnp.concatenate(parts, axis=-1))
    if parallel.is_traced_for("tpu"):
        # XLA would otherwise compute the layers that make a part within this one's product, at half their rate.
        parts = jax.lax.optimization_barrier(parts)
    kernels = jnp.split(layer.kernel[...].astype(layer.dtype), np.cumsum([part.shape[-1] for part in parts])[:-1])
    y = sum(part.astype(layer.dtype) @ kernel for part, kernel in zip(parts, kernels, strict=True))
    return y if layer.bias is None else y + layer.bias[...].astype(layer.dtype)


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[n, tokens, width] -> [n, tokens, heads, width / heads]."""
    return x.reshape(*x.shape[:-1], heads, -1)
