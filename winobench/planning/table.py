"""Plans as tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from winobench.planning.plan import Load, Plan
from winobench.planning.programs import Compiled, Turn


def print_plans(plans: Sequence[Plan], *, details: bool, console: Console | None = None) -> None:
    """Prints a row for each model or task on each kind of device, and the time. Details are memory and kernels."""
    console = console or Console()
    console.print(_overview(plans))
    if any(plan.durations for plan in plans):
        console.print(_times(plans))
    for plan in plans if details else ():
        for load in plan.loads:
            console.print(_memory(plan, load))
            for program in filter(None, load.programs):
                for each in _kernels(f"{plan.target}, {load.name}: {program.name}, ", program):
                    console.print(each)


def _overview(plans: Sequence[Plan]) -> Table:
    has_names = any(len(plan.loads) > 1 for plan in plans)
    found = _table(
        plans[0].about if has_names else f"{plans[0].loads[0].name}: {plans[0].about}",
        caption="By the compilers' figures: nothing was measured",
    )
    if has_names:
        found.add_column("of", overflow="fold")
    found.add_column("devices", no_wrap=True)
    rows = [load.row for plan in plans for load in plan.loads]
    for name in dict.fromkeys(["memory, GB", *(name for row in rows for name in row)]):
        found.add_column(name, justify="right")
    for number in range(len(plans[0].loads)):
        for plan in plans:
            load = plan.loads[number]
            row = [load.name] * has_names + [plan.target, f"{gigabytes(load.total)} of {gigabytes(plan.usable)}"]
            found.add_row(*row, *load.row.values(), *([] if plan.has_room_for(load) else ["does not fit"]))
    return found


def _times(plans: Sequence[Plan]) -> Table:
    found = _table("Time, estimated. With programs from a compilation cache in brackets")
    found.add_column("devices")
    names = dict.fromkeys(name for plan in plans for each in plan.durations for name in each.parts)
    has_price = any(plan.price is not None for plan in plans)
    for name in (*names, "sum", *["dollars"] * has_price):
        found.add_column(name, justify="right")
    for plan in plans:
        for each in plan.durations:
            row = [f"{each.devices} {plan.target.partition(':')[0]}", *map(shown_time, each.parts.values())]
            row.append(f"{shown_time(each.total)} ({shown_time(each.with_cache)})")
            found.add_row(*row, *([f"{each.total / 3600 * each.devices * plan.price:,.2f}"] if has_price else []))
    return found


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
    found = _table(title, caption=caption)
    found.add_column("kernels")
    for name in ("number", "TFLOP", "GB moved", "ms"):
        found.add_column(name, justify="right")
    for kind, each in part.kernels.items():
        cells = f"{each.operations / 1e12:.2f}", f"{each.bytes / 1e9:.2f}", f"{each.seconds * 1e3:.2f}"
        found.add_row(kind, f"{each.count:,}", *cells)
    return found


def _table(title: str, caption: str | None = None, *, show_header: bool = True) -> Table:
    look = {"box": box.SIMPLE, "title_justify": "left", "caption_justify": "left", "collapse_padding": True}
    return Table(title=title, caption=caption, show_header=show_header, **look)


def shown_time(seconds: float) -> str:
    """Seconds, minutes or hours: ``59 s``, ``12 min``, ``3.4 h``."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5970 else f"{seconds / 3600:,.1f} h"


def gigabytes(number: float) -> str:
    return f"{number / 1e9:.1f}"
