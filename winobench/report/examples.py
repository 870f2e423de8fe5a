"""A task's examples as a run has answered them."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from winobench import metrics
from winobench.errors import InputError
from winobench.metrics import normalization
from winobench.report.columns import STRINGS, columns, read_table

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
    answer_=pa.int64(),
    status=pa.string(),
    choice_=pa.int64(),
    choices=pa.list_(pa.int64()),
    scores_=pa.list_(pa.float64()),
    responses=STRINGS,
    correct_=pa.bool_(),
)
_PICTURED_COLUMNS = columns(pictures=STRINGS, captions=STRINGS)


@dataclasses.dataclass(frozen=True)
class Examples:
    """A task's examples as one run has answered them; all lists have one entry an example.

    Attributes:
      ids: unique within the task.
      groups: sub-tasks that the example also counts for.
      images: SHA-256 of each candidate's pixels.
      texts: the candidates, or the one query.
      targets: index of the right candidate; None where the right answer is the diagonal.
      scores: [images, texts] float64, higher = better match.
      correct: [n] bool, under the task's headline metric.
      terms: names of what the scores are made of; None where the run does not say.
      parts: part of the metric -> [n] bool, where it has several; as recorded.
    """

    ids: list[str]
    groups: list[tuple[str, ...]]
    images: list[tuple[str, ...]]
    texts: list[tuple[str, ...]]
    targets: list[int | None]
    scores: list[np.ndarray]
    correct: np.ndarray
    terms: tuple[str, ...] | None
    parts: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def dependence(self) -> metrics.Dependence:
        """Examples that have an image in common depend on each other."""
        return metrics.Dependence.of_sets(self.images)

    def key(self, row: int) -> tuple[Any, ...]:
        """What was asked in a row; rows of two runs with the same key asked the same."""
        return (self.ids[row], self.images[row], self.texts[row], self.targets[row])


@dataclasses.dataclass(frozen=True)
class Questions(Examples):
    """A text task's questions as one run has answered them, without those whose calls failed.

    ``images`` are empty, ``texts`` what the prompts were made of and the options, ``targets`` the right options, and
    ``scores`` those of the options, or empty where the protocol has none.

    Attributes:
      named: what the prompts were made of, by name.
      options: what can be answered.
      pairs: questions of the same pair are right only together; None for a question without a partner.
      choices: index of the chosen option; None where none could be read.
      orders: the choice in each of the protocol's requests.
      responses: the texts that came in; None for a response without one.
      pictures: SHA-256 of each picture that was asked about; empty where none was.
      captions: what was said of each of them before the question.
      num_failed: questions that are left out.
    """

    named: list[dict[str, str]] = dataclasses.field(default_factory=list)
    options: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    pairs: list[str | None] = dataclasses.field(default_factory=list)
    choices: list[int | None] = dataclasses.field(default_factory=list)
    orders: list[tuple[int | None, ...]] = dataclasses.field(default_factory=list)
    responses: list[tuple[str | None, ...]] = dataclasses.field(default_factory=list)
    pictures: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    captions: list[tuple[str | None, ...]] = dataclasses.field(default_factory=list)
    num_failed: int = 0

    @functools.cached_property
    def dependence(self) -> metrics.Dependence:
        """Questions of a pair depend on each other."""
        return metrics.Dependence.of_labels(
            ("pair", pair) if pair is not None else ("question", name)
            for pair, name in zip(self.pairs, self.ids, strict=True)
        )


def read_examples(path: pathlib.Path, metric: str | None) -> Examples:
    """Reads a table of examples; raises InputError for one that its metric cannot have been computed from."""
    table = read_table(path, _EXAMPLE_COLUMNS)
    if not table.num_rows:
        raise InputError(f"{path} has no examples: restore it, or evaluate again.", code="no-examples")
    for row in table.select(_EXAMPLE_COLUMNS.names).to_pylist():
        num_images, num_texts = len(row["images"]), len(row["texts"])
        if [len(scores) for scores in row["scores"]] != [num_texts] * num_images or not (
            row["target"] is None or 0 <= row["target"] < max(num_images, num_texts)
        ):
            raise InputError(
                f"{path} has scores or a target that fit no example: restore it, or evaluate again.",
                code="damaged-examples",
            )
    if metric in metrics.METRICS:
        try:
            metrics.METRICS[metric](
                [np.array(each) for each in table["scores"].to_pylist()], table["target"].to_pylist()
            )
        except ValueError as error:
            raise InputError(
                f"{path} does not fit the metric {metric} ({error}): restore it, or evaluate again.",
                code="damaged-examples",
            ) from None
    terms = None
    if "terms" in table.column_names:
        terms = tuple(table["terms"][0].as_py() or ())
        unknown = [name for name in terms if name not in normalization.TERMS]
        if unknown or normalization.OWN.name not in terms:
            raise InputError(
                f"{path} has scores of the terms {terms!r:.80}, which nobody knows: evaluate again.",
                code="unknown-name",
            )
    elif {"normalized_text", "normalized_gray"} <= set(table.column_names):  # of runs before there were terms
        is_of = {"unconditional": "normalized_text", "gray_image": "normalized_gray"}
        terms = ("own", *(term for term, column in is_of.items() if any(table[column].to_pylist())))
    return Examples(
        ids=table["id"].to_pylist(),
        groups=[tuple(groups) for groups in table["groups"].to_pylist()],
        images=[tuple(images) for images in table["images"].to_pylist()],
        texts=[tuple(texts) for texts in table["texts"].to_pylist()],
        targets=table["target"].to_pylist(),
        scores=[np.array(scores, np.float64) for scores in table["scores"].to_pylist()],
        correct=np.array(table["correct"].to_pylist(), object).astype(bool),
        terms=terms,
        parts={
            name.removeprefix("correct_").replace("_at_", "@"): np.array(table[name].to_pylist(), bool)
            for name in table.column_names
            if name.startswith("correct_")
        },
    )


def read_questions(path: pathlib.Path) -> Questions:
    """Reads a table of questions; leaves out those whose calls failed."""
    table = read_table(path, _QUESTION_COLUMNS)
    if "pictures" in table.column_names:
        table = read_table(path, pa.unify_schemas([_QUESTION_COLUMNS, _PICTURED_COLUMNS]))
    rows = table.to_pylist()
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
        pictures=[tuple(row.get("pictures", ())) for row in known],
        captions=[tuple(row.get("captions", ())) for row in known],
        num_failed=len(rows) - len(known),
    )
