"""Time of a compiled program: an estimate, and a limit that no device of the kind beats.

The limit is a roofline over the kernels. Each takes its operations at the matrix units' rate, its bytes at the
memory's, or its messages at the links' rate: the longest of the three. On TPUs the estimate is the compiler's cycles
for a kernel, with which it chooses between schedules. On GPUs it is the limit, times a factor that kernels of this
kind had on an H100. Neither includes the time between kernels, nor the driver.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from winobench.base.accelerators import Accelerator
from winobench.contrib.planning import hlo
from winobench.contrib.planning.hlo import Kernel


@dataclasses.dataclass(frozen=True)
class PallasKernel:
    """Cycles of a Pallas kernel on TPUs, which the compiler does not estimate."""

    unit: str  # the work that the cycles are for: the `Kernel`'s ``operations``, ``transcendentals`` or ``bytes``
    cycles: dict[str, float]  # accelerator -> cycles for one of them. A v5p has two cores


PALLAS_KERNELS = {
    "flash_attention": PallasKernel("transcendentals", {"v5e": 5.1e-3, "v5p": 2.6e-3, "v6e": 3.0e-3}),
    "flash_attention, joint": PallasKernel("transcendentals", {"v5e": 5.4e-3, "v5p": 2.75e-3, "v6e": 3.5e-3}),
    "packed_attention": PallasKernel("transcendentals", {"v5e": 3.1e-3, "v5p": 1.55e-3, "v6e": 2.0e-3}),
    "packed_attention_wide": PallasKernel("transcendentals", {"v5e": 4.1e-3, "v5p": 2.05e-3, "v6e": 2.05e-3}),
    "packed_attention_short": PallasKernel("transcendentals", {"v5e": 7.0e-3, "v5p": 3.5e-3, "v6e": 5.0e-3}),
    "packed_attention_turned": PallasKernel("transcendentals", {"v5e": 4.5e-3, "v5p": 2.25e-3, "v6e": 2.35e-3}),
    "packed_attention_turned_short": PallasKernel("transcendentals", {"v5e": 6.3e-3, "v5p": 3.2e-3, "v6e": 4.7e-3}),
}
"""Name of ``pallas_call``, without dots -> cycles: bundles of the final schedule times steps of the grid, for one unit.

The kernel's ``cost_estimate`` has its ``flops`` of the matrix units and its ``transcendentals``, of attention one for
each score. The bytes are its operands and results in the device's memory. Of a kernel that is not here only operations
and bytes count, and attention counts as ``flash_attention``, whose cycles are for 4,096 positions and heads of 64.
*Joint* are keys that do not fill blocks of 2,048, such as an image's and a text's together: 4,608 positions and heads
of 128. *Packed* is `winobench.models.packed_attention`, whose scores count with the keys' padding: at 4,096 positions
and heads of 64; *wide* at 4,608 and heads of 128; *short* with a text's 77 keys, or an image's 256; *turned* with norms
and rotations of wide heads; *turned short* with the queries of a text alone.
"""

_BLOCK_OF_KEYS = 2048
# Exponentials that a core of an NVIDIA GPU computes in a cycle.
_EXPONENTIALS_PER_CYCLE = 16


TIMES_LIMIT = {
    hlo.PRODUCT: 1.33,
    hlo.CONVOLUTION: 1.38,
    hlo.ATTENTION: 2.18,
    hlo.COPY: 1.75,
    hlo.COLLECTIVE: 1.75,
    hlo.OTHER: 1.75,
}
"""Kind of kernel -> how much longer than its limit it took on an H100: the median of five models in bfloat16.

benchmarks/results/h100-measured.json has them. *Other* included copies. For collectives, other GPUs and other programs
these factors are an assumption.
"""


@dataclasses.dataclass(frozen=True)
class Sum:
    """Kernels of one kind, together."""

    count: int
    operations: float  # of the matrix units
    bytes: float  # read and written in the device's memory
    seconds: float  # estimated
    limit: float = 0.0  # seconds at the peak rates
    computing: float = 0.0  # estimated seconds of the kernels whose limit is their operations


def by_kind(kernels: Iterable[Kernel], accelerator: Accelerator) -> dict[str, Sum]:
    """Sums over the kernels of each kind, in the order of `hlo.KINDS`. Kinds without any are out."""
    sums = dict.fromkeys(hlo.KINDS, (0, 0.0, 0.0, 0.0, 0.0, 0.0))
    for kernel in kernels:
        computing, moving = _limits(kernel, accelerator)
        estimate = seconds(kernel, accelerator)
        # Operations of a product that its compiler writes in an unknown form may be counted too high.
        limit = min(max(computing, moving), estimate)
        figures = (1, kernel.operations, kernel.bytes, estimate, limit, estimate if computing > moving else 0.0)
        sums[kernel.kind] = tuple(a + kernel.times * b for a, b in zip(sums[kernel.kind], figures, strict=True))
    return {kind: Sum(*numbers) for kind, numbers in sums.items() if numbers[0]}


def seconds(kernel: Kernel, accelerator: Accelerator) -> float:
    """The estimate."""
    limit = max(_limits(kernel, accelerator))
    if accelerator.platform == "gpu":
        return limit * TIMES_LIMIT[kernel.kind]
    if kernel.cycles is not None:
        return kernel.cycles / accelerator.clock
    own = _of_pallas(kernel)
    return max(limit, getattr(kernel, own.unit) * own.cycles[accelerator.name] / accelerator.clock) if own else limit


def _limits(kernel: Kernel, accelerator: Accelerator) -> tuple[float, float]:
    """Seconds of operations, and of bytes in the memory or over links, at the peak rates."""
    rates = accelerator.matrix_rates
    computing = kernel.operations / rates.get(
        "bfloat16" if kernel.dtype == "float16" else kernel.dtype, rates["bfloat16"]
    )
    if accelerator.platform == "gpu":
        exponentials = _EXPONENTIALS_PER_CYCLE * accelerator.cores * accelerator.clock
        computing = max(computing, kernel.transcendentals / exponentials)
    return computing, max(kernel.bytes / accelerator.memory_rate, kernel.sent / accelerator.link_rate)


def _of_pallas(kernel: Kernel) -> PallasKernel | None:
    name = kernel.pallas
    if name not in PALLAS_KERNELS and kernel.kind == hlo.ATTENTION:
        name = "flash_attention"
    is_joint = kernel.keys > _BLOCK_OF_KEYS and kernel.keys % _BLOCK_OF_KEYS != 0
    return PALLAS_KERNELS.get(f"{name}, joint" if is_joint else name, PALLAS_KERNELS.get(name))
