"""Weights of timesteps, learned from half of a run's recorded errors and judged on the other half."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import pathlib
from collections.abc import Sequence

import numpy as np

from winobench import metrics
from winobench.base import files
from winobench.base.errors import InputError
from winobench.metrics import normalization, timestep_weights
from winobench.metrics.sample_mean import SampleMean
from winobench.report import analysis
from winobench.runs import error_store
from winobench.runs.error_store import Batch
from winobench.runs.rows import rows_of
from winobench.runs.run import Run, TaskRun

FILE = "timestep_weights.json"
_BINS = 10
_RIDGE = 1e-3  # of the weights' squares, in the loss: decides between directions that part the answers equally well


@dataclasses.dataclass(frozen=True)
class Judged:
    """One row of a task's results on the half that was not learned from."""

    task: str
    uniform: float  # the proportion under equal weights
    learned: float
    difference: analysis.Difference  # learned less uniform, paired


@dataclasses.dataclass(frozen=True)
class Learned:
    """The weights that a run teaches."""

    curve: timestep_weights.Curve
    num_questions: int  # choices that they were learned from
    judged: tuple[Judged, ...]  # rows of the tasks, on the other examples


def learn(run: Run) -> Learned:
    """Learns weights from half of a run's examples and judges them on the others, without a network.

    Examples are halved by their first images, so that questions about one image are on one side. Every question counts
    alike. An example with several right answers (a matrix of images and texts) has a question a row and a column.
    """
    questions: list[tuple[np.ndarray, int]] = []
    parts = {}
    timesteps: np.ndarray | None = None
    for name, record in run.tasks.items():
        own, batches = record.timesteps, None if run.has_raced(name) else run.batches(name)
        if own is None or not batches or batches[0].own.shape[-1] != len(own):
            continue
        if timesteps is not None and not np.array_equal(timesteps, own):
            continue
        timesteps = own
        halves = [hashlib.sha256(f"half of {images[0]}".encode()).digest()[0] % 2 for images in record.answered.images]
        first_half = np.array(halves) == 0
        parts[name] = (record, batches, np.flatnonzero(~first_half))
        of_task = list(itertools.chain.from_iterable(_questions(record, batch, first_half) for batch in batches))
        questions += of_task
    if not questions or timesteps is None or len(np.unique(timesteps)) < 2:
        raise InputError(
            "no question of the run can teach weights of timesteps: it needs per-sample errors at several timesteps,"
            " and tasks in which candidates compete",
            code="nothing-to-learn",
        )
    curve = fit([scores for scores, _ in questions], [target for _, target in questions], timesteps)
    judged = [row for name, part in parts.items() for row in _judge(name, *part, curve)]
    return Learned(curve, len(questions), tuple(judged))


def fit(scores: Sequence[np.ndarray], targets: Sequence[int], timesteps: np.ndarray) -> timestep_weights.Curve:
    """Learns which timesteps distinguish the right candidate from the others.

    Multinomial logistic regression: the candidates' scores are sums over steps of the timestep of weight times the mean
    score there, with weights that are not negative, and the cross-entropy of the right candidate is least, with a small
    penalty of large weights. It is convex. ``scores`` of each question are [candidates, n], higher = better match, on n
    samples at ``timesteps`` [n].

    Source: Self-Bench (arXiv:2505.17955) learns a weight for each of its timesteps by this loss.
    """
    import scipy.optimize

    timesteps = np.asarray(timesteps)
    distinct = np.unique(timesteps)
    parts = np.array_split(distinct, min(_BINS, len(distinct)))
    edges = tuple(float((part[-1] + other[0]) / 2) for part, other in itertools.pairwise(parts))
    bins = np.searchsorted(edges, timesteps, side="right")
    share = np.eye(len(parts))[bins]  # [n, k]
    features = []
    for matrix, target in zip(scores, targets, strict=True):
        ahead = np.asarray(matrix, np.float64) - np.asarray(matrix, np.float64)[target]
        features.append(np.delete(ahead, target, axis=0) @ share / len(timesteps))
    # In units of each step's own differences, so that the penalty treats steps alike, however large their errors are.
    spread = np.sqrt(np.mean(np.concatenate(features) ** 2, axis=0))
    spread = np.where(spread > 0, spread, 1.0)
    features = [ahead / spread for ahead in features]

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _RIDGE * weights @ weights, 2 * _RIDGE * weights
        for ahead in features:
            logits = ahead @ weights
            most = max(0.0, logits.max(initial=0.0))
            total = np.exp(-most) + np.exp(logits - most).sum()
            value += (most + np.log(total)) / len(features)
            gradient = gradient + (np.exp(logits - most) / total) @ ahead / len(features)
        return value, gradient

    optimum = scipy.optimize.minimize(
        loss, np.ones(len(parts)), jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(parts)
    )
    weights = optimum.x / spread if optimum.x.any() else np.ones(len(parts))
    return timestep_weights.Curve(
        edges, tuple(float(value) for value in np.round(weights / (share @ weights).mean(), 4))
    )


def write(run: Run, learned: Learned) -> pathlib.Path:
    """Keeps the weights with the run, as `winobench.metrics.timestep_weights.parse` reads them."""
    path = run.path / FILE
    files.write_json(path, {**learned.curve.described(), "questions": learned.num_questions})
    return path


def _questions(record: TaskRun, batch: Batch, kept: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """The choices that examples of the kept half ask for: scores [candidates, samples], and the right one."""
    questions = []
    # [n, images, texts, samples] float64, whose mean is a score.
    for row, matrix in zip(batch.rows, normalization.scores(batch.terms, batch.errors), strict=True):
        if not kept[row]:
            continue
        target = record.answered.targets[row]
        if target is not None:
            questions.append((matrix.reshape(-1, matrix.shape[-1]), target))
        else:
            questions += [(matrix[:, number], number) for number in range(matrix.shape[1]) if matrix.shape[0] > 1]
            questions += [(matrix[number], number) for number in range(matrix.shape[0]) if matrix.shape[1] > 1]
    return questions


def _judge(
    name: str, record: TaskRun, batches: Sequence[Batch], rows: np.ndarray, curve: timestep_weights.Curve
) -> list[Judged]:
    """The task's own rows on some of its examples, under equal and under learned weights."""
    if not len(rows):
        return []
    under = []
    learned = timestep_weights.sample_weights(curve, [] if record.timesteps is None else record.timesteps.tolist())
    for mean in (SampleMean(), SampleMean(learned)):
        scores: list[np.ndarray] = list(record.answered.scores)
        for batch in batches:
            weighted = dataclasses.replace(batch, mean=mean)
            for row, matrix in zip(batch.rows, error_store.mean_scores(weighted), strict=True):
                scores[row] = matrix
        whole = dataclasses.replace(record, examples=dataclasses.replace(record.answered, scores=scores))
        under.append([row for row in rows_of(analysis.select(whole, rows)) if "/" not in row.name])
    dependence = metrics.Dependence.from_sets([record.answered.images[row] for row in rows])
    equal, weighted_rows = under
    differences = analysis.paired_differences(equal, weighted_rows, dependence)
    return [
        Judged(name, first.value, second.value, difference)
        for first, second, difference in zip(equal, weighted_rows, differences, strict=True)
    ]
