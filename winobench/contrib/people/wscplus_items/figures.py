"""The paper's figures on items: validity by model, prompt, batch, type and repeat, and the composition of a file."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from winobench.base import csv_cells, files
from winobench.contrib.people.wscplus_items import prompts, validity
from winobench.contrib.people.wscplus_items.annotate import INVALID, SEMI_VALID, VALID
from winobench.contrib.people.wscplus_items.validity import REFUSED_BY_CHECKS, Spread
from winobench.data import wscplus
from winobench.report.figures import COLOURS, GRID, INK, ON_COLOUR, Margins, Mark, Panel
from winobench.report.panels import to_png
from winobench.report.sections import wscplus as section
from winobench.runs.labels import shortened

_COLOURS = {VALID: COLOURS[0], SEMI_VALID: COLOURS[4], INVALID: COLOURS[1], REFUSED_BY_CHECKS: GRID}
_NAMES = {REFUSED_BY_CHECKS: "refused by checks"}
_SHORT = {"cot": "CoT", "tot": "ToT", "coe": "CoE", "toe": "ToE", "wdq": "WDQ", "wiq": "WIQ"}

# Of a bar too short for its number, in percent of the whole.
_SHORTEST_LABELLED = 6
_NAME_LETTERS = 28


def write_by_model(spreads: Sequence[Spread], folder: pathlib.Path, *, offensive: bool = False) -> list[str]:
    """Figure 2: ``validity_by_model.png`` and ``.csv``."""
    table = validity.rows(spreads, ["model"])
    title = "Validity by generating model" + (", offensive questions included" if offensive else "")
    return _write("validity_by_model", title, spreads, lambda name: name[0], table, folder)


def write_by_prompt(spreads: Sequence[Spread], folder: pathlib.Path) -> list[str]:
    """Figure 3: ``validity_by_prompt.png`` and ``.csv``.

    The paper's share of valid items is next to the templates for which its text states one. It does not part queries.
    """
    table = validity.rows(
        spreads,
        ["template", "query"],
        template_name=lambda spread: prompts.templates()[spread.name[0]]["name"],
        paper_valid_share=lambda spread: validity.PAPER_VALID.get(spread.name[0], ""),
    )
    return _write(
        "validity_by_prompt",
        "Validity by template and query, traditional pairs",
        spreads,
        lambda name: ", ".join(_SHORT[part] for part in name),
        table,
        folder,
        [validity.PAPER_VALID.get(spread.name[0]) for spread in spreads],
    )


def write_by_batch(spreads: Sequence[Spread], folder: pathlib.Path) -> list[str]:
    """Figure 12: ``validity_by_batch.png`` and ``.csv``."""
    table = validity.rows(spreads, ["batch"])
    title = "Validity by pairs a request, without duplicates"
    return _write("validity_by_batch", title, spreads, lambda name: f"{name[0]} a request", table, folder)


def write_by_type(spreads: Sequence[Spread], folder: pathlib.Path) -> list[str]:
    """Figure 13: ``validity_by_type.png`` and ``.csv``."""
    table = validity.rows(spreads, ["type", "model"])
    return _write("validity_by_type", "Validity by type and generating model", spreads, ", ".join, table, folder)


def write_by_repeat(spreads: Sequence[Spread], folder: pathlib.Path) -> list[str]:
    """Figure 14: ``validity_by_repeat.png`` and ``.csv``. Of one model, the title says how much valid shares vary."""
    table = validity.rows(spreads, ["model", "repeat"])
    title = "Validity by repeat, without duplicates"
    if len({one.name[0] for one in spreads}) == 1:
        shares = [100 * one.share(VALID) for one in spreads]
        title = f"Validity by repeat: {np.mean(shares):.1f}% valid, standard deviation {np.std(shares, ddof=1):.1f}"
    return _write("validity_by_repeat", title, spreads, lambda name: f"{name[0]}, {name[1]}", table, folder)


def write_composition(items: Sequence[wscplus.Item], folder: pathlib.Path) -> list[str]:
    """Figures 4 and 10 of a file: ``pronouns.png``, ``types_by_model.png``, and a CSV file of each."""
    pronouns = wscplus.pronoun_counts(item.pronoun for item in items)
    types = wscplus.types_by_generator(items)
    drawn = {
        "pronouns": (section.pronoun_panel("Pronouns (Figure 4)", pronouns), section.pronoun_rows(pronouns)),
    }
    if any(types.values()):
        panel = section.type_panel("Items by type and model (Figure 10)", types)
        drawn["types_by_model"] = (panel, section.type_rows(types))
    for name, (panel, rows) in drawn.items():
        write_table(rows, folder / f"{name}.csv")
        legend = section.PRONOUN_MARKS if name == "pronouns" else ()
        with files.atomic_path(folder / f"{name}.png") as temporary:
            _save([panel], legend, temporary)
    return [f"{name}{suffix}" for name in drawn for suffix in (".png", ".csv")]


def write_table(rows: Sequence[Mapping[str, Any]], path: pathlib.Path) -> None:
    """Writes a CSV file with a row a group, whole or not at all."""
    files.write_text(path, csv_cells.write_rows(list(rows[0]), rows, line_end="\n"))


def _write(
    name: str,
    title: str,
    spreads: Sequence[Spread],
    label: Callable[[tuple[str, ...]], str],
    table: Sequence[Mapping[str, Any]],
    folder: pathlib.Path,
    paper: Sequence[float | None] = (),
) -> list[str]:
    write_table(table, folder / f"{name}.csv")
    labels = [f"{shortened(label(spread.name), _NAME_LETTERS)} ({spread.n:,})" for spread in spreads]
    longest = max(map(len, labels))
    panel = Panel(
        title,
        lambda axes: _draw(axes, spreads, labels, paper),
        width=5.2 + 0.075 * longest,
        height=0.62 + 0.34 * len(spreads),
        description=f"{title}: {'; '.join(labels)}",
        margins=Margins(left=0.3 + 0.075 * longest, right=0.2, top=0.06, bottom=0.36),
    )
    legend = [Mark(_NAMES.get(outcome, outcome), _COLOURS[outcome], "s", "none") for outcome in validity.OUTCOMES]
    if any(value is not None for value in paper):
        legend.append(Mark("valid, paper (Claude 2)", INK, "D", "none"))
    with files.atomic_path(folder / f"{name}.png") as temporary:
        _save([panel], legend, temporary)
    return [f"{name}.png", f"{name}.csv"]


def _save(panels: Sequence[Panel], legend: Sequence[Mark], temporary: str) -> None:
    """Writes the image under a name with the format's suffix, which the temporary one lacks."""
    path = pathlib.Path(f"{temporary}.png")
    try:
        to_png(panels, path, legend=legend, columns=1)
        path.replace(temporary)
    finally:
        path.unlink(missing_ok=True)


def _draw(axes: Axes, spreads: Sequence[Spread], labels: Sequence[str], paper: Sequence[float | None]) -> None:
    """A stacked bar a group."""
    for row, spread in enumerate(spreads):
        left = 0.0
        for outcome in validity.OUTCOMES:
            percent = 100 * spread.share(outcome)
            axes.barh(-row, percent, left=left, height=0.66, color=_COLOURS[outcome])
            if percent >= _SHORTEST_LABELLED:
                ink = INK if outcome in (REFUSED_BY_CHECKS, SEMI_VALID) else ON_COLOUR
                axes.text(left + percent / 2, -row, f"{percent:.0f}", ha="center", va="center", fontsize=8, color=ink)
            left += percent
    for row, value in enumerate(paper):
        if value is not None:
            axes.plot(100 * value, -row + 0.33, marker="D", markersize=5, color=INK, linestyle="none", clip_on=False)
    axes.set_yticks([-row for row in range(len(labels))], labels)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 100)
    axes.set_ylim(-len(spreads) + 0.5, 0.55)
    axes.grid(False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}%"))
