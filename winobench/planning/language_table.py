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
        console.print(table.times(plans, ("reading", "writing", "loading", "compiling")))
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


def _memory(plan: LanguagePlan, batch: Batches) -> Table:
    # Those of options need not be there for all layers at once.
    stored = min(batch.cache + batch.prefix_cache, batch.resident)
    parts = {"weights": plan.weights, "keys and values": stored, "other temporaries": batch.resident - stored}
    parts["sum"] = plan.weights + batch.resident
    title = f"{plan.target}: {batch.asked.name}: memory of a device, GB"
    return table.memory(title, parts, plan.usable)


def _print_kernels(plan: LanguagePlan, batch: Batches, console: Console) -> None:
    for program in filter(None, (batch.reading, batch.answering)):
        console.print(table.program(plan.target, program, ": what runs once" if program.turn else ""))
        if program.turn:
            title = f"{plan.target}: {program.name}, {program.items} x {program.noun}: a token"
            console.print(table.kernels(title, program.turn))
