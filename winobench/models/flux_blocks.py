"""What the transformers of FLUX.1 and FLUX.2 share: patches, positions of several axes, modulated norms, attention.

Both are multimodal diffusion transformers (Esser et al., 2024): image and text are two streams with layers of their
own, which attend to each other, and later one stream. The layout is that of diffusers' published weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.models import layers
from winobench.models.attention import dot_product_attention
from winobench.models.base import linear
from winobench.models.decoder import RMSNorm

PATCH = 2
"""Latent pixels along one side of a patch, which is one token."""

Rotations = tuple[jax.Array, jax.Array]
"""Cosines and sines of the tokens' rotations, each [tokens, 1, head_dim / 2] float32."""

_TIME_FACTOR = 1000.0
_LARGEST_HALF = 65504.0


def to_patches(latents: jax.Array) -> jax.Array:
    """Latents [n, h, w, c] -> patches [n, h / 2, w / 2, 4 c], whose channels are in the order (c, row, column).

    Raises:
      ValueError: h or w is odd.
    """
    batch, height, width, channels = latents.shape
    if height % PATCH or width % PATCH:
        raise ValueError(f"latents of {height} x {width} do not divide into patches of {PATCH} x {PATCH}")
    x = latents.reshape(batch, height // PATCH, PATCH, width // PATCH, PATCH, channels)
    return x.transpose(0, 1, 3, 5, 2, 4).reshape(batch, height // PATCH, width // PATCH, -1)


def from_patches(patches: jax.Array) -> jax.Array:
    """The inverse of `to_patches`: [n, h / 2, w / 2, 4 c] -> [n, h, w, c]."""
    batch, rows, columns, _ = patches.shape
    x = patches.reshape(batch, rows, columns, -1, PATCH, PATCH).transpose(0, 1, 4, 2, 5, 3)
    return x.reshape(batch, rows * PATCH, columns * PATCH, -1)


def rotations(positions: np.ndarray, sizes: Sequence[int], theta: float) -> Rotations:
    """Rotary embeddings of positions on several axes, each of which turns features of its own (Su et al., 2021).

    Angles are float64 and their cosines are rounded once, as in the published models. Only a table of the positions
    that occur is a constant of the program, from which tokens take their rows.

    Args:
      positions: whole numbers [tokens, axes], from 0 on.
      sizes: features of each axis; their sum is the width of a head.
      theta: base of the wavelengths.
    """
    table = [[], []]
    for axis, size in enumerate(sizes):
        frequencies = float(theta) ** -(np.arange(0, size, 2, dtype=np.float64) / size)
        own = positions[:, axis]
        angles = np.outer(np.arange(own.max(initial=0) + 1), frequencies)
        for parts, wave in zip(table, (np.cos, np.sin), strict=True):
            parts.append(jnp.asarray(wave(angles).astype(np.float32))[own])
    cosines, sines = (jnp.concatenate(parts, axis=-1)[:, None] for parts in table)
    return cosines, sines


def rotated(x: jax.Array, turns: Rotations) -> jax.Array:
    """Turns features 2 i and 2 i + 1 of x [n, tokens, heads, head_dim] float32 by the tokens' i-th angle."""
    cosines, sines = turns
    even, odd = x[..., ::2], x[..., 1::2]
    return jnp.stack([even * cosines - odd * sines, odd * cosines + even * sines], axis=-1).reshape(x.shape)


def modulated(x: jax.Array, shift: jax.Array, scale: jax.Array, *, epsilon: float) -> jax.Array:
    """Layer norm over the last axis, times 1 + scale, plus shift; float32 within, rounded once to the dtype of x.

    Args:
      x: [n, tokens, width].
      shift: [n, width].
      scale: [n, width].
      epsilon: of the norm.
    """
    values, shift, scale = (part.astype(jnp.float32) for part in (x, shift[:, None], scale[:, None]))
    values = values - jnp.mean(values, axis=-1, keepdims=True)
    values = values * jax.lax.rsqrt(jnp.mean(jnp.square(values), axis=-1, keepdims=True) + epsilon)
    return (values * (1 + scale) + shift).astype(x.dtype)


def kept_finite(x: jax.Array) -> jax.Array:
    """x with its infinities in float16 at the largest number, as in the published models; others as they are."""
    return jnp.clip(x, -_LARGEST_HALF, _LARGEST_HALF) if x.dtype == jnp.float16 else x


def time_waves(times: jax.Array, features: int, dtype: Any) -> jax.Array:
    """Times (or guidance) float32 [n], before the factor 1000 -> their sinusoidal embedding [n, features]."""
    angles = _TIME_FACTOR * times.astype(jnp.float32)
    return layers.timestep_embedding(angles, features, flip_sin_to_cos=True, freq_shift=0).astype(dtype)


def check_guidance(guidance: jax.Array | None, wanted: bool) -> None:
    """Raises ValueError unless guidance is given to a network that embeds it, and to no other."""
    if (guidance is not None) != wanted:
        wants = "takes guidance [n]" if wanted else "takes no guidance"
        raise ValueError(f"this transformer {wants} (guidance_embeds={wanted})")


def _call(block: nnx.Module, *inputs: Any) -> Any:
    return block(*inputs)


# Keeps a block's inputs alone for the gradient, which computes the block again. No block changes its state in a call.
_call_and_forget = nnx.remat(_call, graph_updates=False)


def caller(remat: bool) -> Callable[..., Any]:
    """The function that calls a block with its inputs; with ``remat``, its insides are computed again backward."""
    return _call_and_forget if remat else _call


class AdaLayerNormContinuous(nnx.Module):
    """The norm before the output, whose scale and shift, in this order, are a dense layer of the condition."""

    def __init__(self, width: int, *, bias: bool, epsilon: float, dtype: Any, param_dtype: Any, rngs: nnx.Rngs):
        self.epsilon = epsilon
        self.linear = linear(width, 2 * width, bias=bias, dtype=dtype, param_dtype=param_dtype, rngs=rngs)

    def __call__(self, x: jax.Array, condition: jax.Array) -> jax.Array:
        """x [n, tokens, width], condition [n, width] -> the shape of x."""
        scale, shift = jnp.split(self.linear(jax.nn.silu(condition)), 2, axis=-1)
        return modulated(x, shift, scale, epsilon=self.epsilon)


def head_norm(head_dim: int, *, epsilon: float, param_dtype: Any) -> RMSNorm:
    """The norm of queries or keys; its result is float32, for the rotation that follows."""
    return RMSNorm(head_dim, epsilon=epsilon, dtype=jnp.float32, param_dtype=param_dtype)


def attend(queries: jax.Array, keys: jax.Array, values: jax.Array, turns: Rotations) -> jax.Array:
    """Full attention after rotation.

    Args:
      queries: normed, [n, tokens, heads, head_dim] float32.
      keys: the same.
      values: [n, tokens, heads, head_dim] in the compute dtype.
      turns: the tokens' rotations.

    Returns:
      [n, tokens, heads * head_dim] in the compute dtype.
    """
    queries, keys = (rotated(part, turns).astype(values.dtype) for part in (queries, keys))
    return dot_product_attention(queries, keys, values).reshape(*values.shape[:2], -1)


class SelfAttention(nnx.Module):
    """Queries, keys and values of one stream; there is no output projection.

    Args:
      heads: number of heads.
      head_dim: width of a head; that of the stream is ``heads * head_dim``.
      bias: biases on all projections.
    """

    def __init__(
        self, heads: int, head_dim: int, *, bias: bool, epsilon: float, dtype: Any, param_dtype: Any, rngs: nnx.Rngs
    ):
        width = heads * head_dim
        kwargs = {"bias": bias, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (linear(width, width, **kwargs) for _ in range(3))
        self.norm_q, self.norm_k = (head_norm(head_dim, param_dtype=param_dtype, epsilon=epsilon) for _ in range(2))

    def projections(self, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """x [n, tokens, width] -> normed queries and keys (float32) and values, each [n, tokens, heads, head_dim]."""
        queries, keys, values = (split_heads(layer(x), self.heads) for layer in (self.to_q, self.to_k, self.to_v))
        return self.norm_q(queries), self.norm_k(keys), values

    def __call__(self, x: jax.Array, turns: Rotations) -> jax.Array:
        """x [n, tokens, width] -> the same shape."""
        return attend(*self.projections(x), turns)


class JointAttention(SelfAttention):
    """Attention over a text and an image, each with projections of its own (Esser et al., 2024, Fig. 2b)."""

    def __init__(
        self, heads: int, head_dim: int, *, bias: bool, epsilon: float, dtype: Any, param_dtype: Any, rngs: nnx.Rngs
    ):
        width = heads * head_dim
        kwargs = {"bias": bias, "dtype": dtype, "param_dtype": param_dtype, "rngs": rngs}
        super().__init__(heads, head_dim, epsilon=epsilon, **kwargs)
        self.add_q_proj, self.add_k_proj, self.add_v_proj = (linear(width, width, **kwargs) for _ in range(3))
        self.norm_added_q, self.norm_added_k = (
            head_norm(head_dim, param_dtype=param_dtype, epsilon=epsilon) for _ in range(2)
        )
        self.to_out = nnx.List([linear(width, width, **kwargs)])
        self.to_add_out = linear(width, width, **kwargs)

    def __call__(self, image: jax.Array, text: jax.Array, turns: Rotations) -> tuple[jax.Array, jax.Array]:
        """image [n, patches, width], text [n, tokens, width]; rotations of the text's tokens first -> both shapes."""
        added = (self.add_q_proj, self.add_k_proj, self.add_v_proj)
        queries, keys, values = (split_heads(layer(text), self.heads) for layer in added)
        of_text = self.norm_added_q(queries), self.norm_added_k(keys), values
        joined = (jnp.concatenate(parts, axis=1) for parts in zip(of_text, self.projections(image), strict=True))
        y = attend(*joined, turns)
        length = text.shape[1]
        return self.to_out[0](y[:, length:]), self.to_add_out(y[:, :length])


def split_heads(x: jax.Array, heads: int) -> jax.Array:
    """[n, tokens, width] -> [n, tokens, heads, width / heads]."""
    return x.reshape(*x.shape[:-1], heads, -1)
