"""The meanings of --accelerator: GPUs of a machine, or a TPU slice, and their names at each target."""

from __future__ import annotations

import dataclasses
import re

from winobench.base.errors import InputError

NONE = "none"


@dataclasses.dataclass(frozen=True)
class Gpus:
    """GPUs of one machine; ``kind`` is empty where any will do."""

    kind: str
    count: int


@dataclasses.dataclass(frozen=True)
class Slice:
    """A TPU slice: its type, such as v5litepod-16, the type's ``kind``, and the number of chips."""

    name: str
    kind: str
    chips: int

    @property
    def num_hosts(self) -> int:
        """Machines of the slice. Up to eight chips of the small kinds share one."""
        return 1 if self.chips <= _GENERATIONS[self.kind].one_host else self.chips // 4

    @property
    def runtime(self) -> str:
        return _GENERATIONS[self.kind].runtime


@dataclasses.dataclass(frozen=True)
class _Generation:
    runtime: str
    one_host: int
    sizes: tuple[int, ...]
    cores_per_chip: int = 1


_FLAT = (1, 4, 8, 16, 32, 64, 128, 256)
_CUBES = tuple(4 * 2**number for number in range(10))
# The number in a v4's and v5p's type counts cores, of which a chip has two. In the others' it counts chips.
_GENERATIONS = {
    "v4": _Generation("tpu-ubuntu2204-base", 4, _CUBES, cores_per_chip=2),
    "v5litepod": _Generation("v2-alpha-tpuv5-lite", 8, _FLAT),
    "v5p": _Generation("v2-alpha-tpuv5", 4, _CUBES, cores_per_chip=2),
    "v6e": _Generation("v2-alpha-tpuv6e", 8, _FLAT),
}


def parse(text: str) -> Gpus | Slice | None:
    """Reads ``H100:8``, ``H100``, ``8``, ``v5litepod-16``, or ``none`` for machines without any."""
    if text.lower() == NONE:
        return None
    slice_match = re.fullmatch(r"(?:tpu-)?(v\d\w*)-(\d+)", text)
    if slice_match is not None:
        return _slice(slice_match[1], int(slice_match[2]), text)
    gpu_match = re.fullmatch(r"(?:([A-Za-z][\w.-]*)(?::(\d+))?|(\d+))", text)
    count = 1 if gpu_match is None else int(gpu_match[2] or gpu_match[3] or 1)
    if gpu_match is None or not count:
        raise InputError(
            f"--accelerator={text} is not an accelerator: write H100:8 (eight of them in each machine), v5litepod-16 (a"
            f" TPU slice), or {NONE}."
        )
    return Gpus(gpu_match[1] or "", count)


def _slice(kind: str, number: int, text: str) -> Slice:
    kind = {"v5e": "v5litepod"}.get(kind, kind)
    generation = _GENERATIONS.get(kind)
    if generation is None:
        raise InputError(f"--accelerator={text} is not a TPU that is known: it is one of {', '.join(_GENERATIONS)}.")
    numbers = [size * generation.cores_per_chip for size in generation.sizes]
    if number not in numbers:
        sizes = ", ".join(f"{kind}-{size}" for size in numbers)
        raise InputError(f"--accelerator={text} is not a valid TPU slice: choose one of {sizes}.")
    return Slice(f"{kind}-{number}", kind, number // generation.cores_per_chip)
