"""Plans of language models that see as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from winobench.planning import table
from winobench.planning.compiling import Compiled
from winobench.planning.vision_language_plan import VisionLanguagePlan


def print_plans(plans: Sequence[VisionLanguagePlan], *, details: bool, console: Console | None = None) -> None:
    """Prints a row for each kind of device, and the time; with details, memory and kernels as well."""
    console = console or Console()
    console.print(_overview(plans))
    if any(plan.durations for plan in plans):
        console.print(table.times(plans, ("seeing", "scoring", "loading", "compiling")))
    if not details:
        return
    for plan in plans:
        console.print(_memory(plan))
        for program in filter(None, (plan.images, plan.pairs)):
            console.print(table.program(f"{plan.target}, {plan.model}", program))


def _overview(plans: Sequence[VisionLanguagePlan]) -> Table:
    found = Table(
        title=f"{plans[0].model}, VQAScore: memory of a device, all else of all devices together",
        caption="By the compilers' figures: nothing was measured",
        box=box.SIMPLE,
        title_justify="left",
        caption_justify="left",
        collapse_padding=True,
    )
    found.add_column("devices", no_wrap=True)
    for name in ("share a copy", "memory, GB", "images at once", "images/s", "pairs at once", "pairs/s"):
        found.add_column(name, justify="right", no_wrap=name == "memory, GB")
    for plan in plans:
        row = [plan.target, f"{plan.model_parallel}"]
        row.append(f"{table.gigabytes(plan.total)} of {table.gigabytes(plan.usable)}")
        if not plan.fits:
            found.add_row(*row, "does not fit")
            continue
        for each in (plan.images, plan.pairs):
            row += [f"{each.items * plan.copies}", _rate(plan, each)]
        found.add_row(*row)
    return found


def _rate(plan: VisionLanguagePlan, program: Compiled) -> str:
    rate = plan.per_second(program)
    return f"{rate:,.0f}" if rate >= 10 else f"{rate:.2g}"


def _memory(plan: VisionLanguagePlan) -> Table:
    parts = {"weights": plan.weights, f"tables, {plan.rows} images": plan.table}
    for each in filter(None, (plan.images, plan.pairs)):
        parts[f"temporaries, {each.name}"] = each.temporaries
    parts["at most, with images on their way into the table"] = plan.total
    return table.memory(f"{plan.target}, {plan.model}: memory of a device, GB", parts, plan.usable)
