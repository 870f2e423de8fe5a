"""Plans as tables in the terminal, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from winobench.planning.compiling import Compiled, Turn
from winobench.planning.estimate import Duration
from winobench.planning.programs import TEXT


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a config takes on one kind of device.

    Attributes:
      target: e.g. ``v5e:2x2``.
      weights: bytes on a device while it scores, by network.
      others: bytes of tables, caches or optimiser states on a device.
      usable: bytes of a device that programs can use.
      programs: what was compiled, the main one first; None for one that does not fit.
      largest: items of the largest main program that fits, as far as it was looked for; None if it was not.
      durations: for each number of devices.
      price: dollars per device and hour; None if nobody said.
      per_second: what a device works off in a second, e.g. ``passes/s``.
      notes: what the numbers rest on.
      staged: bytes of text encoders that are there only while texts are encoded, instead of the denoiser; 0 of those
        that stay.
    """

    target: str
    weights: dict[str, int]
    others: int
    usable: int
    programs: tuple[Compiled | None, ...]
    largest: int | None
    durations: tuple[Duration, ...]
    price: float | None
    per_second: str
    notes: tuple[str, ...] = ()
    staged: int = 0

    @property
    def temporaries(self) -> int:
        """Bytes of the program that needs most, of those that run while passes are scored."""
        return self._most(each for each in self.programs if each and not (self.staged and each.noun == TEXT))

    @property
    def while_scoring(self) -> int:
        """Bytes on a device, at most, while it scores."""
        return sum(self.weights.values()) + self.others + self.temporaries

    @property
    def while_encoding(self) -> int:
        """The same while it encodes texts ahead of scoring; 0 where it does not."""
        if not self.staged:
            return 0
        weights = sum(self.weights.values()) - self.weights["denoiser"] + self.staged
        return weights + self.others + self._most(each for each in self.programs if each and each.noun == TEXT)

    @staticmethod
    def _most(programs: Iterable[Compiled]) -> int:
        return max((each.temporaries + each.code for each in programs), default=0)

    @property
    def total(self) -> int:
        """Bytes on a device, at most."""
        return max(self.while_scoring, self.while_encoding)

    @property
    def fits(self) -> bool:
        """Whether every program does."""
        return all(self.programs) and self.total <= self.usable

    def as_json(self) -> dict[str, Any]:
        """All of it as JSON values, with what is computed from it."""
        content = dataclasses.asdict(self)
        for compiled, written in zip(self.programs, content["programs"], strict=True):
            if compiled:
                written["seconds"], written["items_per_second"] = compiled.seconds, compiled.items / compiled.seconds
        for duration, written in zip(self.durations, content["durations"], strict=True):
            written["total"], written["with_cache"] = duration.total, duration.with_cache
        parts = {"while_scoring": self.while_scoring, "while_encoding": self.while_encoding}
        return content | parts | {"total": self.total, "fits": self.fits}


def print_plans(plans: Sequence[Plan], *, details: bool, console: Console | None = None) -> None:
    """Prints a row for each plan; with details, each program's kernels by kind and each duration's parts as well."""
    console = console or Console()
    console.print(_overview(plans))
    if not details:
        return
    for plan in plans:
        console.print(_memory(plan))
        for compiled in filter(None, plan.programs):
            console.print(program(plan.target, compiled))
        if plan.durations:
            console.print(_durations(plan))


def _overview(plans: Sequence[Plan]) -> Table:
    main = next((plan.programs[0] for plan in plans if plan.programs and plan.programs[0]), None)
    noun = main.noun if main else "item"
    table = Table(
        title=f"Per device; TFLOP and GB moved per {noun}. By the compilers' figures: nothing was measured",
        box=box.SIMPLE,
        title_justify="left",
    )
    table.add_column("accelerator")
    for name in ("memory, GB", "at once", "TFLOP", "GB", plans[0].per_second, "time"):
        table.add_column(name, justify="right")
    if any(plan.price for plan in plans):
        table.add_column("dollars", justify="right")
    for plan in plans:
        row = [plan.target, f"{gigabytes(plan.total)} of {gigabytes(plan.usable)}"]
        step = plan.programs[0] if plan.programs else None
        if step is None:
            table.add_row(*row, "does not fit")
            continue
        row.append(f"{step.items}" + ("" if plan.largest is None else f" (up to {plan.largest})"))
        row += [f"{step.operations / step.items / 1e12:.2f}", f"{step.bytes / step.items / 1e9:.2f}"]
        row.append(f"{step.items / step.seconds:,.0f}")
        for duration in plan.durations[:1]:
            row.append(shown_time(duration.total))
            if plan.price:
                row.append(_dollars(plan, duration))
        table.add_row(*row)
    return table


def _memory(plan: Plan) -> Table:
    parts = {**plan.weights, "tables": plan.others, "temporaries, at most": plan.temporaries, "sum": plan.while_scoring}
    if plan.staged:
        parts["while texts are encoded, without the denoiser"] = plan.while_encoding
    shown = {"text encoders": "staged"} if plan.staged else {}
    return memory(f"{plan.target}: memory of a device, GB", parts, plan.usable, shown)


def memory(title: str, parts: Mapping[str, int], usable: int, shown: Mapping[str, str] | None = None) -> Table:
    """Bytes of a device by name, and what there is, in GB; or what is shown in place of a number."""
    table = Table(title=title, box=box.SIMPLE, title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, number in {**parts, "there is": usable}.items():
        table.add_row(name, (shown or {}).get(name, f"{number / 1e9:.2f}"))
    return table


def program(of: str, compiled: Compiled, what: str = "") -> Table:
    """Kernels by kind of a program, with how long it took to compile; ``of`` what, and which part if not all."""
    table = kernels(f"{of}: {compiled.name}, {compiled.items} x {compiled.noun}{what}", compiled)
    table.caption += f"; compiled in {compiled.compile_seconds:.0f} s on this machine"
    return table


def kernels(title: str, part: Compiled | Turn) -> Table:
    """Kernels by kind of a program, or of a turn of its loop, with the collectives as a caption."""
    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    table.add_column("kernels")
    for name in ("number", "TFLOP", "GB moved", "ms"):
        table.add_column(name, justify="right")
    for kind, numbers in part.kernels.items():
        table.add_row(
            kind,
            f"{numbers.count:,}",
            f"{numbers.operations / 1e12:.2f}",
            f"{numbers.bytes / 1e9:.2f}",
            f"{numbers.seconds * 1e3:.2f}",
        )
    table.caption = ", ".join(f"{count} {name}" for name, count in part.collectives.items()) or "no collectives"
    return table


def _durations(plan: Plan) -> Table:
    table = Table(
        title=f"{plan.target}: time, estimated; with programs from a compilation cache in brackets",
        box=box.SIMPLE,
        title_justify="left",
    )
    names = ["scoring", "encoding", "loading", "compiling", "tails"]
    for name in ("devices", *names, "sum"):
        table.add_column(name, justify="right")
    if plan.price:
        table.add_column("dollars", justify="right")
    for duration in plan.durations:
        row = [f"{duration.devices}", *(shown_time(getattr(duration, name)) for name in names)]
        row.append(f"{shown_time(duration.total)} ({shown_time(duration.with_cache)})")
        if plan.price:
            row.append(_dollars(plan, duration))
        table.add_row(*row)
    return table


def times(plans: Sequence[Any], names: Sequence[str]) -> Table:
    """The parts of the time of several plans that have ``target``, ``price`` and ``durations``, a row for each."""
    found = Table(
        title="Time, estimated; with programs from a compilation cache in brackets",
        box=box.SIMPLE,
        title_justify="left",
    )
    has_price = any(plan.price is not None for plan in plans)
    found.add_column("devices")
    for name in (*names, "sum", *["dollars"] * has_price):
        found.add_column(name, justify="right")
    for plan in plans:
        kind = plan.target.partition(":")[0]
        for each in plan.durations:
            row = [f"{each.devices} {kind}", *(shown_time(getattr(each, name)) for name in names)]
            row.append(f"{shown_time(each.total)} ({shown_time(each.with_cache)})")
            found.add_row(*row, *([_dollars(plan, each)] if has_price else []))
    return found


def shown_time(seconds: float) -> str:
    """As people say it: ``59 s``, ``12 min``, ``3.4 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:,.1f} h"


def _dollars(plan: Any, duration: Any) -> str:
    return f"{duration.total / 3600 * duration.devices * plan.price:,.2f}"


def as_markdown(plans: Iterable[Plan]) -> str:
    """The overview as a table of Markdown."""
    head = [
        "accelerator",
        "weights",
        "tables",
        "temporaries",
        "sum of",
        "passes at once (largest)",
        "passes/s per device",
    ]
    lines = [f"| {' | '.join(head)} |", "| --- | " + " | ".join(["---:"] * (len(head) - 1)) + " |"]
    for plan in plans:
        step = plan.programs[0] if plan.programs else None
        cells = [plan.target, *(gigabytes(n) for n in (sum(plan.weights.values()), plan.others, plan.temporaries))]
        cells[1] += ", staged" if plan.staged else ""
        cells.append(shown_sum(plan.while_scoring, plan.while_encoding, plan.usable))
        if step is None:
            cells += ["does not fit", ""]
        else:
            largest = "" if plan.largest is None else f" ({plan.largest})"
            cells += [f"{step.items}{largest}", f"{step.items / step.seconds:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def shown_sum(while_scoring: int, while_encoding: int, usable: int) -> str:
    """What is needed of a device's memory, with what encoding texts ahead of scoring needs where that is more."""
    more = f"; {gigabytes(while_encoding)} while texts are encoded" if while_encoding > while_scoring else ""
    return f"{gigabytes(while_scoring)} of {gigabytes(usable)}{more}"


def gigabytes(number: float) -> str:
    """Bytes in GB, with one digit behind the point."""
    return f"{number / 1e9:.1f}"
