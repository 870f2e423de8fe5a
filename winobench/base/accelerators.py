"""Memory and rates of the accelerators that teams rent: the vendors' peaks for dense products.

Sources: Google Cloud's pages on TPUs, NVIDIA's data sheets, and the device descriptions that OpenXLA publishes.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """One kind of device: bytes, bytes per second, operations per second."""

    name: str
    platform: str
    device_kind: str
    memory: int
    memory_rate: float
    link_rate: float  # to others next to it: over NVLink, over the links between TPUs, or, for the L4, over PCIe
    matrix_rates: dict[str, float]  # of products, by the dtype of their factors. Float32 keeps all of its bits
    clock: float = 0.0  # Hz, of what the TPU compiler counts
    compute_capability: tuple[int, int] | None = None
    cores: int = 0  # streaming multiprocessors
    units_per_core: int = 128  # of float32
    l2_cache: int = 0
    core_memory: tuple[int, int] = (233_472, 232_448)  # shared memory of a core, of that for one block at most
    core_threads: int = 2048

    @property
    def usable_memory(self) -> int:
        """Bytes that JAX gives to programs: of a GPU three quarters, as XLA_PYTHON_CLIENT_MEM_FRACTION has it."""
        return self.memory * 3 // 4 if self.platform == "gpu" else self.memory


def _tpu(name: str, kind: str, gib: float, memory: float, links: float, tera: float, teraops: float, clock: float):
    # Float32 products are six of bfloat16.
    rates = {"bfloat16": tera * 1e12, "int8": teraops * 1e12, "float32": tera * 1e12 / 6}
    return Accelerator(name, "tpu", kind, int(gib * (1 << 30)), memory * 1e9, links * 1e9, rates, clock=clock)


def _gpu(name: str, kind: str, memory: int, memory_rate: float, link_rate: float, tera: tuple[float, ...], **others):
    names = ("bfloat16", "int8", "float8_e4m3fn", "float32")
    rates = {dtype: rate * 1e12 for dtype, rate in zip(names, tera, strict=True) if rate}
    return Accelerator(name, "gpu", kind, memory, memory_rate, link_rate, rates, **others)


_A100 = {"compute_capability": (8, 0), "cores": 108, "units_per_core": 64, "clock": 1.41e9, "l2_cache": 41_943_040}
_L4 = {"compute_capability": (8, 9), "cores": 58, "clock": 2.04e9, "l2_cache": 50_331_648, "core_threads": 1536}
_HOPPER = {"compute_capability": (9, 0), "cores": 132, "clock": 1.98e9, "l2_cache": 52_428_800}
_B200 = {"compute_capability": (10, 0), "cores": 148, "clock": 1.965e9, "l2_cache": 132_644_864}
_A100 |= {"core_memory": (167_936, 166_912)}
_L4 |= {"core_memory": (102_400, 101_376)}
_H_RATES = (989, 1979, 1979, 67)
ACCELERATORS = {
    each.name: each
    for each in (
        _tpu("v5e", "TPU v5 lite", 15.75, 819, 200, 197, 394, 1.5e9),
        _tpu("v5p", "TPU v5", 95.0, 2765, 600, 459, 918, 1.75e9),
        _tpu("v6e", "TPU v6 lite", 31.25, 1640, 448, 918, 1836, 1.75e9),
        _gpu("a100-80", "NVIDIA A100-SXM4-80GB", 85_100_068_864, 2.03904e12, 3.0e11, (312, 624, 0, 19.5), **_A100),
        _gpu("l4", "NVIDIA L4", 23_654_000_000, 3.00e11, 3.2e10, (121, 242, 242, 30.3), **_L4),
        _gpu("h100", "NVIDIA H100 80GB HBM3", 84_942_979_072, 3.35232e12, 4.5e11, _H_RATES, **_HOPPER),
        _gpu("h200", "NVIDIA H200 141GB HBM3e", 151_397_597_184, 4.8e12, 4.5e11, _H_RATES, **_HOPPER),
        _gpu("b200", "NVIDIA B200", 191_514_411_008, 7.67232e12, 9.0e11, (2250, 4500, 4500, 75), **_B200),
    )
}
