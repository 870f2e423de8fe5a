"""Weights of timesteps, learned from the runs' own errors, and their effect on other examples."""

from __future__ import annotations

import itertools
from typing import Any

from winobench.base.errors import InputError
from winobench.contrib.learned_weights import learning
from winobench.report.cells import Cell, Table, TableRow
from winobench.report.sections.shared import Details, ReportData, Section
from winobench.report.wording import number, percent, readable
from winobench.runs.labels import task_label


def learned_weights_section(report_data: ReportData) -> Section:
    """Uniform and learned weights of timesteps side by side, on the half of the examples that was not learned from."""
    rows: list[TableRow] = []
    folds, notes, records = [], [], []
    for run in report_data.runs:
        try:
            learned = learning.learn(run)
        except InputError as error:
            notes.append(f"{run.label}: {error}.")
            continue
        path = learning.write(run, learned)
        rows.append(TableRow([Cell(run.label, f"learned from {learned.num_questions:,} questions")], heading=True))
        rows += [_row(judged) for judged in learned.judged]
        records += [_record(run.label, judged) for judged in learned.judged]
        folds.append(Details(f"Weights of {run.label}, in {path}", tables=[_weights(learned)]))
    section = Section(
        "learned_weights",
        "Learned weights of timesteps",
        [
            "How much each timestep counts, learned from half of the examples by multinomial logistic regression and "
            "judged on the other half (questions about one image are on one side). Percent, and the paired difference "
            "with its 95% interval. Give the file below to --sampling.timestep_weights to score with it."
        ],
        folds=folds,
        notes=notes,
    )
    if rows:
        section.tables.append(Table(["task and metric", "uniform", "learned", "difference", "examples"], rows))
    if records:
        section.records["learned_weights.csv"] = records
    return section


def _row(judged: learning.Judged) -> TableRow:
    difference = judged.difference
    interval = f"{percent(difference.low, sign=True)} to {percent(difference.high, sign=True)}"
    return TableRow(
        [
            Cell(f"{task_label(judged.task)}, {readable(difference.name)}"),
            Cell(percent(judged.uniform)),
            Cell(percent(judged.learned)),
            Cell(percent(difference.value, sign=True), interval),
            Cell(f"{difference.num_examples:,}"),
        ]
    )


def _record(run: str, judged: learning.Judged) -> dict[str, Any]:
    difference = judged.difference
    return {
        "run": run,
        "task": judged.task,
        "metric": difference.name,
        "uniform": judged.uniform,
        "learned": judged.learned,
        "difference": difference.value,
        "low": difference.low,
        "high": difference.high,
        "n": difference.num_examples,
    }


def _weights(learned: learning.Learned) -> Table:
    edges = learned.curve.edges
    names = [f"below {edges[0]:g}"] if edges else ["all"]
    names += [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
    names += [f"from {edges[-1]:g}"] if edges else []
    rows = [
        TableRow([Cell(name), Cell(number(value))]) for name, value in zip(names, learned.curve.weights, strict=True)
    ]
    return Table(["timestep or noise level", "weight"], rows)
