"""Questions that models got wrong, with their answers, and a row a question and run in a CSV file."""

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
            "Questions that at least one run has wrong. Those that most runs have wrong come first, in random order. ✓ "
            "and ✗ mark right and wrong answers. A tie, and an answer that could not be read, are wrong. Below is the "
            "model's text, shortened. The file next to this page has all questions."
        ],
    )
    rows = []
    for task in report_data.tasks:
        answered = [
            record.examples if record is not None and isinstance(record.examples, Questions) else None
            for record in report_data.records(task)
        ]
        row_maps = [
            {} if record is None else {record.key(row): row for row in range(len(record.ids))} for record in answered
        ]
        keys = list(dict.fromkeys(key for row_map in row_maps for key in row_map))
        if not keys:
            continue
        wrong = np.array(
            [
                sum(
                    not record.correct[row_map[key]]
                    for record, row_map in zip(answered, row_maps, strict=True)
                    if record is not None and key in row_map
                )
                for key in keys
            ]
        )
        chosen = [index for index in most_first(wrong, report_data.seed) if wrong[index]][: report_data.examples]
        if chosen:
            lines = [_line(keys[index], answered, row_maps) for index in chosen]
            columns = ["question", "right answer", *range(len(report_data.runs))]
            title = f"{task_label(task)} ({len(chosen)} of {int((wrong > 0).sum()):,} that a run has wrong)"
            section.folds.append(Details(title, tables=[Table(columns, lines)]))
        for key in keys:
            rows += _records(report_data, task, key, answered, row_maps)
    if not rows:
        return None
    section.records["questions.csv"] = rows
    if not section.folds:
        section.notes.append("All runs have all questions right.")
    return section


def text_of(named: Mapping[str, str]) -> str:
    """A question as people read it: the part of that name, or all parts."""
    return named.get("question", " / ".join(named.values()))


def _line(key: tuple, answered: Sequence[Questions | None], row_maps: Sequence[Mapping[tuple, int]]) -> TableRow:
    pairs = [(record, row_map.get(key)) for record, row_map in zip(answered, row_maps, strict=True)]
    first, number = next((record, row) for record, row in pairs if record is not None and row is not None)
    groups = ", ".join(first.groups[number])
    cells = [Cell(text_of(first.named[number]), below=groups), Cell(first.right(number))]
    for record, row in pairs:
        if record is None or row is None:
            cells.append(ABSENT)
            continue
        choice = record.choices[row]
        answer = "no answer" if choice is None else record.options[row][choice]
        texts = [text for text in record.responses[row] if text]
        below = shortened(" ".join(texts[0].split()), _RESPONSE_LETTERS) if texts else ""
        cells.append(Cell(f"{'✓' if record.correct[row] else '✗'} {answer}", style="said", below=below))
    return TableRow(cells)


def _records(
    report_data: ReportData,
    task: str,
    key: tuple,
    answered: Sequence[Questions | None],
    row_maps: Sequence[Mapping[tuple, int]],
) -> list[dict[str, Any]]:
    rows = []
    for run, record, row_map in zip(report_data.runs, answered, row_maps, strict=True):
        if record is None or key not in row_map:
            continue
        row = row_map[key]
        choice, scores = record.choices[row], record.scores[row].ravel()
        question = {
            "id": record.ids[row],
            "groups": "; ".join(record.groups[row]),
            "question": text_of(record.named[row]),
        }
        answer = {
            "options": "; ".join(record.options[row]),
            "right": record.right(row),
            "chosen": "" if choice is None else record.options[row][choice],
            "correct": bool(record.correct[row]),
            "scores": "; ".join(f"{score:.6g}" for score in scores if math.isfinite(score)),
            "response": next((text for text in record.responses[row] if text), ""),
        }
        rows.append({"run": run.label, "task": task, **question, **answer})
    return rows
