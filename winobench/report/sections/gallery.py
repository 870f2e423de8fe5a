"""The gallery: examples that each run has surely wrong and surely right, and some at random."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.metrics.margins import margins
from winobench.report.cards import Card, make_card
from winobench.report.sections.shared import MOST_CHARTED_RUNS, ReportData, Section
from winobench.runs.edits import Edit, read_edits
from winobench.runs.run import Run, TaskRun


@dataclasses.dataclass(frozen=True)
class Gallery:
    """The cards of a task in a run: (heading, cards) by kind, and whether images are missing."""

    task: str
    run: str
    kinds: Sequence[tuple[str, Sequence[Card]]]
    lacks_images: bool


def galleries(report_data: ReportData, examples: int) -> tuple[list[Gallery], Section | None]:
    """The galleries of every task in every run, and the section that writes their CSV file."""
    if not examples:
        return [], None
    count = max(1, math.ceil(examples / 3 / len(report_data.runs)))
    shown, lines = [], []
    for task in report_data.charted:
        if not report_data.has_answers(task):  # nothing is right or wrong
            continue
        images = report_data.images(task)
        for run in report_data.runs[:MOST_CHARTED_RUNS]:
            record = run.tasks.get(task)
            if record is not None and record.examples is not None and record.metric is not None:
                task_examples, of_it = task_gallery(run, task, images, count, report_data.seed)
                shown.append(task_examples)
                lines += of_it
    return shown, Section("gallery", "", [], records={"gallery.csv": lines}) if lines else None


def task_gallery(run: Run, task: str, images: Mapping[str, bytes], count: int, seed: int) -> tuple[Gallery, list[dict]]:
    """Chooses examples and makes their cards."""
    record = run.tasks[task]
    examples = record.answered
    by_row = margins(examples.targets, examples.scores)
    shown = [row for row in range(len(examples.ids)) if all(image in images for image in examples.images[row])]
    rows = np.array(shown or range(len(examples.ids)))
    order = rows[np.argsort(by_row[rows], kind="stable")]
    wrong = [int(row) for row in order if not examples.correct[row]][:count]
    right = [int(row) for row in order[::-1] if examples.correct[row]][:count]
    rest = [int(row) for row in np.random.default_rng(seed).permutation(rows) if row not in {*wrong, *right}][:count]
    named = {"Surely wrong": wrong, "Surely right": right, "At random": rest}
    edits = _edits(run, record, [row for members in named.values() for row in members])
    kinds = [
        (heading, [make_card(record, row, float(by_row[row]), images, edits) for row in members])
        for heading, members in named.items()
        if members
    ]
    records = [line for kind, members in named.items() for row in members for line in _lines(run, record, row, kind)]
    return Gallery(task, run.label, kinds, not shown), records


def _edits(run: Run, record: TaskRun, rows: Sequence[int]) -> dict[tuple[str, str], tuple[Edit, bytes]]:
    """Edits of the images of some examples, where a run has edited images."""
    known, examples, found = read_edits(run.path), record.answered, {}
    for pair in {pair for row in rows for pair in itertools.product(examples.images[row], examples.texts[row])}:
        if pair in known:
            with contextlib.suppress(OSError):  # a report is made of the images that exist
                found[pair] = known[pair], (run.path / known[pair].after).read_bytes()
    return found


def _lines(run: Run, record: TaskRun, row: int, kind: str) -> list[dict[str, Any]]:
    examples = record.answered
    target = examples.targets[row]
    shape = (len(examples.images[row]), len(examples.texts[row]))
    belong = np.eye(*shape, dtype=bool) if record.judge is None else record.judge.pairs(shape)
    if target is not None:
        belong = (np.arange(math.prod(shape)) == target).reshape(shape)
    return [
        {
            "run": run.label,
            "task": record.name,
            "kind": kind,
            "id": examples.ids[row],
            "image": image,
            "text": text,
            "belongs": bool(belong[i, j]),
            "score": float(examples.scores[row][i, j]),
            "correct": bool(examples.correct[row]),
        }
        for i, image in enumerate(examples.images[row])
        for j, text in enumerate(examples.texts[row])
    ]
