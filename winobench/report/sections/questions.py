"""Questions that models got wrong, with what they answered, and a row a question and run in a CSV file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report.cells import ABSENT, Cell, Table, TableRow
from winobench.report.sections.shared import Details, ReportData, Section, most_first
from winobench.runs.examples import Questions
from winobench.runs.labels import shortened, task_label

_RESPONSE_LETTERS = 280


def questions_section(report_data: ReportData) -> Section | None:
    """Questions that some of the runs have wrong, those that most runs have wrong first."""
    if not report_data.examples:
        return None
    section = Section(
        "questions",
        "Wrong answers",
        [
            "Questions that at least one run has wrong, at random among those that most runs have wrong. ✓ and ✗ say "
            "whether the answer is right. What could not be read as an answer, and a tie, are wrong. Below stands what "
            "the model wrote, shortened. All questions are in the file next to this page."
        ],
    )
    rows = []
    for task in report_data.tasks:
        answered = [
            record.examples if record is not None and isinstance(record.examples, Questions) else None
            for record in report_data.records(task)
        ]
        places = [{} if some is None else {some.key(row): row for row in range(len(some.ids))} for some in answered]
        keys = list(dict.fromkeys(key for place in places for key in place))
        if not keys:
            continue
        wrong = np.array(
            [
                sum(
                    not some.correct[place[key]]
                    for some, place in zip(answered, places, strict=True)
                    if some is not None and key in place
                )
                for key in keys
            ]
        )
        chosen = [place for place in most_first(wrong, report_data.seed) if wrong[place]][: report_data.examples]
        if chosen:
            lines = [_line(keys[place], answered, places) for place in chosen]
            columns = ["question", "right answer", *range(len(report_data.runs))]
            title = f"{task_label(task)} ({len(chosen)} of {int((wrong > 0).sum()):,} that a run has wrong)"
            section.folds.append(Details(title, tables=[Table(columns, lines)]))
        for key in keys:
            rows += _records(report_data, task, key, answered, places)
    if not rows:
        return None
    section.records["questions.csv"] = rows
    if not section.folds:
        section.notes.append("There are none: all runs have all questions right.")
    return section


def text_of(named: Mapping[str, str]) -> str:
    """A question as people read it: the part of that name, or all parts."""
    return named.get("question", " / ".join(named.values()))


def _line(key: tuple, answered: Sequence[Questions | None], places: Sequence[Mapping[tuple, int]]) -> TableRow:
    some, row = next(
        (some, place[key]) for some, place in zip(answered, places, strict=True) if some is not None and key in place
    )
    options, target = some.options[row], some.targets[row]
    groups = ", ".join(some.groups[row])
    cells = [Cell(text_of(some.named[row]), below=groups), Cell(options[target])]
    for each, place in zip(answered, places, strict=True):
        if each is None or key not in place:
            cells.append(ABSENT)
            continue
        here = place[key]
        choice = each.choices[here]
        said = "no answer" if choice is None else each.options[here][choice]
        texts = [text for text in each.responses[here] if text]
        below = shortened(" ".join(texts[0].split()), _RESPONSE_LETTERS) if texts else ""
        cells.append(Cell(f"{'✓' if each.correct[here] else '✗'} {said}", style="said", below=below))
    return TableRow(cells)


def _records(
    report_data: ReportData,
    task: str,
    key: tuple,
    answered: Sequence[Questions | None],
    places: Sequence[Mapping[tuple, int]],
) -> list[dict[str, Any]]:
    rows = []
    for run, some, place in zip(report_data.runs, answered, places, strict=True):
        if some is None or key not in place:
            continue
        row = place[key]
        choice, scores = some.choices[row], some.scores[row].ravel()
        asked = {"id": some.ids[row], "groups": "; ".join(some.groups[row]), "question": text_of(some.named[row])}
        answer = {
            "options": "; ".join(some.options[row]),
            "right": some.options[row][some.targets[row]],
            "chosen": "" if choice is None else some.options[row][choice],
            "correct": bool(some.correct[row]),
            "scores": "; ".join(f"{score:.6g}" for score in scores if math.isfinite(score)),
            "response": next((text for text in some.responses[row] if text), ""),
        }
        rows.append({"run": run.label, "task": task, **asked, **answer})
    return rows
