"""How long a compiled program takes: by the TPU compiler's own cycles, or by a roofline over a GPU's kernels.

Both are estimates, never measurements. A roofline is a bound: no kernel is faster than its operations at the matrix
units' rate, its bytes at the memory's, or what it sends at that of the links, whichever takes longest. The TPU
compiler's cycles are its own estimate, with which it chooses between schedules. What runs between kernels, and what a
driver costs, is in neither.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from winobench.base.accelerators import Accelerator
from winobench.planning import hlo
from winobench.planning.hlo import Kernel

# Cycles of a TPU per score of the Pallas attention kernel, whose cycles the compiler does not estimate: bundles of its
# final schedule times steps of its grid, at 4,096 positions and heads of 64. And, where keys do not fill blocks of
# 2,048, such as an image's and a text's together, at 4,608 positions and heads of 128. A v5p has two cores.
CYCLES_PER_SCORE = {"v5e": 5.1e-3, "v5p": 2.6e-3, "v6e": 3.0e-3}
_CYCLES_PER_JOINT_SCORE = {"v5e": 5.4e-3, "v5p": 2.75e-3, "v6e": 3.5e-3}
_BLOCK_OF_KEYS = 2048
# Exponentials that a core of an NVIDIA GPU computes in a cycle.
_EXPONENTIALS_PER_CYCLE = 16


@dataclasses.dataclass(frozen=True)
class Sum:
    """Kernels of one kind, together."""

    count: int
    operations: float  # of the matrix units
    bytes: float  # read and written in the device's memory
    seconds: float  # estimated


def seconds(kernel: Kernel, accelerator: Accelerator) -> float:
    if kernel.cycles is not None and accelerator.platform == "tpu":
        return kernel.cycles / accelerator.clock
    rates = accelerator.matrix_rates
    rate = rates.get("bfloat16" if kernel.dtype == "float16" else kernel.dtype, rates["bfloat16"])
    bounds = [kernel.operations / rate, kernel.bytes / accelerator.memory_rate, kernel.sent / accelerator.link_rate]
    if accelerator.platform == "tpu":
        is_joint = kernel.keys > _BLOCK_OF_KEYS and kernel.keys % _BLOCK_OF_KEYS != 0
        cycles = (_CYCLES_PER_JOINT_SCORE if is_joint else CYCLES_PER_SCORE)[accelerator.name]
        bounds.append(kernel.transcendentals * cycles / accelerator.clock)
    else:
        bounds.append(kernel.transcendentals / (_EXPONENTIALS_PER_CYCLE * accelerator.cores * accelerator.clock))
    return max(bounds)


def by_kind(kernels: Iterable[Kernel], accelerator: Accelerator) -> dict[str, Sum]:
    """Sums over the kernels of each kind, in the order of `winobench.planning.hlo.KINDS`. Kinds without any are out."""
    sums = dict.fromkeys(hlo.KINDS, (0, 0.0, 0.0, 0.0))
    for kernel in kernels:
        one = (1, kernel.operations, kernel.bytes, seconds(kernel, accelerator))
        sums[kernel.kind] = tuple(a + kernel.times * b for a, b in zip(sums[kernel.kind], one, strict=True))
    return {kind: Sum(*numbers) for kind, numbers in sums.items() if numbers[0]}
