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


@dataclasses.dataclass(frozen=True)
class PallasKernel:
    """Cycles of a Pallas kernel on TPUs, which the compiler does not estimate."""

    unit: str  # what it works on: the `Kernel`'s ``operations``, ``transcendentals`` or ``bytes``
    cycles: dict[str, float]  # accelerator -> cycles for one of them. A v5p has two cores


PALLAS_KERNELS = {
    "flash_attention": PallasKernel("transcendentals", {"v5e": 5.1e-3, "v5p": 2.6e-3, "v6e": 3.0e-3}),
    "flash_attention, joint": PallasKernel("transcendentals", {"v5e": 5.4e-3, "v5p": 2.75e-3, "v6e": 3.5e-3}),
    "packed_attention": PallasKernel("transcendentals", {"v5e": 3.1e-3, "v5p": 1.55e-3, "v6e": 2.0e-3}),
    "packed_attention_wide": PallasKernel("transcendentals", {"v5e": 4.1e-3, "v5p": 2.05e-3, "v6e": 2.05e-3}),
    "packed_attention_short": PallasKernel("transcendentals", {"v5e": 7.0e-3, "v5p": 3.5e-3, "v6e": 5.0e-3}),
}
"""Name of ``pallas_call``, without dots -> cycles: bundles of the final schedule times steps of the grid, for one unit.

The kernel's ``cost_estimate`` has its ``flops`` of the matrix units and its ``transcendentals``, of attention one for
each score. The bytes are its operands and results in the device's memory. Of a kernel that is not here only operations
and bytes count, and attention counts as ``flash_attention``, whose cycles are those of 4,096 positions and heads of 64.
*Joint* are keys that do not fill blocks of 2,048, such as an image's and a text's together: 4,608 positions and heads
of 128.
"""

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
        if own := _of_pallas(kernel):
            bounds.append(getattr(kernel, own.unit) * own.cycles[accelerator.name] / accelerator.clock)
    else:
        bounds.append(kernel.transcendentals / (_EXPONENTIALS_PER_CYCLE * accelerator.cores * accelerator.clock))
    return max(bounds)


def _of_pallas(kernel: Kernel) -> PallasKernel | None:
    name = kernel.pallas
    if name not in PALLAS_KERNELS and kernel.kind == hlo.ATTENTION:
        name = "flash_attention"
    is_joint = kernel.keys > _BLOCK_OF_KEYS and kernel.keys % _BLOCK_OF_KEYS != 0
    return PALLAS_KERNELS.get(f"{name}, joint" if is_joint else name, PALLAS_KERNELS.get(name))


def by_kind(kernels: Iterable[Kernel], accelerator: Accelerator) -> dict[str, Sum]:
    """Sums over the kernels of each kind, in the order of `winobench.planning.hlo.KINDS`. Kinds without any are out."""
    sums = dict.fromkeys(hlo.KINDS, (0, 0.0, 0.0, 0.0))
    for kernel in kernels:
        one = (1, kernel.operations, kernel.bytes, seconds(kernel, accelerator))
        sums[kernel.kind] = tuple(a + kernel.times * b for a, b in zip(sums[kernel.kind], one, strict=True))
    return {kind: Sum(*numbers) for kind, numbers in sums.items() if numbers[0]}
