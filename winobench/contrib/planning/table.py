"""Plans as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from winobench.contrib.planning import hlo
from winobench.contrib.planning.plan import Load, Plan
from winobench.contrib.planning.programs import Compiled, Turn

_PLURALS = {hlo.PRODUCT: "products", hlo.CONVOLUTION: "convolutions", hlo.COPY: "copies", hlo.COLLECTIVE: "collectives"}


def print_plans(plans: Sequence[Plan], *, details: bool, console: Console | None = None) -> None:
    """Prints a table for each model or task, what bounds each, and the time. Details are memory and kernels."""
    console = console or Console()
    for number in range(len(plans[0].loads)):
        console.print(_overview(plans, number))
    for plan in plans:
        for load in plan.loads:
            if load.programs and load.programs[0]:
                console.print(
                    f"{load.name} on {plan.target}: {bounds(load.programs[0])}", highlight=False, markup=False
                )
    console.print()
    if any(plan.durations for plan in plans):
        console.print(_times(plans))
    for plan in plans if details else ():
        for load in plan.loads:
            console.print(_memory(plan, load))
            for program in filter(None, load.programs):
                for kernels in _kernels(f"{plan.target}, {load.name}: {program.name}, ", program):
                    console.print(kernels)


def bounds(program: Compiled) -> str:
    """The kinds of kernels that take the estimated time, and whether their operations or bytes do."""
    part = program.turn or program
    shares = sorted(part.kernels.items(), key=lambda item: -item[1].seconds)
    shown = [(_PLURALS.get(kind, kind), each.seconds / part.seconds) for kind, each in shares]
    named = ", ".join(f"{kind} {share:.0%}" for kind, share in shown if share >= 0.005)
    computing = sum(each.computing for each in part.kernels.values()) / part.seconds
    others = "memory and links" if part.collectives else "memory"
    of = "a turn of the loop" if program.turn else f"the {program.name}"
    return f"{named} of {of}. Operations bound {computing:.0%} of it, {others} {1 - computing:.0%}"


def _overview(plans: Sequence[Plan], number: int) -> Table:
    """The table of one load on all devices."""
    overview = _table(
        f"{plans[0].loads[number].name}: {plans[0].about}", caption="By the compilers' figures: no step was measured"
    )
    overview.add_column("devices", no_wrap=True)
    rows = [plan.loads[number].row for plan in plans]
    overview.add_column("memory, GB", justify="right", no_wrap=True)
    for name in dict.fromkeys(name for row in rows for name in row):
        overview.add_column(name, justify="right")
    for plan, row in zip(plans, rows, strict=True):
        load = plan.loads[number]
        cells = row.values() if plan.has_room_for(load) else ["does not fit"]
        overview.add_row(plan.target, f"{gigabytes(load.total)} of {gigabytes(plan.usable)}", *cells)
    return overview


def _times(plans: Sequence[Plan]) -> Table:
    times = _table("Time, estimated. Without compiling where programs are in a compilation cache")
    times.add_column("devices")
    names = dict.fromkeys(name for plan in plans for duration in plan.durations for name in duration.parts)
    has_price = any(plan.price is not None for plan in plans)
    for name in (*names, "sum", *["dollars"] * has_price):
        times.add_column(name, justify="right", no_wrap=True)
    for plan in plans:
        for duration in plan.durations:
            row = [f"{duration.devices} {plan.target.partition(':')[0]}", *map(shown_time, duration.parts.values())]
            dollars = duration.total / 3600 * duration.devices * (plan.price or 0)
            cost = [f"{dollars:,.0f}" if dollars >= 1000 else f"{dollars:.2f}"] * has_price
            row += [shown_time(duration.total), *cost]
            times.add_row(*row)
    return times


def _memory(plan: Plan, load: Load) -> Table:
    found = _table(f"{plan.target}, {load.name}: memory of a device, GB", show_header=False)
    found.add_column()
    found.add_column(justify="right")
    for name, number in {**load.memory, "there is": plan.usable}.items():
        found.add_row(name, number if isinstance(number, str) else f"{number / 1e9:.2f}")
    return found


def _kernels(of: str, program: Compiled) -> Iterator[Table]:
    """Kernels by kind, of the program without its open loop, and of a turn of that."""
    title = f"{of}{program.items} x {program.noun}"
    once = _kinds(f"{title}: without its loop" if program.turn else title, program)
    once.caption += f". Compiled in {program.compile_seconds:.0f} s on this machine"
    yield once
    if program.turn:
        yield _kinds(f"{title}: a turn of its loop", program.turn)


def _kinds(title: str, part: Compiled | Turn) -> Table:
    caption = ", ".join(f"{count} {name}" for name, count in part.collectives.items()) or "no collectives"
    kinds = _table(title, caption=caption)
    kinds.add_column("kernels")
    for name in ("number", "TFLOP", "GB moved", "ms", "at least"):
        kinds.add_column(name, justify="right")
    for kind, summed in part.kernels.items():
        cells = f"{summed.operations / 1e12:.2f}", f"{summed.bytes / 1e9:.2f}", f"{summed.seconds * 1e3:.2f}"
        least = f"{summed.limit * 1e3:.2f}" if summed.limit else ""
        kinds.add_row(kind, f"{summed.count:,}", *cells, least)
    return kinds


def _table(title: str, caption: str | None = None, *, show_header: bool = True) -> Table:
    look = {"box": box.SIMPLE, "title_justify": "left", "caption_justify": "left", "collapse_padding": True}
    return Table(title=title, caption=caption, show_header=show_header, **look)


def shown_time(seconds: float) -> str:
    """Seconds, minutes or hours: ``59 s``, ``12 min``, ``3.4 h``, ``1,680 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    hours = seconds / 3600
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{hours:,.0f} h" if hours >= 1000 else f"{hours:.1f} h"


def gigabytes(number: float) -> str:
    return f"{number / 1e9:.1f}"
