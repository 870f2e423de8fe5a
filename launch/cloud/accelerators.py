"""What --accelerator means: GPUs of a machine, or a TPU slice, and what each target calls them."""

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
    """A TPU slice: ``kind`` as Cloud TPU's types begin, chips in all, and how many machines they are in."""

    name: str
    kind: str
    chips: int
    topology: str

    @property
    def num_hosts(self) -> int:
        """Machines of the slice; up to eight chips of the small kinds share one."""
        return 1 if self.chips <= _GENERATIONS[self.kind].one_host else self.chips // 4

    @property
    def chips_per_host(self) -> int:
        """Chips that each process sees."""
        return self.chips // self.num_hosts

    @property
    def gke_label(self) -> str:
        """The value of GKE's node label ``cloud.google.com/gke-tpu-accelerator``."""
        return _GENERATIONS[self.kind].gke_label

    @property
    def runtime(self) -> str:
        """The TPU VM's runtime version."""
        return _GENERATIONS[self.kind].runtime


@dataclasses.dataclass(frozen=True)
class _Generation:
    gke_label: str
    runtime: str
    one_host: int
    topologies: tuple[str, ...]
    cores_per_chip: int = 1


_FLAT = ("1x1", "2x2", "2x4", "4x4", "4x8", "8x8", "8x16", "16x16")
_CUBES = ("2x2x1", "2x2x2", "2x2x4", "2x4x4", "4x4x4", "4x4x8", "4x8x8", "8x8x8", "8x8x16", "8x16x16")
# The number in a v4's and v5p's type counts cores, of which a chip has two. In the others' it counts chips.
_GENERATIONS = {
    "v4": _Generation("tpu-v4-podslice", "tpu-ubuntu2204-base", 4, _CUBES, cores_per_chip=2),
    "v5litepod": _Generation("tpu-v5-lite-podslice", "v2-alpha-tpuv5-lite", 8, _FLAT),
    "v5p": _Generation("tpu-v5p-slice", "v2-alpha-tpuv5", 4, _CUBES, cores_per_chip=2),
    "v6e": _Generation("tpu-v6e-slice", "v2-alpha-tpuv6e", 8, _FLAT),
}

GKE_GPUS = {
    "T4": "nvidia-tesla-t4",
    "V100": "nvidia-tesla-v100",
    "L4": "nvidia-l4",
    "A100": "nvidia-tesla-a100",
    "A100-80GB": "nvidia-a100-80gb",
    "H100": "nvidia-h100-80gb",
    "H100-MEGA": "nvidia-h100-mega-80gb",
    "H200": "nvidia-h200-141gb",
    "B200": "nvidia-b200",
}
"""Name of a GPU -> the value of GKE's node label ``cloud.google.com/gke-accelerator``."""


def parse(text: str) -> Gpus | Slice | None:
    """Reads ``H100:8``, ``H100``, ``8``, ``v5litepod-16``, or ``none`` for machines without any.

    Raises:
      InputError: it is none of these, or there is no slice of that size.
    """
    if text.lower() == NONE:
        return None
    slice_match = re.fullmatch(r"(?:tpu-)?(v\d\w*)-(\d+)", text)
    if slice_match is not None:
        return _slice(slice_match[1], int(slice_match[2]), text)
    gpu_match = re.fullmatch(r"(?:([A-Za-z][\w.-]*)(?::(\d+))?|(\d+))", text)
    count = 1 if gpu_match is None else int(gpu_match[2] or gpu_match[3] or 1)
    if gpu_match is None or not count:
        raise InputError(
            f"--accelerator={text} is no accelerator: write H100:8 (eight of them in each machine), v5litepod-16 (a"
            f" TPU slice), or {NONE}."
        )
    return Gpus(gpu_match[1] or "", count)


def _slice(kind: str, number: int, text: str) -> Slice:
    kind = {"v5e": "v5litepod"}.get(kind, kind)
    generation = _GENERATIONS.get(kind)
    if generation is None:
        raise InputError(f"--accelerator={text} is no TPU that is known: it is one of {', '.join(_GENERATIONS)}.")
    by_number = {_size(shape) * generation.cores_per_chip: shape for shape in generation.topologies}
    if number not in by_number:
        sizes = ", ".join(f"{kind}-{size}" for size in by_number)
        raise InputError(f"--accelerator={text} is no slice that there is: choose one of {sizes}.")
    return Slice(f"{kind}-{number}", kind, number // generation.cores_per_chip, by_number[number])


def _size(topology: str) -> int:
    size = 1
    for edge in topology.split("x"):
        size *= int(edge)
    return size
