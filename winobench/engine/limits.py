"""How much one step takes on: less on CPUs, where large batches leave the caches, more on accelerators, which small
ones leave idle."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

_MAX_ROWS = 4096


class Limit(NamedTuple):
    """A number for each kind of device."""

    accelerator: int
    cpu: int

    def on(self, mesh: Mesh) -> int:
        """The number for the devices of a mesh, whatever the process's own default devices are."""
        return self.cpu if mesh.devices.flat[0].platform == "cpu" else self.accelerator


def table_rows(encoded: Any, num_bytes: int) -> int:
    """How many rows a table has room for, from 1 to 4,096.

    Args:
      encoded: one encoded item, a tree of arrays or of their shapes.
      num_bytes: memory for the table.
    """
    of_a_row = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(encoded))
    return min(max(1, num_bytes // of_a_row), _MAX_ROWS)
