"""Cache of a decoder: keys and values of earlier tokens in each layer."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

from winobench import parallel
from winobench.models.decoder_config import DecoderConfig


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Cache:
    """Keys and values of the tokens so far. A pytree.

    Each layer's are their own arrays, which are written in place, in the layouts that the products with queries and
    with weights read: on CPUs, XLA would turn any other around at every step.

    Attributes:
      keys: of each layer [B, key-value heads, head_dim, length], rotated.
      values: of each layer [B, key-value heads, length, head_dim].
      written: bool [B, length], which slots hold a token. A token's slot is its position, counted from the end of the
        prefix.
      prefix: a cache of one row, the text that all rows begin with; None where nothing is shared. It is read where it
        is, not once for every row. Or one of B rows, what each row begins with.
      ahead: int32 [B], how far the rotations of a row's tokens are ahead of their positions; None for not at all.
    """

    keys: tuple[jax.Array, ...]
    values: tuple[jax.Array, ...]
    written: jax.Array
    prefix: Cache | None = None
    ahead: jax.Array | None = None

    @property
    def length(self) -> int:
        """Number of slots."""
        return self.written.shape[1]

    def repeat(self, count: int) -> Cache:
        """Each row ``count`` times: B rows become ``B * count``, for several continuations of the same text."""
        own = dataclasses.replace(self, prefix=None)
        repeated = jax.tree.map(lambda array: jnp.repeat(array, count, axis=0), own)
        prefix = self.prefix
        if prefix is not None and len(prefix.written) > 1:
            prefix = prefix.repeat(count)
        return dataclasses.replace(repeated, prefix=prefix)

    def resize(self, length: int) -> Cache:
        """The same with another number of slots. New ones are empty, and what lies beyond the new length is lost."""
        more = max(0, length - self.length)
        return Cache(
            tuple(jnp.pad(array, ((0, 0), (0, 0), (0, 0), (0, more)))[..., :length] for array in self.keys),
            tuple(jnp.pad(array, ((0, 0), (0, 0), (0, more), (0, 0)))[:, :, :length] for array in self.values),
            jnp.pad(self.written, ((0, 0), (0, more)))[:, :length],
            self.prefix,
            self.ahead,
        )


def make_cache(
    config: DecoderConfig, batch: int, length: int, dtype: Any = jnp.float32, prefix: Cache | None = None
) -> Cache:
    """An empty cache."""
    check_length(config, length)

    def layers(*shape: int) -> tuple[jax.Array, ...]:
        return tuple(
            jnp.zeros((batch, config.num_key_value_heads, *shape), dtype) for _ in range(config.num_hidden_layers)
        )

    written = jnp.zeros((batch, length), bool)
    ahead = None if prefix is None else prefix.ahead
    return Cache(layers(config.head_dim, length), layers(length, config.head_dim), written, prefix, ahead)


def check_length(config: DecoderConfig, length: int) -> None:
    """Raises ValueError if a model cannot compute so many tokens."""
    if config.longest is not None and length > config.longest:
        raise ValueError(
            f"Decoder: {length} tokens, but this model has positions, or rotations that are implemented, up to "
            f"{config.longest}. Shorten the texts."
        )


def cache_shardings(config: DecoderConfig, batch: int, mesh: Mesh | AbstractMesh) -> Cache:
    """Shardings of a cache: rows are split over the data axis, heads over the model axis, where divisible."""
    rows = parallel.DATA_AXIS if batch % mesh.shape[parallel.DATA_AXIS] == 0 else None
    parts = mesh.shape.get(parallel.MODEL_AXIS, 1)
    heads = parallel.MODEL_AXIS if parts > 1 and config.num_key_value_heads % parts == 0 else None
    stored = (NamedSharding(mesh, PartitionSpec(rows, heads, None, None)),) * config.num_hidden_layers
    return Cache(stored, stored, NamedSharding(mesh, PartitionSpec(rows, None)))
