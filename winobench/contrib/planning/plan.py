"""A plan: programs compiled for some devices, the bytes that stay next to them, and the parts of the time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

from winobench.base.errors import InputError
from winobench.contrib.planning.compiling import compile_program
from winobench.contrib.planning.programs import Compiled, Program
from winobench.contrib.planning.topologies import Target

# Platform -> devices that one host feeds.
DEVICES_PER_HOST = {"tpu": 4, "gpu": 8}
# Noun, items and a program's own bytes -> bytes on a device, at most, while such a program runs.
Needed = Callable[[str, int, int], int]


@dataclasses.dataclass(frozen=True)
class Assumptions:
    """Numbers that no compiler can supply."""

    storage_rate: float = 1e9  # bytes per second that a host reads
    bytes_per_image: float = 150e3  # as stored. COCO's and ImageCoDe's archives come to 148 and 149 kB per image
    rounds: int = 2  # groups of tasks with the same samples, each of which ends with a step that is not full
    characters_a_token: float = 4.0  # of a prompt in English
    answer_tokens: int | None = None  # until all texts of a batch have ended. None for as many as the task allows
    text_tokens: int = 32  # of the longest text in a vision-language model's question


@dataclasses.dataclass(frozen=True)
class Duration:
    """Seconds of a run, in parts that do not overlap. Only ``compiling`` was measured, on this machine."""

    devices: int
    parts: dict[str, float]

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def with_cache(self) -> float:
        """Seconds with programs from the compilation cache."""
        return self.total - self.parts["compiling"]


@dataclasses.dataclass(frozen=True)
class Load:
    """One model, or one model on one task: its programs, and the bytes that stay next to them."""

    name: str  # of the model, or of task and protocol
    programs: tuple[Compiled | None, ...]  # the main one first. None for one that does not fit. Empty where none fits
    total: int  # bytes on a device, at most
    memory: dict[str, int | str]  # name -> bytes, or a word, for the table of memory
    row: dict[str, str]  # name -> text, for the overview


@dataclasses.dataclass(frozen=True)
class Plan:
    """The figures of a config on one kind of device."""

    target: str  # e.g. ``v5e:2x2``
    about: str  # what the overview's numbers are
    usable: int  # bytes of a device that programs can use
    price: float | None  # dollars per device and hour
    loads: tuple[Load, ...]  # one after the other on the same devices
    durations: tuple[Duration, ...]  # one for each number of devices. Empty if something does not fit or is unknown
    notes: tuple[str, ...]  # assumptions, and advice where something does not fit
    content: dict[str, Any]  # values that the JSON has for this kind of config alone

    @property
    def total(self) -> int:
        """Bytes on a device, at most."""
        return max(each.total for each in self.loads)

    @property
    def fits(self) -> bool:
        return all(map(self.has_room_for, self.loads))

    def has_room_for(self, load: Load) -> bool:
        return bool(load.programs) and all(load.programs) and load.total <= self.usable

    def as_json(self) -> dict[str, Any]:
        names = ("target", "usable", "price", "notes", "total", "fits")
        durations = [
            {"devices": each.devices, **each.parts, "total": each.total, "with_cache": each.with_cache}
            for each in self.durations
        ]
        return self.content | {name: getattr(self, name) for name in names} | {"durations": durations}


@dataclasses.dataclass(frozen=True)
class Job:
    config: Any  # the settings of a config
    target: Target
    devices: Sequence[int] = ()  # numbers of devices to estimate the time for. Empty for the target's
    price: float | None = None  # dollars per device and hour
    largest: bool = False  # whether to look for the largest step that fits
    assumed: Assumptions = Assumptions()
    few: bool = False  # whether to extrapolate from few blocks
    say: Callable[[str], None] = print

    @property
    def usable(self) -> int:
        """Bytes of a device that programs can use."""
        return self.target.accelerator.usable_memory

    @property
    def batch_size(self) -> int | None:
        """The config's number; None where programs choose it."""
        return self.config.batch_size if isinstance(self.config.batch_size, int) else None

    @property
    def storage(self) -> str:
        """The assumed rate of storage, for notes."""
        return f"storage of {self.assumed.storage_rate / 1e9:g} GB/s a host (an assumption)"

    def stored(self, images: int, devices: int) -> float:
        """Bytes of a host's share of the images. Every host reads all weights besides."""
        hosts = math.ceil(devices / DEVICES_PER_HOST[self.target.accelerator.platform])
        return images * self.assumed.bytes_per_image / hosts

    def ways_to_share(self, heads: int, devices: int | None = None) -> list[int]:
        """Numbers of so many devices, or of all, that may share one copy of the parameters, the smallest first."""
        parallel, count = self.config.model_parallel, devices or len(self.target.devices)
        if parallel != 1:
            return [parallel]
        return [parts for parts in range(1, count + 1) if count % parts == 0 and heads % parts == 0]

    def copies(self, devices: int, parts: int) -> int:
        """Copies of the parameters on so many devices, of which ``parts`` share one."""
        if devices % parts:
            raise InputError(
                f"--devices has {devices}, but {parts} devices share one copy of the model on {self.target.text}: name"
                " multiples of it"
            )
        return devices // parts

    def compile(self, program: Program, size: str = "") -> Compiled | None:
        """A program's figures; None if its compiler finds that it does not fit."""
        self.say(f"{self.target.text}: compiling the {program.name}, {size or f'{program.items} x {program.noun}'}")
        return compile_program(program, self.target)

    def fitting(self, program: Program, needed: Needed, size: str = "") -> Compiled | None:
        """The figures, or None if the program does not fit next to the bytes that stay."""
        if needed(program.noun, program.items, 0) > self.usable:
            return None
        found = self.compile(program, size)
        return found if found and needed(found.noun, found.items, found.own) <= self.usable else None

    def halved(self, program: Program, needed: Needed) -> Compiled | None:
        """The figures for the program's items, halved until it fits; None if not even one fits."""
        while program.items:
            if found := self.fitting(program, needed):
                return found
            program = dataclasses.replace(program, items=program.items // 2)
        return None

    def plan(
        self,
        about: str,
        loads: Sequence[Load],
        duration: Callable[[int], Duration] | None,
        notes: Sequence[str],
        content: dict[str, Any],
    ) -> Plan:
        """The plan, with a duration for each number of devices; None where it is unknown."""
        durations = tuple(map(duration, self.devices or [len(self.target.devices)])) if duration else ()
        return Plan(self.target.text, about, self.usable, self.price, tuple(loads), durations, tuple(notes), content)


def of_all_blocks(target: str, program: Compiled | None, left_out: str = "") -> list[str]:
    """A note on a program whose figures are extrapolated from few blocks."""
    if not program or not program.blocks:
        return []
    kinds = " + ".join(map(str, program.blocks))
    return [f"{target}: the {program.name} of all {kinds} blocks is extrapolated from few{left_out}"]


def without_size(names: Sequence[str]) -> list[str]:
    """A note on tasks that are not in the work."""
    return [f"tasks of unknown size are left out: {', '.join(names)}"] if names else []
