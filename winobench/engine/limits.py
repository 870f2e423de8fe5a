"""How much one step takes on: less on CPUs, where large batches leave the caches, more on accelerators, which small
ones leave idle."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax.sharding import Mesh

_MAX_ROWS = 4096

# Bytes of a denoiser's temporaries for each position of the latents and each byte of a number of its first layer's
# width, of one triple: what XLA's compilers for TPUs and GPUs need for the UNets of SD 2.1 and SDXL, and some more
# (benchmarks/results/compiled.json).
_COPIES_OF_A_LAYER = 30
# What is left to the allocator, to what is under way, and to the compiled program itself.
_SPARE = 0.1


class Limit(NamedTuple):
    """A number for each kind of device."""

    accelerator: int
    cpu: int

    def on(self, mesh: Mesh) -> int:
        """The number for the devices of a mesh, which need not be the process's default devices."""
        return self.cpu if mesh.devices.flat[0].platform == "cpu" else self.accelerator


def table_rows(encoded: Any, num_bytes: int) -> int:
    """How many rows a table has room for, from 1 to 4,096."""
    of_a_row = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(encoded))
    return min(max(1, num_bytes // of_a_row), _MAX_ROWS)


def steps_that_fit(positions: int, width: int, itemsize: int, memory: int, resident: int) -> int:
    """How many triples of a step an accelerator's memory holds, by a rule of thumb. At least 1.

    The rule errs on the safe side. ``python -m launch.plan`` has the compiler say what a step needs, and a step that
    does not fit is halved in any case (`winobench.engine.batch_size`).

    Args:
      itemsize: bytes of a number that it computes with.
      memory: bytes of the device.
      resident: bytes of parameters and tables on it.
    """
    of_a_triple = positions * width * itemsize * _COPIES_OF_A_LAYER
    return max(1, int((memory * (1 - _SPARE) - resident) // of_a_triple))
