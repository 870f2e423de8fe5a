"""The vision tower of Qwen3-VL, in the published layout: images of any shape, each with its grid of patches.

Learned positions of a square are interpolated to an image's rows and columns, by which heads are rotated besides (Su et
al., 2021). Squares of patches become states of the language model, of the last layer and of some before it (DeepStack;
Meng et al., 2024, arXiv:2406.04334).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from winobench.models import clip, decoder
from winobench.models.attention import dot_product_attention
from winobench.models.base import embedding, kernel_init, layer_norm, linear, parameter
from winobench.models.qwen3_vl_config import ROPE_THETA, Qwen3VLVisionConfig

if TYPE_CHECKING:
    from winobench.data.patches import Patches

Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""Attention of query, key and value [B, N, heads, head_size] -> [B, N, heads, head_size]."""

_EPSILON = 1e-6


class Qwen3VLPatchProjection(nnx.Module):
    """A convolution over whole patches of several frames; ``kernel`` is [frames, height, width, 3, outputs]."""

    def __init__(self, config: Any, *, bias: bool = True, **kwargs: Any):
        self.dtype = kwargs["dtype"]
        shape = (config.temporal_patch_size, config.patch_size, config.patch_size, 3, config.hidden_size)
        self.kernel = parameter(*shape, init=kernel_init, **kwargs)
        self.bias = nnx.Param(jnp.zeros((config.hidden_size,), kwargs["param_dtype"])) if bias else None

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """pixels [B, N, patch_size * patch_size * 3] of images -> [B, N, hidden_size], all frames being alike."""
        kernel = self.kernel[...].astype(self.dtype)
        # Not the sum of the frames' kernels, which would be rounded once more.
        frames = jnp.tile(pixels.astype(self.dtype), len(kernel))
        states = frames @ kernel.reshape(-1, kernel.shape[-1])
        return states if self.bias is None else states + self.bias[...].astype(self.dtype)


class Qwen3VLPatchEmbed(nnx.Module):
    """Embeds patches as vectors."""

    def __init__(self, config: Any, *, bias: bool = True, **kwargs: Any):
        self.proj = Qwen3VLPatchProjection(config, bias=bias, **kwargs)

    def __call__(self, pixels: jax.Array) -> jax.Array:
        """See `Qwen3VLPatchProjection`."""
        return self.proj(pixels)


class Qwen3VLVisionAttention(nnx.Module):
    """Self-attention of the patches of each image."""

    def __init__(self, config: Any, **kwargs: Any):
        self.heads = config.num_heads
        self.qkv = linear(config.hidden_size, 3 * config.hidden_size, **kwargs)
        self.proj = linear(config.hidden_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array, cosines: jax.Array, sines: jax.Array, attend: Attend) -> jax.Array:
        """x [B, N, hidden_size], angles as in `winobench.models.decoder.rotate` -> as x."""
        query, key, value = jnp.moveaxis(self.qkv(x).reshape(*x.shape[:2], 3, self.heads, -1), 2, 0)
        query, key = (decoder.rotate(part, cosines, sines) for part in (query, key))
        return self.proj(attend(query, key, value).reshape(x.shape))


class Qwen3VLVisionMLP(nnx.Module):
    """The feed-forward of a layer."""

    def __init__(self, config: Qwen3VLVisionConfig, **kwargs: Any):
        self.activation = config.hidden_act
        self.linear_fc1 = linear(config.hidden_size, config.intermediate_size, **kwargs)
        self.linear_fc2 = linear(config.intermediate_size, config.hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [..., hidden_size] -> the same shape."""
        return self.linear_fc2(clip.ACTIVATIONS[self.activation](self.linear_fc1(x)))


class Qwen3VLVisionBlock(nnx.Module):
    """Attention and feed-forward, each after a norm and around a residual."""

    def __init__(self, config: Qwen3VLVisionConfig, **kwargs: Any):
        self.norm1 = layer_norm(config.hidden_size, epsilon=_EPSILON, **kwargs)
        self.norm2 = layer_norm(config.hidden_size, epsilon=_EPSILON, **kwargs)
        self.attn = Qwen3VLVisionAttention(config, **kwargs)
        self.mlp = Qwen3VLVisionMLP(config, **kwargs)

    def __call__(self, x: jax.Array, cosines: jax.Array, sines: jax.Array, attend: Attend) -> jax.Array:
        """See the attention layer."""
        x = x + self.attn(self.norm1(x), cosines, sines, attend)
        return x + self.mlp(self.norm2(x))


class Qwen3VLPatchMerger(nnx.Module):
    """Merges squares of patches into states of the language model. The norm is over squares or over each patch."""

    def __init__(self, config: Any, *, norm_of_squares: bool, **kwargs: Any):
        self.width = config.hidden_size * config.spatial_merge_size**2
        self.norm_of_squares = norm_of_squares
        self.norm = layer_norm(self.width if norm_of_squares else config.hidden_size, epsilon=_EPSILON, **kwargs)
        self.linear_fc1 = linear(self.width, self.width, **kwargs)
        self.linear_fc2 = linear(self.width, config.out_hidden_size, **kwargs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """x [B, N, hidden_size], square by square -> [B, N / patches of a square, out_hidden_size]."""
        if not self.norm_of_squares:
            x = self.norm(x)
        x = x.reshape(len(x), -1, self.width)
        if self.norm_of_squares:
            x = self.norm(x)
        return self.linear_fc2(jax.nn.gelu(self.linear_fc1(x), approximate=False))


class Qwen3VLVisionModel(nnx.Module):
    """Everything under ``visual.`` in the published weights."""

    def __init__(self, config: Qwen3VLVisionConfig, **kwargs: Any):
        self.config = config
        self.patch_embed = Qwen3VLPatchEmbed(config, **kwargs)
        self.pos_embed = embedding(config.num_position_embeddings, config.hidden_size, **kwargs)
        self.blocks = nnx.List([Qwen3VLVisionBlock(config, **kwargs) for _ in range(config.depth)])
        self.merger = Qwen3VLPatchMerger(config, norm_of_squares=False, **kwargs)
        self.deepstack_merger_list = nnx.List(
            [Qwen3VLPatchMerger(config, norm_of_squares=True, **kwargs) for _ in config.deepstack_visual_indexes]
        )

    def __call__(self, patches: Patches) -> tuple[jax.Array, list[jax.Array]]:
        """Encodes images.

        Returns [B, squares, out_hidden_size], the states of the squares of patches row by row, with anything finite
        behind an image's own, and the states of the layers in ``deepstack_visual_indexes``.
        """
        config = self.config
        rows, columns = places(patches.grid, patches.pixels.shape[1], config.spatial_merge_size)
        x = self.patch_embed(patches.pixels)
        x = x + self._positions(rows, columns, patches.grid).astype(x.dtype)
        angles = rotations(rows, columns, config.hidden_size // config.num_heads)[:, :, None]
        lengths = jnp.maximum(jnp.prod(patches.grid, axis=1), 1)
        attend = functools.partial(dot_product_attention, lengths=lengths)
        deep = []
        for number, block in enumerate(self.blocks):
            x = block(x, jnp.cos(angles), jnp.sin(angles), attend)
            if number in config.deepstack_visual_indexes:
                deep.append(self.deepstack_merger_list[len(deep)](x))
        return self.merger(x), deep

    def _positions(self, rows: jax.Array, columns: jax.Array, grid: jax.Array) -> jax.Array:
        """The learned positions between which patches are, interpolated: [B, N, hidden_size] float32."""
        side = self.config.positions_a_side
        table = self.pos_embed.embedding[...].astype(jnp.float32)
        down, across = (neighbours(each, grid[:, axis], side) for axis, each in enumerate((rows, columns)))
        return sum(
            table[row * side + column] * (of_row * of_column)[..., None]
            for row, of_row in down
            for column, of_column in across
        )


def places(grid: jax.Array, count: int, merge_size: int) -> tuple[jax.Array, jax.Array]:
    """Row and column of each of ``count`` patches, int32 [B, count]. Those of padding are anywhere."""
    numbers = jnp.arange(count)
    square, within = numbers // merge_size**2, numbers % merge_size**2
    squares_across = jnp.maximum(grid[:, 1:] // merge_size, 1)
    rows = square // squares_across * merge_size + within // merge_size
    columns = square % squares_across * merge_size + within % merge_size
    return rows, columns


def neighbours(index: jax.Array, size: jax.Array, side: int) -> list[tuple[jax.Array, jax.Array]]:
    """The two of ``side`` points along an axis around each position [B, N]: number and weight of either, [B, N].

    The first of ``size`` places, int32 [B], is on the first point and the last one on the last.
    """
    there = index.astype(jnp.float32) * (side - 1) / jnp.maximum(size - 1, 1)[:, None].astype(jnp.float32)
    before = jnp.floor(there)
    share = there - before
    number = before.astype(jnp.int32)
    return [(jnp.clip(number + step, 0, side - 1), weight) for step, weight in ((0, 1 - share), (1, share))]


def rotations(rows: jax.Array, columns: jax.Array, head_dim: int) -> jax.Array:
    """Angles by which the pairs of heads turn, [B, N, head_dim / 2]: the first half by rows, the other by columns."""
    half = head_dim // 2
    turns = np.float32(1) / np.power(np.float32(ROPE_THETA), np.arange(0, half, 2, dtype=np.float32) / half)
    return jnp.concatenate([each.astype(jnp.float32)[..., None] * turns for each in (rows, columns)], axis=-1)
