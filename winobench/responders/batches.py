"""Sizes of a language model's batches, by the requests' length, the model's size and the devices' memory."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import memory
from winobench.engine.limits import Limit
from winobench.responders import shapes
from winobench.responders.shapes import Shape

# Memory for keys and values on each device, where it is not known how much is free, on accelerators and on CPUs, and
# which part of it they get where it is known. The largest number of tokens that a device reads at once, and of rows.
_CACHE_BYTES = Limit(4 << 30, cpu=1 << 29)
_CACHE_SHARE = 4
_TOKENS = Limit(16384, cpu=2048)
_MAX_ROWS = Limit(64, cpu=32)
# Fewer shared tokens, or fewer requests that share them, would not make up for a separate program and batches.
_SHORTEST_PREFIX = 16
_FEWEST_SHARING = 4


@dataclasses.dataclass(frozen=True)
class Room:
    """Limits of a batch's rows: bytes on each device, or rows of each device (``batch_size``)."""

    mesh: Mesh
    parameter_bytes: int
    bytes_a_token: int
    batch_size: int | None = None

    def rows(self, shape: Shape, count: int) -> int:
        """Rows of all devices' batches of a shape, alike for each device: batches are equally full."""
        most = self.most_rows(shape)
        parts = parallel.data_parallelism(self.mesh)
        batches = math.ceil(count / most)
        return min(most, parts * shapes.round_up(math.ceil(count / batches / parts)))

    def most_rows(self, shape: Shape) -> int:
        parts = parallel.data_parallelism(self.mesh)
        if self.batch_size is not None:
            return parts * self.batch_size
        free = _device_memory(self.mesh) - self.parameter_bytes
        room = free // _CACHE_SHARE if free > 0 else _CACHE_BYTES.on(self.mesh)
        # A prompt's keys and values are there once more for each of its options. Those of a prefix are there once.
        room //= max(1, self.bytes_a_token * (shape.prompt + shape.answer) * (1 + shape.options))
        most = min(room, _TOKENS.on(self.mesh) // shape.prompt, _MAX_ROWS.on(self.mesh))
        return parts * (1 << (max(1, most).bit_length() - 1))


def _device_memory(mesh: Mesh) -> int:
    """Bytes of each device, 0 for CPUs. Free memory is not used: processes must agree on the batches' shape."""
    device = mesh.local_devices[0]
    return 0 if device.platform == "cpu" else memory.device_bytes(device)


def parameter_bytes(params: Sequence[Any]) -> int:
    return sum(math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize for array in params)


def bytes_a_token(config: Any, dtype: str, mesh: Mesh) -> int:
    """Memory for the keys and values of a token on each device."""
    size = jnp.dtype(dtype).itemsize
    if layers := getattr(config, "num_decoder_layers", None):  # attention to the encoder's states is cached as well
        return 2 * size * 2 * layers * config.num_heads * config.d_kv
    whole = 2 * size * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    return -(-whole // mesh.shape.get(parallel.MODEL_AXIS, 1))


def is_shared(prefix: int, requests: int) -> bool:
    """Whether a prefix is computed once for all requests that begin with it."""
    return prefix >= _SHORTEST_PREFIX and requests >= _FEWEST_SHARING


def width_of(length: int, config: Any) -> int:
    """Width of an array that a text of this length fits in, and no more than the model can compute."""
    width = shapes.width(length)
    limit = getattr(config, "longest", None)
    return width if limit is None else min(width, limit)


def shape_of(prompt: int, options: Sequence[int], limit: int, *, is_sampled: bool, config: Any) -> Shape:
    answer = shapes.power_of_two(max(options)) if options else shapes.width(limit)
    return Shape(width_of(prompt, config), len(options), answer, is_sampled)


def longest(config: Any) -> int | None:
    """Tokens of the longest conversation that a model can read; None without a limit."""
    length = getattr(config, "max_position_embeddings", None)
    scaling = getattr(config, "rope_scaling", None)
    # Slower rotations reach as much farther, which files with this scaling do not count.
    return int(length * scaling.factor) if scaling is not None and scaling.rope_type == "linear" else length
