"""One row an example: its candidates, its scores, and whether the answer is right."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from winobench.evaluation import summary
from winobench.evaluation.plan import Plan, Question
from winobench.metrics import margins
from winobench.tasks.base import Task


def example_table(task: Task, plan: Plan, scores: Sequence[np.ndarray], threshold: float | None = None) -> pa.Table:
    """One row an example, with the columns that `winobench.runs.examples.read_examples` reads, and more:

    ``prediction``, index of the best candidate, null for ties and the diagonal; ``tie``; ``correct_<outcome>`` and
    ``tie_<outcome>`` of metrics with several outcomes; ``ratings``. Bias and ratings have no right answers: null.
    """
    questions = plan.questions[task.name]
    outcomes, headline = {}, None
    if task.has_answers:
        metric = summary.judge_of(task, threshold)
        outcomes, headline = metric(scores, [question.target for question in questions]), metric.headline
    columns = {
        "id": pa.array([question.id for question in questions], pa.string()),
        "groups": _lists([question.groups for question in questions]),
        "images": _lists([question.images for question in questions], plan.image_hashes),
        "texts": _lists([question.texts for question in questions], plan.texts),
        "target": pa.array([question.target for question in questions], pa.int32()),
        "scores": _matrices(scores),
        "prediction": _predictions(questions, scores),
        "correct": pa.array(outcomes[headline].correct) if headline else pa.nulls(len(questions), pa.bool_()),
        "tie": pa.array(outcomes[headline].tie) if headline else pa.nulls(len(questions), pa.bool_()),
        "terms": _lists([[term.name for term in plan.terms[task.name]]] * len(questions)),
    }
    if task.is_rated:
        columns["ratings"] = pa.array([list(question.ratings) for question in questions], pa.list_(pa.float64()))
    if len(outcomes) > 1:
        for name, outcome in outcomes.items():
            column = name.replace("@", "_at_")
            columns[f"correct_{column}"] = pa.array(outcome.correct)
            columns[f"tie_{column}"] = pa.array(outcome.tie)
    return pa.table(columns)


# Lists of lists would be millions of objects, through which Python's garbage collector looks again and again.


def _lists(rows: Sequence[Sequence[Any]], names: Sequence[str] | None = None) -> pa.Array:
    """A list of texts a row: its values, or the names of these numbers."""
    values = itertools.chain.from_iterable(rows)
    texts = pa.array(list(values) if names is None else [names[value] for value in values], pa.string())
    return pa.ListArray.from_arrays(_offsets([len(row) for row in rows]), texts)


def _matrices(scores: Sequence[np.ndarray]) -> pa.Array:
    """A list of lists of float64 a matrix."""
    shapes = np.array([matrix.shape for matrix in scores], np.int64).reshape(-1, 2)
    values = np.concatenate([matrix.ravel() for matrix in scores]) if len(scores) else np.empty(0)
    rows = pa.ListArray.from_arrays(_offsets(np.repeat(shapes[:, 1], shapes[:, 0])), pa.array(values, pa.float64()))
    return pa.ListArray.from_arrays(_offsets(shapes[:, 0]), rows)


def _offsets(lengths: Sequence[int] | np.ndarray) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]), pa.int32())


def _predictions(questions: Sequence[Question], scores: Sequence[np.ndarray]) -> pa.Array:
    best, is_none = np.zeros(len(questions), np.int32), np.array([one.target is None for one in questions], bool)
    for numbers, alike in margins.by_shape(scores):
        flat = alike.reshape(len(numbers), -1)
        are_best = flat == flat.max(axis=1, keepdims=True)
        best[numbers] = are_best.argmax(axis=1)
        is_none[numbers] |= are_best.sum(axis=1) != 1
    return pa.array(best, pa.int32(), mask=is_none)
