"""Agreement with people: how well scores rank images that people have rated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report import figures, published
from winobench.report.cells import ABSENT, PROPORTION_COLUMNS, Cell, Table, TableRow, drawn_values
from winobench.report.figures import Panel
from winobench.report.sections.shared import ReportData, Section, sub_task_folds
from winobench.report.wording import number, readable, spread_of
from winobench.runs.labels import task_label

_DIGITS = 3


def people_section(report_data: ReportData) -> Section | None:
    """Accuracies and correlations with their intervals, and the forest plot."""
    tasks = [task for task in report_data.tasks if report_data.is_rated(task)]
    if not tasks:
        return None
    section = Section(
        "people",
        "Agreement with people",
        [
            "Do scores rank images as people do? Pairwise accuracy: the share of pairs of images, of any "
            "prompts, in whose order scores and ratings agree. Scores that differ by no more than a threshold are a "
            "tie. It is the one that suits these images best (Deutsch et al. 2023). Kendall's tau, Pearson's and "
            "Spearman's correlation are of the same images. Logistic Pearson fits a logistic function to the scores "
            "first. Measures within prompts compare images of one prompt only. Preference accuracy: the share of pairs "
            "of which people prefer one in which its score is higher. AUROC, best accuracy and element accuracy: "
            "people's yes or no. Mean average precision: images that show a text rank before the others of that text. "
            "Intervals (95%) are from a bootstrap over prompts.",
            "A diffusion model's score is minus its error under the prompt less that under the empty text, unless the "
            "run states otherwise.",
        ],
        legend=report_data.legend,
    )
    columns = ["measure", *range(len(report_data.runs)), "chance", "pictures"]
    parts: dict[str, list[TableRow]] = {}
    rows = []
    for task in tasks:
        main, shown = [], []
        for name in report_data.names(task):
            group, _, measure = name.rpartition("/")
            paper_value = _paper_says(report_data, task, name)
            cells = _cells(report_data, task, name)
            if group:
                parts.setdefault(task, []).append(TableRow(cells))
            else:
                main.append(TableRow([*cells, Cell(paper_value, style="paper")]))
                shown.append(name)
            called = {"measure": measure, "group": group}
            rows += report_data.csv_rows(task, name, called, PROPORTION_COLUMNS, paper=paper_value)
        section.tables.append(Table([*columns, "paper"], main, task_label(task)))
        section.panels.append(_panel(report_data, task, shown))
    section.folds = sub_task_folds(columns, parts)
    section.records = {"people.csv": rows}
    section.images = {"people.png": (section.panels, section.legend, 2)}
    return section


def _cells(report_data: ReportData, task: str, name: str) -> list[Cell]:
    group, _, measure = name.rpartition("/")
    entries = report_data.entries(task, name)
    known = [entry for entry in entries if entry]
    # It depends on ties among ratings, so that runs of other images have other levels.
    chances = {entry["chance"] for entry in known if entry["chance"] is not None}
    prompts = f"{spread_of({entry['prompts'] for entry in known})} prompts"
    return [
        Cell(readable(group or measure), readable(measure) if group else ""),
        *map(_value, entries),
        Cell(spread_of(chances, lambda chance: number(chance, _DIGITS))),
        Cell(spread_of({entry["n"] for entry in known}), prompts),
    ]


def _value(entry: Mapping[str, Any] | None) -> Cell:
    if not entry:
        return ABSENT
    interval = " to ".join(number(entry[key], _DIGITS) for key in ("low", "high"))
    threshold = entry.get("threshold")
    below = "" if threshold is None else f"threshold {threshold:.3g}"
    return Cell(number(entry["value"], _DIGITS), interval, "value", below=below)


def _paper_says(report_data: ReportData, task: str, name: str) -> str:
    quoted = published.numbers_of_runs(report_data.runs, task, name)
    return "; ".join(
        f"{number(other.value, _DIGITS)} {published.citation(other)}" + (f" ({other.note})" if other.note else "")
        for other in quoted
    )


def _panel(report_data: ReportData, task: str, names: Sequence[str]) -> Panel:
    series = [
        (mark, drawn_values([record.results.get(name) for name in names]))
        for mark, record in zip(report_data.marks, report_data.records(task), strict=True)
        if record is not None
    ]
    labels = [readable(name) for name in names]
    no_stars = np.zeros((len(series), len(names)), bool)
    description = f"Forest plot of the agreement with people of {task_label(task)}"
    return figures.forest_panel(task_label(task), labels, series, no_stars, "agreement (95% interval)", description)
