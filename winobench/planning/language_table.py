"""Plans of language models as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from winobench.planning import table
from winobench.planning.language import Batches
from winobench.planning.language_plan import LanguagePlan


def print_plans(plans: Sequence[LanguagePlan], *, details: bool, console: Console | None = None) -> None:
    """Prints a table for each task, with a row for each plan, and the time; with details, memory and kernels."""
    console = console or Console()
    for number in range(len(plans[0].batches)):
        console.print(_overview(plans, number))
    if any(plan.durations for plan in plans):
        console.print(_durations(plans))
    if not details:
        return
    for plan in plans:
        for each in plan.batches:
            console.print(_memory(plan, each))
            _print_kernels(plan, each, console)


def _overview(plans: Sequence[LanguagePlan], number: int) -> Table:
    found = Table(
        title=f"{plans[0].batches[number].asked.name}: memory of a device, all else of all devices together",
        caption="By the compilers' figures: nothing was measured",
        box=box.SIMPLE,
        title_justify="left",
        caption_justify="left",
    )
    found.add_column("devices")
    for name in ("share a copy", "memory, GB", "at once", "tokens/s", "questions/s"):
        found.add_column(name, justify="right")
    for plan in plans:
        each = plan.batches[number]
        needed = plan.weights + each.resident
        row = [plan.target, f"{plan.model_parallel}"]
        row.append(f"{table.gigabytes(needed)} of {table.gigabytes(plan.usable)}")
        if each.answering is None or needed > plan.usable:
            found.add_row(*row, "does not fit")
            continue
        rates = plan.rates(each)
        questions = f"{rates.questions:,.1f}" if rates.questions >= 1 else f"{rates.questions:.2g}"
        found.add_row(*row, f"{each.rows * plan.copies}", f"{rates.tokens:,.0f}" if rates.tokens else "", questions)
    return found


def _durations(plans: Sequence[LanguagePlan]) -> Table:
    found = Table(
        title="Time, estimated; with programs from a compilation cache in brackets",
        box=box.SIMPLE,
        title_justify="left",
    )
    names = ["reading", "writing", "loading", "compiling"]
    has_price = any(plan.price is not None for plan in plans)
    found.add_column("devices")
    for name in (*names, "sum", *["dollars"] * has_price):
        found.add_column(name, justify="right")
    for plan in plans:
        kind = plan.target.partition(":")[0]
        for each in plan.durations:
            row = [f"{each.devices} {kind}", *(table.shown_time(getattr(each, name)) for name in names)]
            row.append(f"{table.shown_time(each.total)} ({table.shown_time(each.with_cache)})")
            dollars = [f"{each.total / 3600 * each.devices * plan.price:,.2f}"] if has_price else []
            found.add_row(*row, *dollars)
    return found


def _memory(plan: LanguagePlan, batch: Batches) -> Table:
    found = Table(
        title=f"{plan.target}: {batch.asked.name}: memory of a device, GB",
        box=box.SIMPLE,
        title_justify="left",
        show_header=False,
    )
    found.add_column()
    found.add_column(justify="right")
    # Those of options need not be there for all layers at once.
    stored = min(batch.cache + batch.prefix_cache, batch.resident)
    parts = {"weights": plan.weights, "keys and values": stored, "other temporaries": batch.resident - stored}
    parts |= {"sum": plan.weights + batch.resident, "there is": plan.usable}
    for name, number in parts.items():
        found.add_row(name, f"{number / 1e9:.2f}")
    return found


def _print_kernels(plan: LanguagePlan, batch: Batches, console: Console) -> None:
    for program in filter(None, (batch.reading, batch.answering)):
        title = f"{plan.target}: {program.name}, {program.items} x {program.noun}"
        once = table.kernels(f"{title}: what runs once" if program.turn else title, program)
        once.caption += f"; compiled in {program.compile_seconds:.0f} s on this machine"
        console.print(once)
        if program.turn:
            console.print(table.kernels(f"{title}: a token", program.turn))
