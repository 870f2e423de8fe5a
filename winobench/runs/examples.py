"""A task's examples as a run has answered them."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from winobench import metrics
from winobench.base.errors import InputError
from winobench.metrics import normalization
from winobench.runs.columns import STRINGS, columns, read_table
from winobench.runs.labels import shortened
from winobench.runs.requests import ANSWERED, FAILED

_EXAMPLE_COLUMNS = columns(
    id=pa.string(),
    groups=STRINGS,
    images=STRINGS,
    texts=STRINGS,
    target_=pa.int64(),
    scores=pa.list_(pa.list_(pa.float64())),
    correct_=pa.bool_(),
)
_QUESTION_COLUMNS = columns(
    id=pa.string(),
    groups=STRINGS,
    pair_=pa.string(),
    texts=pa.map_(pa.string(), pa.string()),
    options=STRINGS,
    answer=pa.int64(),
    status=pa.string(),
    choice_=pa.int64(),
    choices=pa.list_(pa.int64()),
    scores_=pa.list_(pa.float64()),
    responses=STRINGS,
    correct_=pa.bool_(),
)
# Columns with one entry a candidate.
_SHAPED = ("images", "texts", "target", "scores")
TERM_COLUMNS = ("terms", "normalized_text", "normalized_gray")
_ILLUSTRATED_COLUMNS = columns(pictures=STRINGS, captions=STRINGS)


@dataclasses.dataclass(frozen=True, repr=False)
class Examples:
    """A task's examples as one run has answered them. All lists have one entry an example."""

    ids: list[str]
    groups: list[tuple[str, ...]]  # sub-tasks that the example also counts for
    images: list[tuple[str, ...]]  # SHA-256 of each candidate's pixels
    texts: list[tuple[str, ...]]  # the candidates, or the one query
    targets: list[int | None]  # index of the right candidate; None for the diagonal
    scores: list[np.ndarray]  # [images, texts] float64, higher = better match
    correct: np.ndarray  # [n] bool, under the task's headline metric
    terms: tuple[str, ...] | None  # what the scores are made of; None where the run does not record it
    parts: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)  # part of the metric -> [n] bool

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {len(self.ids):,}, of which {int(self.correct.sum()):,} are right>"

    @functools.cached_property
    def dependence(self) -> metrics.Dependence:
        """Examples that have an image in common depend on each other."""
        return metrics.Dependence.from_sets(self.images)

    def key(self, row: int) -> tuple[Any, ...]:
        """Rows of two runs with the same key asked the same."""
        return (self.ids[row], self.images[row], self.texts[row], self.targets[row])


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class Questions(Examples):
    """A text task's questions, without those whose calls failed. Scores are the options', if there are any."""

    named: list[dict[str, str]]  # what the prompts were made of, by name
    options: list[tuple[str, ...]]
    pairs: list[str | None]  # questions of the same pair are right only together
    choices: list[int | None]  # index of the chosen option; None where none could be read
    orders: list[tuple[int | None, ...]]  # the choice in each of the protocol's requests
    responses: list[tuple[str | None, ...]]  # None for a response without a text
    question_images: list[tuple[str, ...]]  # SHA-256 of each image of the question
    captions: list[tuple[str | None, ...]]  # of each of them
    num_failed: int  # questions that are left out

    def right(self, row: int) -> str:
        """The right option."""
        target = self.targets[row]
        return "" if target is None else self.options[row][target]

    @functools.cached_property
    def dependence(self) -> metrics.Dependence:
        """Questions of a pair depend on each other."""
        return metrics.Dependence.from_labels(
            ("pair", pair) if pair is not None else ("question", name)
            for pair, name in zip(self.pairs, self.ids, strict=True)
        )


def read_examples(path: pathlib.Path) -> Examples:
    """Reads a table of examples. Raises InputError for one that no run has written."""
    table = read_table(path, _EXAMPLE_COLUMNS)
    if not table.num_rows:
        raise InputError(f"{path} has no examples: restore it, or evaluate again.", code="no-examples")
    lists = {name: table[name].to_pylist() for name in _EXAMPLE_COLUMNS.names}
    _check_ids(lists["id"], path)
    for images, texts, target, matrix in zip(*(lists[name] for name in _SHAPED), strict=True):
        if [len(scores) for scores in matrix] != [len(texts)] * len(images) or not (
            target is None or 0 <= target < max(len(images), len(texts))
        ):
            _refuse(path, "scores or a target that fit no example")
    scores = [np.array(matrix, np.float64) for matrix in lists["scores"]]
    if not np.isfinite(np.concatenate([matrix.ravel() for matrix in scores])).all():
        _refuse(path, "scores that hold NaN or infinity")
    return Examples(
        ids=lists["id"],
        groups=[tuple(groups) for groups in lists["groups"]],
        images=[tuple(images) for images in lists["images"]],
        texts=[tuple(texts) for texts in lists["texts"]],
        targets=lists["target"],
        scores=scores,
        correct=np.array(lists["correct"], object).astype(bool),
        terms=terms_of(table, path),
        parts={
            name.removeprefix("correct_").replace("_at_", "@"): np.array(table[name].to_pylist(), bool)
            for name in table.column_names
            if name.startswith("correct_")
        },
    )


def terms_of(table: pa.Table, path: pathlib.Path) -> tuple[str, ...] | None:
    """The terms of a table's scores, from its columns `TERM_COLUMNS`. None where it names none."""
    if "terms" in table.column_names:
        terms = tuple(table["terms"][0].as_py() or ())
        unknown = [name for name in terms if name not in normalization.TERMS]
        if unknown or normalization.OWN.name not in terms:
            raise InputError(
                f"{path} has scores of the terms {terms!r:.80}, some of which are unknown: evaluate again.",
                code="unknown-name",
            )
        return terms
    if set(TERM_COLUMNS[1:]) <= set(table.column_names):  # of runs before there were terms
        is_of = {"unconditional": "normalized_text", "gray_image": "normalized_gray"}
        return ("own", *(term for term, column in is_of.items() if any(table[column].to_pylist())))
    return None


def _check_ids(ids: Sequence[str], path: pathlib.Path) -> None:
    twice, count = next(iter(collections.Counter(ids).most_common(1)), ("", 0))
    if count > 1:
        _refuse(path, f"the example {shortened(twice, 80)!r} twice")


def _refuse(path: pathlib.Path, what: str) -> NoReturn:
    raise InputError(f"{path} has {what}: restore it, or evaluate again.", code="damaged-examples")


def read_questions(path: pathlib.Path) -> Questions:
    """Reads a table of questions. Leaves out those whose calls failed."""
    table = read_table(path, _QUESTION_COLUMNS)
    if "pictures" in table.column_names:
        table = read_table(path, pa.unify_schemas([_QUESTION_COLUMNS, _ILLUSTRATED_COLUMNS]))
    rows = table.to_pylist()
    _check_ids([row["id"] for row in rows], path)
    for row in rows:
        _check_question(row, path)
    known = [row for row in rows if row["correct"] is not None]
    return Questions(
        ids=[row["id"] for row in known],
        groups=[tuple(row["groups"]) for row in known],
        images=[() for _ in known],
        texts=[(*(text for _, text in row["texts"]), *row["options"]) for row in known],
        targets=[row["answer"] for row in known],
        scores=[np.array([row["scores"] or []], np.float64) for row in known],
        correct=np.array([row["correct"] for row in known], bool),
        terms=None,
        named=[dict(row["texts"]) for row in known],
        options=[tuple(row["options"]) for row in known],
        pairs=[row["pair"] for row in known],
        choices=[row["choice"] for row in known],
        orders=[tuple(row["choices"]) for row in known],
        responses=[tuple(row["responses"]) for row in known],
        question_images=[tuple(row.get("pictures", ())) for row in known],
        captions=[tuple(row.get("captions", ())) for row in known],
        num_failed=len(rows) - len(known),
    )


def _check_question(row: Mapping[str, Any], path: pathlib.Path) -> None:
    """Checks that a question's answer, choices and whether it is right fit each other."""
    options, question = len(row["options"]), f"the question {shortened(row['id'], 80)!r}"
    for name in ("answer", "choice"):
        if row[name] is not None and not 0 <= row[name] < options:
            _refuse(path, f"{question} with the {name} {row[name]} of {options} options")
    is_answered, is_right = row["status"] == ANSWERED, row["answer"] == row["choice"]
    if (row["correct"] is None) != (row["status"] == FAILED) or (row["correct"] and not (is_answered and is_right)):
        _refuse(path, f"{question}, whose correct fits neither its choice nor its status")
