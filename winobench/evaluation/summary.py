"""From mean errors to scores, from scores to numbers with intervals, and to one row an example."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from winobench import metrics
from winobench.base.texts import EMPTY_TEXT
from winobench.data.images import GRAY_IMAGE, image_hash
from winobench.evaluation.plan import Plan, Question
from winobench.metrics import normalization
from winobench.metrics.sample_mean import PLAIN, SampleMean
from winobench.runs.rows import members_of
from winobench.tasks.base import Task

# Share of a task's examples from which on a note on equal scores is next to its numbers.
_NEARLY_ALL = 0.99
# Of scores that are equal but for rounding to float32, relative to the largest.
_ROUNDING = 2 * float(np.finfo(np.float32).eps)


def question_scores(plan: Plan, task: str, errors: np.ndarray, mean: SampleMean = PLAIN) -> list[np.ndarray]:
    """The score matrix of each question of a task, [images, texts] float64, higher = better match.

    Minus the mean error, less the mean error of the same image under the empty text and that of the gray image under
    the same text, where the plan names these terms. In float64, so that sums make no ties.

    Source: Krojer et al. 2023, "Are Diffusion Models Vision-And-Language Reasoners?", Eq. 4 and 5.
    """
    means = mean(errors)
    return [sum(sign * means[rows] for rows, sign in terms) for terms in score_terms(plan, task)]


def score_terms(plan: Plan, task: str) -> list[list[tuple[np.ndarray, int]]]:
    """Of each question of a task, (int64 [images, texts] rows of ``plan.pairs``, sign) of each term of its scores."""
    rows = plan.pair_index()
    terms = plan.terms[task]
    empty = plan.texts.index(EMPTY_TEXT) if any(term.of_empty_text for term in terms) else -1
    gray = plan.image_hashes.index(image_hash(GRAY_IMAGE)) if any(term.of_gray_image for term in terms) else -1

    def rows_of(question: Question, term: normalization.Term) -> np.ndarray:
        images = [gray if term.of_gray_image else image for image in question.images]
        texts = [empty if term.of_empty_text else text for text in question.texts]
        return np.array([[rows[image, text] for text in texts] for image in images])

    return [[(rows_of(question, term), term.sign) for term in terms] for question in plan.questions[task]]


def task_results(
    task: Task, questions: Sequence[Question], scores: Sequence[np.ndarray], *, texts: Sequence[str] = (), seed: int = 0
) -> dict[str, dict[str, Any]]:
    """A task's numbers: of all examples first, then ``<group>/<metric>`` of each group in order of appearance.

    Entries are those of `winobench.runs.schema`. Intervals are about another draw of examples, judged on the same
    samples of noise (docs/explanation/intervals.md). Rows of all examples have "constant" where `constant_over` finds
    it.
    """
    results = _metric_results(task, questions, scores, texts, seed)
    if found := constant_over(scores):
        for name in results:
            if "/" not in name or task.association is not None:
                results[name]["constant"] = found
    return results


def constant_over(scores: Sequence[np.ndarray]) -> str | None:
    """``images``, ``texts`` or ``candidates`` (both) where over 99% of the scores do not depend on them, else None.

    Where no example has several images, all examples must have the same scores.
    """
    found = []
    for axis, name in enumerate(("images", "texts")):
        several = [matrix for matrix in scores if matrix.shape[axis] > 1]
        if several and np.mean([_is_flat(matrix, axis) for matrix in several]) > _NEARLY_ALL:
            found.append(name)
        elif axis == 0 and not several and len(scores) > 1 and len({matrix.shape for matrix in scores}) == 1:
            found += [name] * _is_flat(np.concatenate(scores), axis)
    return "candidates" if len(found) > 1 else next(iter(found), None)


def _is_flat(matrix: np.ndarray, axis: int) -> bool:
    """Whether scores are equal along an axis, but for rounding."""
    return bool((np.ptp(matrix, axis=axis) <= _ROUNDING * np.abs(matrix).max(initial=0)).all())


def _metric_results(
    task: Task, questions: Sequence[Question], scores: Sequence[np.ndarray], texts: Sequence[str], seed: int
) -> dict[str, dict[str, Any]]:
    if task.association is not None:
        return _association_results(task, questions, scores, texts, seed)
    if task.is_rated:
        return metrics.rating_results(
            metrics.RATING_METRICS[task.metric],
            scores,
            [question.ratings for question in questions],
            [task.prompt_of(question.id) for question in questions],
            [question.groups for question in questions],
            seed=seed,
        )
    metric = metrics.METRICS[task.metric]
    outcomes = metric(scores, [question.target for question in questions])
    chances = {**metric.chance(task.shape), **task.chance}
    dependence = image_dependence(questions)
    members = members_of([question.groups for question in questions])
    results = {}

    def add(key: str, name: str, rows: Any, dependence: metrics.Dependence, strata: np.ndarray | None = None) -> None:
        correct, tie = outcomes[name].correct[rows], outcomes[name].tie[rows]
        interval = metrics.clustered(correct, dependence, strata=strata)
        chance = chances.get(key, chances.get(name))
        results[key] = {
            **{end: float(value) for end, value in interval._asdict().items()},
            "chance": None if chance is None else float(chance),
            "n": len(tie),
            "ties": int(tie.sum()),
        }

    for name in outcomes:
        add(name, name, slice(None), dependence)
        if metric.averages_groups and members:
            # An example counts once for each of its groups.
            rows = np.concatenate(list(members.values()))
            strata = np.repeat(np.arange(len(members)), [len(indices) for indices in members.values()])
            add(f"macro_{name}", name, rows, dependence.take(rows), strata)
    for group, indices in members.items():
        tied = dependence.take(indices)
        for name in outcomes:
            add(f"{group}/{name}", name, indices, tied)
    return results


def _association_results(
    task: Task, questions: Sequence[Question], scores: Sequence[np.ndarray], texts: Sequence[str], seed: int
) -> dict[str, dict[str, Any]]:
    columns = {text: column for column, text in enumerate(dict.fromkeys(t for q in questions for t in q.texts))}
    table = np.full((len(questions), len(columns)), np.nan)  # a group need not be asked about another's texts
    for row, (question, matrix) in enumerate(zip(questions, scores, strict=True)):
        table[row, [columns[text] for text in question.texts]] = matrix[0]
    return metrics.association_results(
        table,
        [texts[text] for text in columns],
        [question.groups[0] for question in questions],
        task.association,
        seed=seed,
        # With a limit, or part of the data, a pair may lack images. The others are as good as ever.
        partial=True,
    )


def image_dependence(questions: Sequence[Question]) -> metrics.Dependence:
    """Which questions depend on each other: those that have an image in common, whether it is right or not."""
    return metrics.Dependence.of_sets([question.images for question in questions])


def example_table(task: Task, plan: Plan, scores: Sequence[np.ndarray]) -> pa.Table:
    """One row an example, with the columns that `winobench.runs.examples.read_examples` reads, and more:

    ``prediction``, index of the best candidate, null for ties and the diagonal; ``tie``; ``correct_<outcome>`` and
    ``tie_<outcome>`` of metrics with several outcomes; ``ratings``. Bias and ratings have no right answers: null.
    """
    questions = plan.questions[task.name]
    outcomes, headline = {}, None
    if task.has_answers:
        metric = metrics.METRICS[task.metric]
        outcomes, headline = metric(scores, [question.target for question in questions]), metric.headline
    columns = {
        "id": pa.array([question.id for question in questions], pa.string()),
        "groups": pa.array([list(question.groups) for question in questions], pa.list_(pa.string())),
        "images": pa.array(
            [[plan.image_hashes[image] for image in question.images] for question in questions], pa.list_(pa.string())
        ),
        "texts": pa.array(
            [[plan.texts[text] for text in question.texts] for question in questions], pa.list_(pa.string())
        ),
        "target": pa.array([question.target for question in questions], pa.int32()),
        "scores": pa.array([matrix.tolist() for matrix in scores], pa.list_(pa.list_(pa.float64()))),
        "prediction": pa.array(map(_prediction, questions, scores), pa.int32()),
        "correct": pa.array(outcomes[headline].correct) if headline else pa.nulls(len(questions), pa.bool_()),
        "tie": pa.array(outcomes[headline].tie) if headline else pa.nulls(len(questions), pa.bool_()),
        "terms": pa.array([[term.name for term in plan.terms[task.name]]] * len(questions), pa.list_(pa.string())),
    }
    if task.is_rated:
        columns["ratings"] = pa.array([list(question.ratings) for question in questions], pa.list_(pa.float64()))
    if len(outcomes) > 1:
        for name, outcome in outcomes.items():
            column = name.replace("@", "_at_")
            columns[f"correct_{column}"] = pa.array(outcome.correct)
            columns[f"tie_{column}"] = pa.array(outcome.tie)
    return pa.table(columns)


def _prediction(question: Question, scores: np.ndarray) -> int | None:
    best = np.flatnonzero(scores.ravel() == scores.max())
    return int(best[0]) if question.target is not None and len(best) == 1 else None
