"""The rows of a task's results, recomputed from its examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from winobench.runs.examples import Questions
from winobench.runs.run import TEXT_METRIC, TaskRun, outcomes

PAIR_METRICS = ("pair", "pair_accuracy")
"""Names of the share of pairs with both questions right, in the results of text tasks."""


@dataclasses.dataclass(frozen=True)
class Row:
    """The outcomes that one row of a task's results counts."""

    name: str
    members: np.ndarray  # [m] int, the examples, each as often as it counts
    correct: np.ndarray  # [m] bool
    strata: np.ndarray | None  # [m] int where the value is the mean over the strata's proportions
    redrawn: np.ndarray | None = None  # [m, DRAWS] bool, ``correct`` under resampled noise
    num_samples: int | None = None  # independent ones behind ``redrawn``

    @property
    def value(self) -> float:
        """The proportion, in [0, 1]."""
        if self.strata is None:
            return float(self.correct.mean())
        return float((np.bincount(self.strata, self.correct) / np.bincount(self.strata)).mean())


def members_of(groups: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """Group -> indices of its examples, from each example's groups."""
    members: dict[str, list[int]] = {}
    for index, some in enumerate(groups):
        for group in some:
            members.setdefault(group, []).append(index)
    return {group: np.array(indices) for group, indices in members.items()}


def rows_of(record: TaskRun, redrawn: Mapping[str, np.ndarray] | None = None) -> list[Row]:
    """The rows of a task's results, recomputed from the scores of its examples, in the order of ``results.json``."""
    if record.metric == TEXT_METRIC:
        return _text_rows(record)
    answers, examples = outcomes(record), record.examples
    if not answers or examples is None:
        return []
    everything = np.arange(len(examples.ids))
    members, rows = members_of(examples.groups), []

    def add(row: str, names: Sequence[str], counted: np.ndarray, strata: np.ndarray | None = None) -> None:
        draws = None if redrawn is None else np.concatenate([redrawn[name][counted] for name in names])
        correct = np.concatenate([answers[name][counted] for name in names])
        rows.append(Row(row, np.tile(counted, len(names)), correct, strata, draws, record.num_units))

    def add_combined(prefix: str, counted: np.ndarray) -> None:
        counted_answers = {name: right[counted] for name, right in answers.items()}
        for row, names in ({} if record.judge is None else record.judge.combined(counted_answers)).items():
            add(f"{prefix}{row}", names, counted)

    for name in answers:
        add(name, (name,), everything)
        if f"macro_{name}" in record.results and members:
            counted = np.concatenate(list(members.values()))
            strata = np.repeat(np.arange(len(members)), [len(indices) for indices in members.values()])
            add(f"macro_{name}", (name,), counted, strata)
    add_combined("", everything)
    for group, indices in members.items():
        for name in answers:
            add(f"{group}/{name}", (name,), indices)
        add_combined(f"{group}/", indices)
    return rows


def _text_rows(record: TaskRun) -> list[Row]:
    """Rows of the headline and of whole pairs, of all questions and by group, as far as the results have them."""
    examples = record.examples
    if not isinstance(examples, Questions) or not record.results:
        return []
    headline = next(iter(record.results)).rpartition("/")[2]
    members = members_of([("", *(f"{group}/" for group in groups)) for groups in examples.groups])
    rows = []
    for prefix, indices in members.items():
        pairs = members_of([() if pair is None else (pair,) for pair in (examples.pairs[index] for index in indices)])
        whole = [indices[both] for both in pairs.values() if len(both) == 2]
        both_right = np.array([examples.correct[both].all() for both in whole], bool)
        listed = [Row(f"{prefix}{headline}", indices, examples.correct[indices], None)]
        listed += [
            Row(f"{prefix}{name}", np.array([both[0] for both in whole], np.int64), both_right, None)
            for name in PAIR_METRICS
        ]
        rows += [row for row in listed if row.name in record.results and len(row.members)]
    return rows
