"""Bias: effect sizes with p-values, the groups behind them, and the forest plot."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench import metrics
from winobench.data.published_numbers import PublishedNumber
from winobench.report import figures, published
from winobench.report.cells import ABSENT, NUMBER_COLUMNS, Cell, Table, TableRow, drawn_values
from winobench.report.figures import Panel
from winobench.report.sections.shared import Details, ReportData, Section
from winobench.report.wording import number, probability, readable, spread_of
from winobench.runs.labels import task_label
from winobench.runs.run import TaskRun
from winobench.runs.run_tables import few_mark

STARS_BELOW = 0.01  # one-sided p-value of an effect size with a star (paper, Tables 3 and 5)
_TABLES = ("3", "5")
_COLUMNS = (*NUMBER_COLUMNS, "too_few")


def bias_section(report_data: ReportData) -> Section | None:
    """Effect sizes, p-values, groups and the forest plot (Tables 3 and 5)."""
    tasks = [task for task in report_data.tasks if report_data.has_bias(task)]
    if not tasks:
        return None
    section = Section(
        "bias",
        "Bias",
        [
            "Effect size d of how much more the first of two groups of images is associated with one set of texts than "
            "with another (MMBias: pleasant rather than unpleasant ones): positive towards the first group, negative "
            "towards the second, 0 is none. Intervals (95%) are from a "
            "bootstrap over images, widened where associations are skewed. “n too small” means that a group has fewer "
            "than ten images, or that some lie far from the others. Such intervals miss the truth more often. Below "
            "stand the one-sided and the two-sided p-value of a permutation test of equal means, whose statistic is "
            "Welch's t. A star, "
            f"as in the paper's tables, marks a one-sided p under {STARS_BELOW:g}, which looks towards the first group "
            "only: a large negative effect size gets none, and its two-sided p tells. A star knows nothing of the "
            "other pairs: of models without any bias, one in ten has one among ten pairs. A dagger † says that p stays "
            f"under {STARS_BELOW:g} after Holm's adjustment for all pairs of the task.",
            "A large effect size is evidence of bias. A small one is not a proof of fairness.",
        ],
        legend=report_data.legend,
    )
    rows, group_rows = [], []
    for task in tasks:
        pairs, totals, groups = _names(report_data, task)
        section.tables.append(_effect_table(report_data, task, pairs, totals))
        section.notes += _notes(report_data, task, totals)
        rows += _effect_rows(report_data, task, [*pairs, *totals])
        if groups:
            section.folds.append(_group_fold(report_data, task, groups))
            group_rows += [
                row for name in groups for row in report_data.csv_rows(task, name, {"group": name}, _COLUMNS)
            ]
        if pairs:
            section.panels.append(_forest_panel(report_data, task, pairs))
    section.records = {"bias.csv": rows} | ({"bias_groups.csv": group_rows} if group_rows else {})
    if section.panels:
        section.images = {"bias.png": (section.panels, section.legend, 2)}
    return section


def _names(report_data: ReportData, task: str) -> tuple[list[str], list[str], list[str]]:
    """The rows of a task's results: pairs of groups, averages over these, and groups."""
    names = report_data.names(task)
    pairs = [name for name in names if any("p_one_sided" in (entry or ()) for entry in report_data.entries(task, name))]
    groups = [name for name in names if "/" in name]
    return pairs, [name for name in names if name not in pairs and name not in groups], groups


def _effect_table(report_data: ReportData, task: str, pairs: Sequence[str], totals: Sequence[str]) -> Table:
    models = published.columns(_TABLES, task)
    families = [_adjusted(record) for record in report_data.records(task)]
    lines, permutations = [], set()
    for name in [*pairs, *totals]:
        entries = report_data.entries(task, name)
        label = Cell(readable(name), style="strong") if name in totals else Cell(_pair_label(name))
        effects = [_effect(entry, family.get(name)) for entry, family in zip(entries, families, strict=True)]
        quoted = [_quoted(published.cell(_TABLES, task, name, model)) for model in models]
        lines.append(TableRow([label, *effects, *quoted]))
        permutations |= {entry["permutations"] for entry in entries if entry and entry.get("permutations") is not None}
    counts = ", ".join(f"{count:,}" for count in sorted(permutations))
    columns = ["first / second group", *range(len(report_data.runs)), *(f"{model} (paper)" for model in models)]
    return Table(columns, lines, f"{task_label(task)}. Permutations a pair: {counts}.")


def _effect_rows(report_data: ReportData, task: str, names: Sequence[str]) -> list[dict[str, Any]]:
    models = published.columns(_TABLES, task)
    families = [_adjusted(record) for record in report_data.records(task)]
    rows = []
    for name in names:
        quoted = [(model, published.cell(_TABLES, task, name, model)) for model in models]
        printed = "; ".join(f"{other.printed} {model}" for model, other in quoted if other is not None)
        for run, entry, family in zip(report_data.runs, report_data.entries(task, name), families, strict=True):
            if entry:
                p_values = {key: entry.get(key) for key in ("p_one_sided", "p_two_sided", "permutations")}
                row = {"run": run.label, "task": task, "pair": name, **{key: entry.get(key) for key in _COLUMNS}}
                row |= {**p_values, "star": is_starred(entry), "p_one_sided_holm": family.get(name), "paper": printed}
                rows.append(row)
    return rows


def _notes(report_data: ReportData, task: str, totals: Sequence[str]) -> list[str]:
    """Left-out pairs, and the averages without any bias."""
    notes = []
    unbiased: dict[str, list[str]] = {}
    for run, record in zip(report_data.runs, report_data.records(task), strict=True):
        for entry in (record.results.get(name, {}) if record else {} for name in totals):
            if entry.get("without_bias") is not None:
                unbiased.setdefault(number(entry["without_bias"]), []).append(run.label)
            for pair, reason in (entry.get("left_out") or {}).items():
                notes.append(f"{task_label(task)}, {run.label}: {pair} is left out, {reason}.")
    shown = set(report_data.names(task))
    for note, metrics_of in published.notes(_TABLES, task).items():
        if names := [readable(name) for name in metrics_of if name in shown]:
            whose = "The paper's numbers of" if len(names) > 1 else "The paper's number of"
            notes.append(f"{task_label(task)}: {whose} {' and '.join(names)}: {note}. Ours follow Eq. 8.")
    for value, labels in unbiased.items():
        whose = f" ({', '.join(labels)})" if len(unbiased) > 1 else ""
        notes.append(
            f"{task_label(task)}: even without any bias, groups of these sizes would give an average absolute "
            f"effect size of {value}{whose}."
        )
    return notes


def _group_fold(report_data: ReportData, task: str, groups: Sequence[str]) -> Details:
    lines = []
    for name in groups:
        entries = report_data.entries(task, name)
        group, _, measure = name.rpartition("/")
        images = Cell(spread_of({entry["n"] for entry in entries if entry}))
        label = Cell(group, measure.removeprefix("association").strip())
        lines.append(TableRow([label, *map(_association, entries), images]))
    what = "mean over a group's images of their score with the first texts less that with the second"
    table = Table(["group", *range(len(report_data.runs)), "images"], lines, f"The {what}, 95% interval.")
    return Details(f"Groups of {task_label(task)}", tables=[table])


def is_starred(entry: Mapping[str, Any]) -> bool:
    """Whether an effect size has the paper's star."""
    return entry.get("p_one_sided") is not None and entry["p_one_sided"] < STARS_BELOW


def _adjusted(record: TaskRun | None) -> dict[str, float]:
    """Pair -> its one-sided p-value, adjusted for all pairs of the task."""
    results = record.results if record else {}
    found = {name: entry["p_one_sided"] for name, entry in results.items() if entry.get("p_one_sided") is not None}
    return dict(zip(found, metrics.family_wise(found.values()), strict=True))


def _effect(entry: Mapping[str, Any] | None, p_adjusted: float | None) -> Cell:
    if not entry:
        return ABSENT
    text = _starred(entry["value"], is_starred(entry))
    if p_adjusted is not None and p_adjusted < STARS_BELOW:
        text += "†"
    below = ""
    if entry.get("p_one_sided") is not None:
        below = f"p {probability(entry['p_one_sided'])}; {probability(entry['p_two_sided'])}"
    return Cell(text, f"{number(entry['low'])} to {number(entry['high'])}{few_mark(entry)}", "value", below=below)


def _quoted(other: PublishedNumber | None) -> Cell:
    return Cell("" if other is None else _starred(other.value, other.significant), style="paper")


def _starred(value: float, star: bool | None) -> str:
    return number(value) + ("★" if star else "")


def _association(entry: Mapping[str, Any] | None) -> Cell:
    if not entry:
        return ABSENT
    # Errors are sums over latents and cosines are not: three digits that matter, at any scale.
    digits = max(0, 2 - math.floor(math.log10(max(abs(entry["value"]), 1e-9))))
    text = " to ".join(number(entry[key], digits) for key in ("low", "high")) + few_mark(entry)
    return Cell(number(entry["value"], digits), text, "value")


def _pair_label(name: str) -> str:
    """``Christian-Muslim`` as two names. Names of other forms stay."""
    return name.replace("-", " / ") if re.fullmatch(r"\w+-\w+", name) else readable(name)


def _forest_panel(report_data: ReportData, task: str, pairs: Sequence[str]) -> Panel:
    series, stars = [], []
    for mark, record in zip(report_data.marks, report_data.records(task), strict=True):
        if record is None:
            continue
        entries = [record.results.get(name) for name in pairs]
        series.append((mark, drawn_values(entries)))
        stars.append([entry is not None and is_starred(entry) for entry in entries])
    labels = [_pair_label(name) for name in pairs]
    description = f"Forest plot of the effect sizes of {task_label(task)}"
    span = "effect size d (95% interval)"
    return figures.forest_panel(task_label(task), labels, series, np.array(stars), span, description)
