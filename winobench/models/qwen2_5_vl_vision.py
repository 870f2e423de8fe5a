"""The vision tower of Qwen2.5-VL (Bai et al., 2025, arXiv:2502.13923): images of any shape as grids of patches.

Most layers attend within windows of an image, which are smaller at its right and at its bottom. A few attend to the
whole image. The patches of a window follow each other here, so that a window lies in two neighbouring parts at most
of as many patches as a whole one has. A patch attends to the patches of its window in its part and the parts around it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench.models.attention import dot_product_attention
from winobench.models.decoder import DecoderMLP, RMSNorm
from winobench.models.qwen2_5_vl_config import Qwen25VLVisionConfig
from winobench.models.qwen3_vl_vision import (
    Qwen3VLPatchEmbed,
    Qwen3VLPatchMerger,
    Qwen3VLVisionAttention,
    Qwen3VLVisionBlock,
    places,
    rotations,
)

if TYPE_CHECKING:
    from winobench.data.patches import Patches

_EPSILON = 1e-6
_NO_WINDOW = jnp.iinfo(jnp.int32).max  # the window of padding


class Qwen25VLVisionBlock(Qwen3VLVisionBlock):
    """Attention and gated feed-forward, each after a norm and around a residual."""

    def __init__(self, config: Qwen25VLVisionConfig, **kwargs: Any):
        self.norm1, self.norm2 = (RMSNorm(config.hidden_size, epsilon=_EPSILON, **kwargs) for _ in range(2))
        self.attn = Qwen3VLVisionAttention(config, **kwargs)
        self.mlp = DecoderMLP(config, int8=False, **kwargs)


class Qwen25VLPatchMerger(Qwen3VLPatchMerger):
    """Merges squares of patches into states of the language model, each patch after a norm."""

    def __init__(self, config: Qwen25VLVisionConfig, **kwargs: Any):
        super().__init__(config, norm_of_squares=False, **kwargs)
        self.norm = RMSNorm(config.hidden_size, epsilon=_EPSILON, **kwargs)


class Qwen25VLVisionModel(nnx.Module):
    """Everything under ``visual.`` in the published weights."""

    def __init__(self, config: Qwen25VLVisionConfig, **kwargs: Any):
        self.config = config
        self.patch_embed = Qwen3VLPatchEmbed(config, bias=False, **kwargs)
        self.blocks = nnx.List([Qwen25VLVisionBlock(config, **kwargs) for _ in range(config.depth)])
        self.merger = Qwen25VLPatchMerger(config, **kwargs)

    def __call__(self, patches: Patches) -> tuple[jax.Array, list[jax.Array]]:
        """Encodes images: see `winobench.models.qwen3_vl_vision.Qwen3VLVisionModel`. No other layer's states."""
        config, count = self.config, patches.pixels.shape[1]
        merged, part = config.spatial_merge_size**2, config.window**2
        pixels = jnp.pad(patches.pixels, ((0, 0), (0, -count % part), (0, 0)))
        rows, columns = places(patches.grid, pixels.shape[1], config.spatial_merge_size)
        lengths = jnp.maximum(jnp.prod(patches.grid, axis=1), 1)
        across = -(-patches.grid[:, 1:] // config.window)
        windows = rows // config.window * across + columns // config.window
        windows = jnp.where(jnp.arange(pixels.shape[1]) < lengths[:, None], windows, _NO_WINDOW)
        # Squares keep their order within a window, and patches theirs within a square.
        order = jnp.argsort(windows, axis=1, stable=True)
        rows, columns, windows = (jnp.take_along_axis(array, order, axis=1) for array in (rows, columns, windows))
        x = self.patch_embed(jnp.take_along_axis(pixels, order[..., None], axis=1))
        angles = rotations(rows, columns, config.hidden_size // config.num_heads)[:, :, None]
        whole = functools.partial(dot_product_attention, lengths=lengths)
        within = functools.partial(_attend_within, windows, part)
        for number, block in enumerate(self.blocks):
            attend = whole if number in config.fullatt_block_indexes else within
            x = block(x, jnp.cos(angles), jnp.sin(angles), attend)
        back = jnp.argsort(order[:, ::merged], axis=1)[:, : count // merged]
        return jnp.take_along_axis(self.merger(x), back[..., None], axis=1), []


def _attend_within(windows: jax.Array, part: int, query: jax.Array, key: jax.Array, value: jax.Array) -> jax.Array:
    """Attention of patches [B, N, heads, head_size] within windows, int32 [B, N], of at most ``part`` patches."""

    def parts(array: jax.Array) -> jax.Array:
        return array.reshape(-1, part, *array.shape[2:])

    def around(array: jax.Array) -> jax.Array:
        """Each part with those before and behind it: [B * parts, 3 * part, ...]."""
        length = array.shape[1]
        padded = jnp.pad(array, ((0, 0), (part, part), *((0, 0),) * (array.ndim - 2)), constant_values=-1)
        return jnp.concatenate([parts(padded[:, start : start + length]) for start in (0, part, 2 * part)], axis=1)

    mask = parts(windows)[:, None, :, None] == around(windows)[:, None, None]
    return dot_product_attention(parts(query), around(key), around(value), mask=mask).reshape(query.shape)
