"""Programs that run on a mesh, not yet compiled, and the figures of their compilers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from winobench.contrib.planning.roofline import Sum

TEXT = "text"
"""The noun of the program that encodes texts."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that has not been compiled."""

    name: str  # e.g. ``denoising step``
    noun: str  # what an item is, e.g. ``pass``
    items: int  # that each device works on in one run
    lower_items: Callable[[int], jax.stages.Lowered]  # number of items -> the program as JAX's compilers take it
    blocks: tuple[int, ...] = ()  # of each kind in its network, if `shallow` replaces it
    # Numbers of blocks and the same program of a network that has them (`winobench.contrib.planning.few_blocks`).
    shallow: tuple[tuple[tuple[int, ...], Callable[[int], jax.stages.Lowered]], ...] = ()

    def lower(self) -> jax.stages.Lowered:
        return self.lower_items(self.items)

    def shallow_programs(self) -> tuple[tuple[tuple[int, ...], Program], ...]:
        """Numbers of blocks, and the same program of a network that has them."""
        return tuple((counts, Program(self.name, self.noun, self.items, lower)) for counts, lower in self.shallow)


class _Kernels:
    """Totals of sums by kind."""

    kernels: dict[str, Sum]

    def _total(self, name: str) -> float:
        return sum(getattr(each, name) for each in self.kernels.values())

    @property
    def seconds(self) -> float:  # estimated, of one run (`winobench.contrib.planning.roofline`)
        return self._total("seconds")

    @property
    def limit(self) -> float:  # seconds of one run at the peak rates
        return self._total("limit")

    @property
    def bytes(self) -> float:
        return self._total("bytes")

    @property
    def operations(self) -> float:
        return self._total("operations")


@dataclasses.dataclass(frozen=True)
class Turn(_Kernels):
    """One turn of an open loop, which ends when its data decide, such as the loop over the tokens of a text."""

    kernels: dict[str, Sum]
    collectives: dict[str, int]  # instruction -> how many run


@dataclasses.dataclass(frozen=True)
class Compiled(_Kernels):
    """A compiler's figures of a `Program`, for one device."""

    name: str
    noun: str
    items: int
    temporaries: int  # bytes next to arguments and results
    arguments: int  # bytes
    code: int  # bytes
    kernels: dict[str, Sum]  # by kind (`winobench.contrib.planning.hlo.KINDS`), without the open loop's
    collectives: dict[str, int]  # instruction -> how many run
    compile_seconds: float  # on this machine, when it was compiled
    turn: Turn | None = None  # of the open loop
    blocks: tuple[int, ...] = ()  # of the whole network, by kind, where figures are extrapolated from fewer

    @property
    def own(self) -> int:
        """Bytes of the program and its temporaries."""
        return self.temporaries + self.code

    @property
    def at_most(self) -> float | None:
        """Items in a second at the peak rates; None if the limit is unknown."""
        return self.items / self.limit if self.limit else None

    def as_json(self) -> dict[str, Any]:
        rates = {"items_per_second": self.items / self.seconds, "at_most_per_second": self.at_most}
        return dataclasses.asdict(self) | {"seconds": self.seconds, "limit": self.limit, **rates}


def placed(parameters: Any, where: Any) -> Any:
    return jax.tree.map(lambda a, place: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place), parameters, where)


def bytes_there(tree: Any) -> int:
    """Bytes of placed shapes on one of their devices."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def one_row(array: Any) -> jax.ShapeDtypeStruct:
    """The shape of arrays [1, ...], from one of an array [...]."""
    return jax.ShapeDtypeStruct((1, *array.shape), array.dtype)


def rows_like(example: Any, rows: int, sharding: NamedSharding) -> Any:
    """Shapes of trees of arrays [rows, ...], from one of arrays [1, ...]."""

    def of_leaf(leaf: Any) -> jax.ShapeDtypeStruct:
        spec = PartitionSpec(*sharding.spec) if len(leaf.shape) else PartitionSpec()
        place = NamedSharding(sharding.mesh, spec)
        return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype, sharding=place)

    return jax.tree.map(of_leaf, example)
