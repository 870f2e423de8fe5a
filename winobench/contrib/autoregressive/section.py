"""A section of reports on likelihoods: how many bits a token of an image takes, with its text and without."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from winobench.metrics import normalization
from winobench.report.cells import ABSENT, Cell, Table, TableRow
from winobench.report.sections.shared import ReportData, Section
from winobench.report.wording import number
from winobench.runs.labels import task_label
from winobench.runs.run import Run

_MEASURES = {"right": "under right texts", "wrong": "under wrong texts", "none": "without a text"}


def likelihoods_section(report_data: ReportData) -> Section | None:
    """Means over the pairs of each task, for runs of models that predict tokens."""
    records = [record for run in report_data.runs if (layout := _layout(run)) for record in _records(run, layout)]
    if not records:
        return None
    rows = [
        TableRow(
            [
                Cell(record["run"], task_label(record["task"])),
                *(ABSENT if record[name] is None else Cell(number(record[name], 3)) for name in _MEASURES),
                Cell(number(record["chance"], 3)),
            ]
        )
        for record in records
    ]
    texts = [
        "The bits of a token of an image, on average: fewer are more likely. A right text should leave fewer bits than"
        " a wrong one, and than no text. To compare images, scores subtract the likelihood without a text. The last"
        " column is for random tokens.",
        "Records have nats of whole images. No paper has numbers of these scores to compare with.",
    ]
    heads = ["run and task", *(f"{words}, bits" for words in _MEASURES.values()), "random tokens, bits"]
    tables = [Table(heads, rows)]
    return Section("likelihoods", "Bits a token", texts, tables=tables, records={"likelihoods.csv": records})


def _layout(run: Run) -> dict[str, Any] | None:
    scorer = run.config["identity"].get("scorer") or {}
    return scorer["layout"] if scorer.get("scorer") == "image_likelihood" else None


def _records(run: Run, layout: dict[str, Any]) -> Iterator[dict[str, Any]]:
    chance = math.log2(layout["codes"])
    for task, record in run.tasks.items():
        batches = run.batches(task)
        if batches is None:
            continue
        errors: dict[str, list[np.ndarray]] = {name: [] for name in _MEASURES}
        for batch in batches:
            pairs = batch.own[..., 0]
            is_right = _right_pairs(record, batch.rows, pairs.shape[1:])
            errors["right"].append(pairs[is_right])
            errors["wrong"].append(pairs[~is_right])
            if (without := batch.errors.get(normalization.UNCONDITIONAL.name)) is not None:
                errors["none"].append(without.ravel())
        # An error is how many nats the image takes more than a random one.
        nats = {name: np.concatenate(parts) if parts else np.empty(0) for name, parts in errors.items()}
        means = {
            name: chance + float(np.mean(values, dtype=np.float64)) / layout["scored"] / math.log(2)
            if len(values)
            else None
            for name, values in nats.items()
        }
        yield {"run": run.label, "task": task, **means, "chance": chance, "tokens": layout["scored"]}


def _right_pairs(record: Any, rows: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Which pairs [n, images, texts] of some examples belong together."""
    targets = [record.examples.targets[row] for row in rows]
    numbers = np.arange(math.prod(shape)).reshape(shape)
    by_metric = record.judge.pairs(shape)
    return np.stack([by_metric if target is None else numbers == target for target in targets])
