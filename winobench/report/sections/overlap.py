"""Overlap of right answers: which examples several runs have right."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np

from winobench.report import analysis, figures
from winobench.report.figures import Margins, Mark, Panel
from winobench.report.labels import task_label
from winobench.report.runs import TaskRun
from winobench.report.sections.shared import (
    FEWEST_EXAMPLES,
    SHOWN_PANELS,
    Cell,
    Fold,
    Material,
    Section,
    Table,
    TableRow,
    folded,
    listed,
    number,
    percent,
)

_MOST_SETS = 8


def overlap_section(material: Material) -> Section | None:
    """Which examples two runs both have right (Figure 8)."""
    if len(material.runs) < 2:
        return None
    marks = material.marks
    panels, sets, lines, rows, set_rows, few = [], [], [], [], [], []
    for task in material.tasks:
        if material.has_bias(task):
            continue
        bars = []
        for first, second in itertools.combinations(range(len(material.runs)), 2):
            one, other = material.runs[first].tasks.get(task), material.runs[second].tasks.get(task)
            if one is None or other is None:
                continue
            in_one, in_other = analysis.shared_rows(one, other)
            if not len(in_one):
                continue
            found = analysis.overlap(one.examples.correct[in_one], other.examples.correct[in_other])
            shares = (found.both, found.only_first, found.only_second, found.neither)
            bars.append((marks[first], marks[second], shares, found.expected_both))
            kappa = "undefined" if found.kappa is None else number(found.kappa)
            lines.append(
                TableRow(
                    [
                        Cell(task_label(task), f"{marks[first].label} / {marks[second].label}"),
                        *(Cell(percent(share)) for share in shares),
                        Cell(percent(found.expected_both)),
                        Cell(kappa),
                        Cell(f"{found.num_examples:,}"),
                    ]
                )
            )
            rows.append(
                {
                    "task": task,
                    "first": marks[first].label,
                    "second": marks[second].label,
                    **{key: value for key, value in dataclasses.asdict(found).items() if key != "num_examples"},
                    "n": found.num_examples,
                }
            )
        if not bars:
            continue
        if max(row["n"] for row in rows[-len(bars) :]) < FEWEST_EXAMPLES:
            few.append(task)
            continue
        panels.append((task, _overlap_panel(task, bars)))
        asked = [record for record in material.records(task) if record is not None and record.examples is not None]
        if len(material.runs) >= 3 and len(asked) == len(material.runs):
            correct = _common_answers(asked)
            if correct.shape[1] >= FEWEST_EXAMPLES:
                found_sets = analysis.right_sets(correct)
                sets.append(_sets_panel(material, task, found_sets, correct.shape[1]))
                for pattern, count in found_sets:
                    right = [mark.label for mark, is_right in zip(marks, pattern, strict=True) if is_right]
                    set_rows.append(
                        {
                            "task": task,
                            "right": "; ".join(right) or "none",
                            "examples": count,
                            "share": count / correct.shape[1],
                        }
                    )
    if not lines:
        return None
    columns = [
        "task, first / second",
        "both",
        "only first",
        "only second",
        "neither",
        "both, expected",
        "kappa",
        "examples",
    ]
    legend = [
        Mark("both right", figures.BOTH, "s", figures.NO_LINE),
        *(dataclasses.replace(mark, label=f"only {mark.label}", dash=figures.NO_LINE) for mark in marks),
        Mark("neither", figures.GRID, "s", figures.NO_LINE),
    ]
    shown, folds = folded(panels)
    section = Section(
        "overlap",
        "Overlap of right answers",
        [
            "Of the examples that two runs, whose markers stand before each bar, have both answered: share that both "
            "have right, only the one (in its colour), only the other, and neither. The tick is the share of "
            "both right that independent answers would give; where the dark bar ends beyond it, the runs succeed on "
            "the same examples. Cohen's kappa is 0 under independence and 1 where they agree everywhere.",
        ],
        legend=legend if panels else [],
        panels=shown,
        folds=folds,
        records={"overlap.csv": rows},
    )
    if panels:
        section.pictures["overlap.png"] = ([panel for _, panel in panels], legend, 3)
    if few:
        section.notes.append(
            f"No figures, as two runs have answered fewer than {FEWEST_EXAMPLES} examples of them: {listed(few)}."
        )
    if sets:
        is_open = len(sets) <= SHOWN_PANELS // 2
        section.folds.append(Fold("Examples that exactly these runs have right", panels=sets, is_open=is_open))
        section.records["right_sets.csv"] = set_rows
        section.pictures["right_sets.png"] = (
            sets,
            [dataclasses.replace(mark, dash=figures.NO_LINE) for mark in marks],
            3,
        )
    section.folds.append(Fold("The numbers", tables=[Table(columns, lines)]))
    return section


def _common_answers(records: Sequence[TaskRun]) -> np.ndarray:
    """[runs, n] bool: right or wrong, over the examples that all of them were asked."""
    places = [{record.examples.key(row): row for row in range(len(record.examples.ids))} for record in records]
    keys = [key for key in places[0] if all(key in other for other in places[1:])]
    return np.array(
        [[record.examples.correct[place[key]] for key in keys] for record, place in zip(records, places, strict=True)],
        bool,
    ).reshape(len(records), len(keys))


def _overlap_panel(task: str, bars: Sequence[tuple]) -> Panel:
    return Panel(
        task_label(task),
        lambda axes: figures.overlap_bars(axes, bars),
        height=0.45 + 0.3 * len(bars),
        margins=Margins(left=0.5, right=0.25, top=0.05, bottom=0.28),
        description=f"{task_label(task)}: shares of examples that both runs, one of them, or neither has right",
    )


def _sets_panel(material: Material, task: str, sets: Sequence[tuple], total: int) -> Panel:
    shown = list(sets[:_MOST_SETS])
    return Panel(
        task_label(task),
        lambda axes: figures.set_bars(axes, material.marks, shown, total),
        height=0.1 + 0.27 * len(shown),
        margins=figures.NO_MARGINS,
        description=f"{task_label(task)}: number of examples that exactly the marked runs have right",
    )
