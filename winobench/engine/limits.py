"""Sizes of one step: smaller on CPUs, where large batches leave the caches, larger on accelerators."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

_MAX_ROWS = 4096

# A triple's temporaries, in copies of the denoiser's first layer: XLA's need for SD 2.1 and SDXL on TPUs and GPUs, and
# some more (benchmarks/results/compiled.json).
_COPIES_OF_A_LAYER = 30
_SPARE = 0.1  # for the allocator, work under way, and the compiled program


class Limit(NamedTuple):
    """A number for each kind of device."""

    accelerator: int
    cpu: int

    def on(self, mesh: Mesh) -> int:
        """The number for a mesh's devices, which need not be the process's default devices."""
        return self.cpu if mesh.devices.flat[0].platform == "cpu" else self.accelerator


def table_rows(encoded: Any, num_bytes: int) -> int:
    """Number of rows that fit in a table, from 1 to 4,096."""
    of_a_row = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(encoded))
    return min(max(1, num_bytes // of_a_row), _MAX_ROWS)


def steps_that_fit(positions: int, width: int, itemsize: int, memory: int, resident: int) -> int:
    """Number of a step's triples that an accelerator's memory holds, by a rule of thumb. At least 1.

    ``memory``: bytes of the device, of which ``resident`` hold parameters and tables. A step that does not fit is
    halved in any case (`winobench.engine.batch_size`).
    """
    of_a_triple = positions * width * itemsize * _COPIES_OF_A_LAYER
    return max(1, int((memory * (1 - _SPARE) - resident) // of_a_triple))
