"""Sampling where it decides: a question's candidates leave the race once their fate is sure (docs/explanation/race.md).

Many questions race at once, so that the devices have full batches. Pairs of one question share their samples, which
makes the difference of two candidates much less noisy than either of them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from winobench import metrics
from winobench.base.errors import InputError
from winobench.evaluation.decisions import PairwiseQuestion, Ranking
from winobench.evaluation.plan import Plan
from winobench.evaluation.summary import score_terms
from winobench.metrics import sequential
from winobench.runs.settings import Sampling
from winobench.tasks.base import Task


def check(tasks: Iterable[Task]) -> None:
    """Makes sure that a race can decide some tasks. Those of bias and ratings take all of their samples."""
    for task in tasks:
        if task.has_answers:
            _check_shape(task, task.shape, f"task {task.name!r}")


def check_questions(plan: Plan, tasks: Iterable[Task]) -> None:
    """`check` for each question of a plan, before any of them is scored."""
    for task in tasks:
        for question in plan.questions[task.name]:
            what = f"question {question.id!r} of task {task.name!r}"
            decision = _check_shape(task, (len(question.images), len(question.texts)), what)
            if (question.target is None) != decision.is_diagonal:
                target = "no target" if question.target is None else f"the target {question.target}"
                raise InputError(
                    f"{what} has {target}, which the metric {task.metric!r} cannot decide: use mode='fixed'",
                    code="cannot-race",
                )


def _decision(task: Task, what: str) -> metrics.Decision:
    metric = metrics.METRICS.get(task.metric)
    if metric is None or metric.decision is None:
        raise InputError(
            f"{what} cannot race: its metric {task.metric!r} does not say which comparisons decide a question"
            " (`decision` of winobench.metrics.Metric). Use mode='fixed' (--sampling.mode=fixed)",
            code="cannot-race",
        )
    return metric.decision


def _check_shape(task: Task, shape: tuple[int, int], what: str) -> metrics.Decision:
    decision = _decision(task, what)
    if not decision.fits(shape):
        raise InputError(
            f"{what} cannot race: it has {shape[0]} images and {shape[1]} texts, but the metric {task.metric!r} is"
            f" decided for {decision.asks_for}. Use mode='fixed' (--sampling.mode=fixed)",
            code="cannot-race",
        )
    return decision


@dataclasses.dataclass
class _Entry:
    """A question in the race."""

    task: str  # its name
    shape: tuple[int, int]  # images and texts
    rows: np.ndarray  # int, the pairs of its scores, without repetitions
    question: Ranking | PairwiseQuestion
    num_samples: int = 0  # that the last of its candidates took


@dataclasses.dataclass(frozen=True)
class TaskOutcome:
    """The outcome of a race on one task."""

    questions: int
    undecided: int  # questions that took the whole budget
    samples: float  # median over questions of the samples that the last candidate took


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Scores, and the passes that they took."""

    scores: Mapping[str, list[np.ndarray]]  # task -> [images, texts] float64 a question
    passes: int  # pairs and samples
    fixed_passes: int  # with the whole budget
    tasks: Mapping[str, TaskOutcome]


class Race:
    """The questions of some tasks, or one process's part of them, each with at most ``budget`` samples a pair.

    ``part`` is (process, number of processes). Its questions are neighbours, which share images. ``order``, int
    [budget], is the order of samples and ``weights``, float [budget], their weights. At most ``rows`` images and texts,
    which fit into a scorer's tables, race at once.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: Sequence[Task],
        budget: int,
        *,
        part: tuple[int, int] = (0, 1),
        rows: tuple[int, int] | None = None,
        weights: np.ndarray | None = None,
        order: np.ndarray | None = None,
    ):
        self.budget = budget
        self.order = np.arange(budget) if order is None else np.asarray(order)
        check_questions(plan, tasks)
        self._pairs = plan.pairs
        entries = []
        for task, decision in [(task, _decision(task, f"task {task.name!r}")) for task in tasks]:
            for terms in score_terms(plan, task.name):
                pairs = np.stack([pairs for pairs, _ in terms], axis=-1)
                signs = np.array([sign for _, sign in terms])
                shape = pairs.shape[:2]
                if decision.is_diagonal:
                    question: Ranking | PairwiseQuestion = PairwiseQuestion(pairs, signs, weights, self.order)
                else:
                    rankings = pairs.reshape(max(shape), -1)
                    question = Ranking(rankings, signs, decision.tops, weights=weights, order=self.order)
                entries.append(_Entry(task.name, shape, np.unique(pairs), question))
        self._entries = _share(entries, *part) if part[1] > 1 else entries
        self._rows = rows
        self.num_questions = self.undecided = len(self._entries)

    def run(
        self,
        errors: np.ndarray,
        score: Callable[[np.ndarray, int, int], None],
        alpha: float = Sampling.alpha,
        share: float = sequential.SHARE,
    ) -> Outcome:
        """Races all questions to their decisions on ``errors`` [num_pairs, budget] float32.

        Decisions differ from the whole budget's in at most a share ``alpha`` of the questions, if samples are met in
        random order and no sample holds more than 1 / (share * budget) of the evidence (docs/explanation/race.md).
        ``score(pairs, first, end)`` fills in these pairs, int [n] in increasing order, for the samples
        ``order[first:end]``.
        """
        looks = sequential.looks(self.budget, alpha, share)
        scored = np.zeros(len(self._pairs), np.int64)
        for still in self._batches():
            for first, n in itertools.pairwise((0, *looks)):
                pairs = np.unique(np.concatenate([entry.question.needed() for entry in still]))
                score(pairs, first, n)
                scored[pairs] = np.maximum(scored[pairs], n)
                for entry in still:
                    entry.question.interim_look(errors, n, self.budget, alpha, share)
                    entry.num_samples = n
                open_before, still = len(still), [entry for entry in still if not entry.question.decided]
                self.undecided -= open_before - len(still)
                if not still:
                    break
        scores: dict[str, list[np.ndarray]] = {}
        samples: dict[str, list[int]] = {}
        for entry in self._entries:
            scores.setdefault(entry.task, []).append(entry.question.scores(errors).reshape(entry.shape))
            samples.setdefault(entry.task, []).append(entry.num_samples)
        tasks = {
            name: TaskOutcome(len(of), int(sum(count >= self.budget for count in of)), float(np.median(of)))
            for name, of in samples.items()
        }
        return Outcome(scores, int(scored.sum()), len(self._pairs) * self.budget, tasks)

    def _batches(self) -> Iterator[list[_Entry]]:
        """The questions in parts that need no more images and texts than may race at once."""
        if not self._entries:  # a share of fewer questions than there are processes
            return
        if self._rows is None:
            yield self._entries
            return
        batch: list[_Entry] = []
        images: set[int] = set()
        texts: set[int] = set()
        for entry in _by_image(self._entries):
            own_images, own_texts = (set(column.tolist()) for column in self._pairs[entry.rows].T)
            more = len(own_images - images), len(own_texts - texts)
            if batch and (len(images) + more[0] > self._rows[0] or len(texts) + more[1] > self._rows[1]):
                yield batch
                batch, images, texts = [], set(), set()
            batch.append(entry)
            images |= own_images
            texts |= own_texts
        yield batch


def _by_image(entries: Iterable[_Entry]) -> list[_Entry]:
    """Neighbours share images: pairs are ordered by image."""
    return sorted(entries, key=lambda entry: int(entry.rows[0]))


def _share(entries: Sequence[_Entry], process: int, num_processes: int) -> list[_Entry]:
    """A process's share of the questions: neighbours. All processes have as many pairs."""
    entries = _by_image(entries)
    # A question belongs to the process in whose share the middle of its pairs lies.
    ends = np.cumsum([len(entry.rows) for entry in entries])
    middles = ends - np.array([len(entry.rows) for entry in entries]) / 2
    owner = np.minimum((middles * num_processes / ends[-1]).astype(np.int64), num_processes - 1)
    return [entry for entry, number in zip(entries, owner.tolist(), strict=True) if number == process]
