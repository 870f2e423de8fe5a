"""Plans of pictures as tables in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table

from winobench.planning import table
from winobench.planning.drawing_plan import Drawer, DrawingPlan


def print_plans(plans: Sequence[DrawingPlan], *, details: bool, console: Console | None = None) -> None:
    """Prints a row for each model on each kind of device, and the time; with details, memory and kernels as well."""
    console = console or Console()
    console.print(_overview(plans))
    if any(plan.durations for plan in plans):
        names = ("texts", "drawing", "decoding", "loading", "compiling")
        console.print(table.times(plans, names))
    if not details:
        return
    for plan in plans:
        for each in plan.drawers:
            console.print(_memory(plan, each))
            for program in each.programs:
                console.print(table.program(f"{plan.target}, {each.model}", program))


def _overview(plans: Sequence[DrawingPlan]) -> Table:
    found = Table(
        title="Of a device; TFLOP, GB moved, seconds of a picture. By compilers' figures, not measured",
        box=box.SIMPLE,
        title_justify="left",
        collapse_padding=True,
    )
    found.add_column("model", overflow="fold")
    found.add_column("devices", no_wrap=True)
    for name in ("memory, GB", "at once", "TFLOP", "GB", "s", "pictures/s"):
        found.add_column(name, justify="right")
    for plan in plans:
        for each in plan.drawers:
            row = [each.model, plan.target, f"{table.gigabytes(each.total)} of {table.gigabytes(plan.usable)}"]
            if not each.batch:
                found.add_row(*row, "does not fit")
                continue
            row += [f"{each.batch}", f"{each.each_picture('operations') / 1e12:.1f}"]
            row += [f"{each.each_picture('bytes') / 1e9:.1f}", f"{1 / each.pictures_per_second:.3g}"]
            found.add_row(*row, f"{each.pictures_per_second:.3g}")
    return found


def _memory(plan: DrawingPlan, drawer: Drawer) -> Table:
    parts = {**drawer.weights, "texts, latents, pictures": drawer.others, "temporaries, at most": drawer.temporaries}
    parts["at most, encoders or denoiser" if drawer.staged else "sum"] = drawer.total
    return table.memory(f"{plan.target}, {drawer.model}: memory of a device, GB", parts, plan.usable)
