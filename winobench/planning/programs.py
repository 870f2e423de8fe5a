"""Programs that run on a mesh, not yet compiled, and the figures of their compilers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import NamedSharding, PartitionSpec

from winobench.planning.roofline import Sum

TEXT = "text"
"""The noun of the program that encodes texts."""


@dataclasses.dataclass(frozen=True)
class Program:
    """A program that has not been compiled.

    Attributes:
      name: e.g. ``denoising step``.
      noun: what an item is, e.g. ``pass``.
      items: that each device works on in one run.
      lower_items: number of items -> the program as JAX's compilers take it.
      blocks: how many blocks of each kind its network has, if `shallow` replaces it.
      shallow: numbers of blocks and the same program of a network that has them (`winobench.planning.few_blocks`).
    """

    name: str
    noun: str
    items: int
    lower_items: Callable[[int], jax.stages.Lowered]
    blocks: tuple[int, ...] = ()
    shallow: tuple[tuple[tuple[int, ...], Callable[[int], jax.stages.Lowered]], ...] = ()

    def lower(self) -> jax.stages.Lowered:
        """As JAX's compilers take it."""
        return self.lower_items(self.items)

    def halved(self) -> Program:
        """The same program for half as many items."""
        return dataclasses.replace(self, items=self.items // 2)

    def shallow_programs(self) -> tuple[tuple[tuple[int, ...], Program], ...]:
        """Numbers of blocks, and the same program of a network that has them."""
        return tuple((counts, Program(self.name, self.noun, self.items, lower)) for counts, lower in self.shallow)


class _Kernels:
    """Totals of sums by kind."""

    kernels: dict[str, Sum]

    @property
    def seconds(self) -> float:
        """Estimated, of one run (`winobench.planning.roofline`)."""
        return sum(each.seconds for each in self.kernels.values())

    @property
    def bytes(self) -> float:
        """Read and written by all kernels."""
        return sum(each.bytes for each in self.kernels.values())

    @property
    def operations(self) -> float:
        """Of the matrix units."""
        return sum(each.operations for each in self.kernels.values())


@dataclasses.dataclass(frozen=True)
class Turn(_Kernels):
    """One turn of an open loop, which ends when its data decide, such as the loop over the tokens of a text.

    Attributes:
      kernels: sums by kind (`winobench.planning.hlo.KINDS`).
      collectives: instruction -> how many run.
    """

    kernels: dict[str, Sum]
    collectives: dict[str, int]


@dataclasses.dataclass(frozen=True)
class Compiled(_Kernels):
    """A compiler's figures of a program, for one device.

    Attributes:
      name, noun, items: see `Program`.
      temporaries: bytes that the program needs next to what it is given and gives.
      arguments: bytes of what it is given.
      code: bytes of the program itself.
      kernels: sums by kind (`winobench.planning.hlo.KINDS`), without the open loop's.
      collectives: instruction -> how many of them run.
      compile_seconds: on this machine, when it was compiled.
      turn: of the open loop; None without one.
      blocks: those of the whole network, by kind, where all of this is extrapolated from networks of fewer
        (`winobench.planning.few_blocks`). Empty for a compiler's own figures.
    """

    name: str
    noun: str
    items: int
    temporaries: int
    arguments: int
    code: int
    kernels: dict[str, Sum]
    collectives: dict[str, int]
    compile_seconds: float
    turn: Turn | None = None
    blocks: tuple[int, ...] = ()

    @property
    def own(self) -> int:
        """Bytes of the program and its temporaries."""
        return self.temporaries + self.code

    def as_json(self) -> dict[str, Any]:
        """All fields, and the rates that follow from them."""
        return dataclasses.asdict(self) | {"seconds": self.seconds, "items_per_second": self.items / self.seconds}


def placed(parameters: Any, where: Any) -> Any:
    """Shapes of arrays at their places."""
    return jax.tree.map(lambda a, place: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place), parameters, where)


def bytes_there(tree: Any) -> int:
    """Bytes of placed shapes on one of their devices."""
    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)


def rows_like(example: Any, rows: int, sharding: NamedSharding) -> Any:
    """Shapes of trees of arrays [rows, ...], from one of arrays [1, ...]."""

    def of_leaf(leaf: Any) -> jax.ShapeDtypeStruct:
        spec = PartitionSpec(*sharding.spec) if len(leaf.shape) else PartitionSpec()
        place = NamedSharding(sharding.mesh, spec)
        return jax.ShapeDtypeStruct((rows, *leaf.shape[1:]), leaf.dtype, sharding=place)

    return jax.tree.map(of_leaf, example)
