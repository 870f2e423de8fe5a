"""Overlap of right answers: which examples several runs have right."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report import analysis, figures
from winobench.report.cells import Cell, Table, TableRow
from winobench.report.figures import Margins, Mark, Panel
from winobench.report.sections.shared import FEWEST_EXAMPLES, SHOWN_PANELS, Details, ReportData, Section, collapsed
from winobench.report.wording import listed, number, percent
from winobench.runs.labels import task_label
from winobench.runs.run import TaskRun

_MOST_SETS = 8
# More runs than this are compared with the first one, in so many bars.
_MOST_PAIRED, _MOST_BARS = 12, 66

_Pair = tuple[Mark, Mark, analysis.Overlap]  # of two runs' right answers


def overlap_section(report_data: ReportData) -> Section | None:
    """The overlap of two runs' right answers (Figure 8)."""
    everything = {task: _overlaps(report_data, task) for task in report_data.tasks if report_data.has_answers(task)}
    everything = {task: overlaps for task, overlaps in everything.items() if overlaps}
    if not everything:
        return None
    sizes = {task: max(overlap.num_examples for *_, overlap in overlaps) for task, overlaps in everything.items()}
    few = [task for task, size in sizes.items() if size < FEWEST_EXAMPLES]
    charted = report_data.charted
    panels = [
        (task, _overlap_panel(task, overlaps))
        for task, overlaps in everything.items()
        if task not in few and task in charted
    ]
    legend = [
        Mark("both right", figures.BOTH, "s", figures.NO_LINE),
        *(dataclasses.replace(mark, label=f"only {mark.label}") for mark in report_data.dots),
        Mark("neither", figures.GRID, "s", figures.NO_LINE),
    ]
    shown, folds = collapsed(panels)
    section = Section(
        "overlap",
        "Overlap of right answers",
        [
            "Each bar is for two runs, whose markers are before it, and for the examples that both answered. Its parts "
            "are the shares that both have right, one alone (in its colour), and neither. The tick is the share of "
            "both right that independent answers would give. Where the dark bar ends beyond it, the runs succeed on "
            "the same examples. Cohen's kappa is 0 under independence and 1 where they agree everywhere."
        ],
        legend=legend if panels else [],
        panels=shown,
        folds=folds,
        records={"overlap.csv": _records(everything)},
    )
    if panels:
        section.images["overlap.png"] = ([panel for _, panel in panels], legend, 3)
    if few:
        section.notes.append(
            f"No figures, as two runs have answered fewer than {FEWEST_EXAMPLES} examples of them: {listed(few)}."
        )
    answers = {task: _common_answers(report_data.records(task)) for task, _ in panels if len(report_data.runs) >= 3}
    answers = {task: correct for task, correct in answers.items() if correct.shape[1] >= FEWEST_EXAMPLES}
    if answers:
        sets = [_sets_panel(report_data, task, correct) for task, correct in answers.items()]
        is_open = len(sets) <= SHOWN_PANELS // 2
        section.folds.append(Details("Examples that exactly these runs have right", panels=sets, is_open=is_open))
        section.records["right_sets.csv"] = _set_records(report_data, answers)
        section.images["right_sets.png"] = (sets, report_data.dots, 3)
    section.folds.append(Details("The numbers", tables=[_table(everything)]))
    return section


def _overlaps(report_data: ReportData, task: str) -> list[_Pair]:
    """The overlaps of all pairs of runs that have answered the same examples of a task."""
    overlaps = []
    marked = zip(report_data.marks, report_data.records(task), strict=True)
    answered = [(mark, record) for mark, record in marked if record is not None]
    pairs = list(itertools.combinations(answered, 2))
    if len(answered) > _MOST_PAIRED:
        pairs = [(answered[0], other_record) for other_record in answered[1:]]
    for (first, record), (second, other_record) in pairs:
        in_one, in_other = analysis.shared_rows(record, other_record)
        if len(in_one):
            overlap = analysis.overlap(record.answered.correct[in_one], other_record.answered.correct[in_other])
            overlaps.append((first, second, overlap))
    return overlaps


def _table(everything: Mapping[str, Sequence[_Pair]]) -> Table:
    shares = ["both", "only first", "only second", "neither", "both, expected"]
    rows = [
        TableRow(
            [
                Cell(task_label(task), f"{first.label} / {second.label}"),
                *(Cell(percent(share)) for share in (*overlap.shares, overlap.expected_both)),
                Cell("undefined" if overlap.kappa is None else number(overlap.kappa)),
                Cell(f"{overlap.num_examples:,}"),
            ]
        )
        for task, overlaps in everything.items()
        for first, second, overlap in overlaps
    ]
    return Table(["task, first / second", *shares, "kappa", "examples"], rows)


def _records(everything: Mapping[str, Sequence[_Pair]]) -> list[dict[str, Any]]:
    rows = []
    for task, found in everything.items():
        for first, second, overlap in found:
            values = dataclasses.asdict(overlap)
            count = values.pop("num_examples")
            rows.append({"task": task, "first": first.label, "second": second.label, **values, "n": count})
    return rows


def _set_records(report_data: ReportData, answers: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    rows = []
    for task, correct in answers.items():
        for pattern, count in analysis.right_sets(correct):
            right = "; ".join(run.label for run, is_right in zip(report_data.runs, pattern, strict=True) if is_right)
            share = count / correct.shape[1]
            rows.append({"task": task, "right": right or "none", "examples": count, "share": share})
    return rows


def _common_answers(records: Sequence[TaskRun | None]) -> np.ndarray:
    """[runs, n] bool: right or wrong, over the examples that all runs have answered."""
    answered = [record.examples for record in records if record is not None and record.examples is not None]
    if len(answered) < len(records):
        return np.zeros((len(records), 0), bool)
    places = [{examples.key(row): row for row in range(len(examples.ids))} for examples in answered]
    keys = [key for key in places[0] if all(key in other for other in places[1:])]
    rows = [[place[key] for key in keys] for place in places]
    return np.stack([examples.correct[np.array(own, int)] for examples, own in zip(answered, rows, strict=True)])


def _overlap_panel(task: str, found: Sequence[_Pair]) -> Panel:
    bars = [(first, second, overlap.shares, overlap.expected_both) for first, second, overlap in found[:_MOST_BARS]]
    return Panel(
        task_label(task),
        lambda axes: figures.overlap_bars(axes, bars),
        height=0.45 + 0.3 * len(bars),
        margins=Margins(left=0.5, right=0.25, top=0.05, bottom=0.28),
        description=f"{task_label(task)}: shares of examples that both runs, one of them, or neither has right",
    )


def _sets_panel(report_data: ReportData, task: str, correct: np.ndarray) -> Panel:
    shown = analysis.right_sets(correct)[:_MOST_SETS]
    return Panel(
        task_label(task),
        lambda axes: figures.set_bars(axes, report_data.marks, shown, correct.shape[1]),
        height=0.1 + 0.27 * len(shown),
        margins=figures.NO_MARGINS,
        description=f"{task_label(task)}: number of examples that exactly the marked runs have right",
    )
