"""From mean errors to scores, and from scores to numbers with intervals.

Before: `winobench.scorers.denoising` computes the errors of the pairs. After: `winobench.evaluation.evaluate` writes
the numbers into ``results.json``, and `winobench.evaluation.example_rows` has a row for each example.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from winobench import metrics
from winobench.base.texts import EMPTY_TEXT
from winobench.data.images import GRAY_IMAGE, image_hash
from winobench.evaluation.plan import Plan, Question
from winobench.metrics import margins, normalization
from winobench.metrics.association import Association
from winobench.metrics.sample_mean import PLAIN, SampleMean
from winobench.runs.rows import members_of
from winobench.tasks.base import Task

# Share of a task's examples from which on a note on equal scores is next to its numbers.
_NEARLY_ALL = 0.99
# Difference of scores that are equal up to rounding to float32, relative to the largest.
_ROUNDING = 2 * float(np.finfo(np.float32).eps)


def question_scores(plan: Plan, task: str, errors: np.ndarray, mean: SampleMean = PLAIN) -> list[np.ndarray]:
    """The score matrix of each question of a task, [images, texts] float64, higher = better match.

    Minus the mean error, less the mean errors of the same image under the empty text and of the gray image under the
    same text, where the plan names these terms. In float64, so that sums make no ties.

    Source: Krojer et al. 2023, "Are Diffusion Models Vision-And-Language Reasoners?", Eq. 4 and 5.
    """
    means, questions = mean(errors), plan.questions[task]
    matrices: list[np.ndarray] = [np.empty(0)] * len(questions)
    for numbers, terms in _terms(plan, task):
        scores = sum(sign * means[rows] for rows, sign in terms)
        for number, matrix in zip(numbers, scores, strict=True):
            matrices[number] = matrix
    return matrices


def score_terms(plan: Plan, task: str) -> list[list[tuple[np.ndarray, int]]]:
    """For each question: (int64 [images, texts] rows of ``plan.pairs``, sign) of each term of its scores."""
    terms_of: list[list[tuple[np.ndarray, int]]] = [[] for _ in plan.questions[task]]
    for numbers, terms in _terms(plan, task):
        for index, number in enumerate(numbers):
            terms_of[number] = [(rows[index], sign) for rows, sign in terms]
    return terms_of


def _terms(plan: Plan, task: str) -> Iterator[tuple[list[int], list[tuple[np.ndarray, int]]]]:
    """The numbers of the questions of each shape, and (int64 [questions, images, texts], sign) of each term."""
    questions, terms = plan.questions[task], plan.terms[task]
    empty = plan.texts.index(EMPTY_TEXT) if any(term.of_empty_text for term in terms) else -1
    gray = plan.image_hashes.index(image_hash(GRAY_IMAGE)) if any(term.of_gray_image for term in terms) else -1
    for numbers in margins.alike([(len(question.images), len(question.texts)) for question in questions]):
        images = np.array([questions[number].images for number in numbers], np.int64)[:, :, None]
        texts = np.array([questions[number].texts for number in numbers], np.int64)[:, None, :]

        def rows(term: normalization.Term, images: np.ndarray = images, texts: np.ndarray = texts) -> np.ndarray:
            return plan.rows_of(
                np.full_like(images, gray) if term.of_gray_image else images,
                np.full_like(texts, empty) if term.of_empty_text else texts,
            )

        yield numbers, [(rows(term), term.sign) for term in terms]


def task_results(
    task: Task,
    questions: Sequence[Question],
    scores: Sequence[np.ndarray],
    *,
    texts: Sequence[str] = (),
    seed: int = 0,
    threshold: float | None = None,
) -> dict[str, dict[str, Any]]:
    """A task's numbers: of all examples first, then ``<group>/<metric>`` of each group in order of appearance.

    `winobench.runs.schema` declares the entries. Intervals are about another sample of examples, judged on the same
    samples of noise (docs/explanation/intervals.md). Rows of all examples have "constant" where `constant_over` finds
    it.
    """
    results = _metric_results(task, questions, scores, texts, seed, threshold)
    if constant := constant_over(scores):
        for name in results:
            if "/" not in name or task.association is not None:
                results[name]["constant"] = constant
    return results


def judge_of(task: Task, threshold: float | None) -> metrics.Metric:
    """The metric of a task with answers, by a scorer's ``match_threshold`` where it judges texts alone."""
    return metrics.METRICS[task.metric].at(threshold if task.judged_alone else None)


def constant_over(scores: Sequence[np.ndarray]) -> str | None:
    """``images``, ``texts`` or ``candidates`` (both) where over 99% of the scores do not depend on them, else None.

    Where no example has several images, all examples must have the same scores.
    """
    constant, stacks = [], [alike for _, alike in margins.by_shape(scores)]
    for axis, name in enumerate(("images", "texts")):
        several = [_are_flat(alike, axis) for alike in stacks if alike.shape[1 + axis] > 1]
        if several and np.mean(np.concatenate(several)) > _NEARLY_ALL:
            constant.append(name)
        elif axis == 0 and not several and len(scores) > 1 and len(stacks) == 1:
            constant += [name] * bool(_are_flat(np.concatenate(scores)[None], axis)[0])
    return "candidates" if len(constant) > 1 else next(iter(constant), None)


def _are_flat(scores: np.ndarray, axis: int) -> np.ndarray:
    """Mask of questions whose scores [questions, images, texts] are constant along an axis, up to rounding."""
    largest = np.abs(scores).max(axis=(1, 2), initial=0)
    return (np.ptp(scores, axis=1 + axis) <= _ROUNDING * largest[:, None]).all(axis=1)


def _metric_results(
    task: Task,
    questions: Sequence[Question],
    scores: Sequence[np.ndarray],
    texts: Sequence[str],
    seed: int,
    threshold: float | None,
) -> dict[str, dict[str, Any]]:
    if task.association is not None:
        return _association_results(task.association, questions, scores, texts, seed)
    if task.is_rated:
        return metrics.rating_results(
            metrics.RATING_METRICS[task.metric],
            scores,
            [question.ratings for question in questions],
            [task.prompt_of(question.id) for question in questions],
            [question.groups for question in questions],
            seed=seed,
        )
    metric = judge_of(task, threshold)
    outcomes = metric(scores, [question.target for question in questions])
    shapes = [matrix.shape for matrix in scores]
    stated = {} if task.chance_by_question else task.chance
    dependence = image_dependence(questions)
    members = members_of([question.groups for question in questions])
    results = {}

    def add(
        key: str, names: tuple[str, ...], rows: Any, dependence: metrics.Dependence, strata: np.ndarray | None = None
    ) -> None:
        correct = np.concatenate([outcomes[name].correct[rows] for name in names])
        tie = np.concatenate([outcomes[name].tie[rows] for name in names])
        interval = metrics.clustered(correct, dependence, strata=strata)
        outcome = key.rpartition("/")[2].removeprefix("macro_")
        known = next((name for name in (key, outcome) if name in stated), None)
        chance = metric.mean_chance(outcome, [shapes[row] for row in rows], strata) if known is None else stated[known]
        results[key] = {
            **{end: float(value) for end, value in interval._asdict().items()},
            "chance": None if chance is None else float(chance),
            "n": len(tie),
            "independent": int(dependence.num_independent(np.ones((len(tie), 1)))[0]),
            "ties": int(tie.sum()),
        }

    def add_combined(prefix: str, rows: np.ndarray) -> None:
        answers = {name: outcome.correct[rows] for name, outcome in outcomes.items()}
        for row, names in metric.combined(answers).items():
            add(f"{prefix}{row}", names, rows, dependence.take(np.tile(rows, len(names))))

    for name in outcomes:
        add(name, (name,), np.arange(len(questions)), dependence)
        if metric.averages_groups and members:
            # An example counts once for each of its groups.
            rows = np.concatenate(list(members.values()))
            strata = np.repeat(np.arange(len(members)), [len(indices) for indices in members.values()])
            add(f"macro_{name}", (name,), rows, dependence.take(rows), strata)
    add_combined("", np.arange(len(questions)))
    for group, indices in members.items():
        tied = dependence.take(indices)
        for name in outcomes:
            add(f"{group}/{name}", (name,), indices, tied)
        add_combined(f"{group}/", indices)
    return results


def _association_results(
    association: Association,
    questions: Sequence[Question],
    scores: Sequence[np.ndarray],
    texts: Sequence[str],
    seed: int,
) -> dict[str, dict[str, Any]]:
    columns = {text: column for column, text in enumerate(dict.fromkeys(t for q in questions for t in q.texts))}
    table = np.full((len(questions), len(columns)), np.nan)  # groups may have different texts
    for row, (question, matrix) in enumerate(zip(questions, scores, strict=True)):
        table[row, [columns[text] for text in question.texts]] = matrix[0]
    return metrics.association_results(
        table,
        [texts[text] for text in columns],
        [question.groups[0] for question in questions],
        association,
        seed=seed,
        # With a limit, or part of the data, a pair may lack images. The others are as good as ever.
        partial=True,
    )


def image_dependence(questions: Sequence[Question]) -> metrics.Dependence:
    """Questions depend on each other if they have an image in common, whether it is right or not."""
    return metrics.Dependence.from_sets([question.images for question in questions])
