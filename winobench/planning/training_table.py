"""Plans of fine-tuning as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from winobench.planning import table
from winobench.planning.training_plan import TrainingPlan


def print_plans(plans: Sequence[TrainingPlan], *, details: bool, console: Console | None = None) -> None:
    """Prints a row for each plan; with details, each step's memory and kernels as well."""
    console = console or Console()
    console.print(_overview(plans))
    for plan in plans if details else ():
        if plan.step:
            console.print(table.program(plan.target, plan.step))


def _overview(plans: Sequence[TrainingPlan]) -> Table:
    found = Table(
        title="GB of a device; rows of a step, and its micro-batches. By the compilers' figures: nothing was measured",
        box=box.SIMPLE,
        title_justify="left",
        caption="state: networks, adapters and moments; more: what the step needs beside them",
        caption_justify="left",
        collapse_padding=True,
    )
    found.add_column("devices", no_wrap=True)
    has_price = any(plan.price is not None for plan in plans)
    names = ("state", "more", "sum", "of", "rows", "micro", "s a step", "time")
    for name in (*names, *["dollars"] * has_price):
        found.add_column(name, justify="right")
    for plan in plans:
        row = [plan.target, table.gigabytes(plan.state)]
        if plan.step is None:
            found.add_row(*row, "does not fit", "", table.gigabytes(plan.usable))
            continue
        row += [table.gigabytes(plan.total - plan.state)]
        row += [table.gigabytes(plan.total), table.gigabytes(plan.usable)]
        row += [f"{plan.batch_size}", f"{plan.accumulate}", f"{plan.step.seconds:.2f}"]
        for duration in plan.durations:
            row.append(table.shown_time(duration.total))
            if plan.price is not None:
                row.append(f"{duration.total / 3600 * duration.devices * plan.price:,.2f}")
        found.add_row(*row)
    return found
