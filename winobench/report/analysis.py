"""Pure functions from right and wrong answers, or from per-sample errors, to the figures of a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench import metrics
from winobench.metrics import normalization, sample_mean
from winobench.runs.error_store import Batch, mean_scores
from winobench.runs.rows import Row
from winobench.runs.run import TaskRun

SUBSETS = 32  # of a run's samples, of each size, behind the accuracy against the number of samples
BAND = (5, 95)  # percentiles of the subsets' accuracies that the band shows
# A difference is clear with at least so many independent images whose answers differ, and up to this p-value, adjusted
# for the number of rows on a page.
FEW_CLUSTERS, CLEAR_BELOW = 10, 0.05
NO_NOISE = "‡"  # at marks without the noise of the samples
DRAWS = 200  # of a run's samples, which bring their noise into the intervals of differences
# Draws go half as far as the noise of the samples. Errors hold noise already: a whole step would have twice of it.
_STEP = 0.5

_FEWEST_POINTS = 4  # of a correlation
_SIZES = 12
_MAX_BINS = 12
_SAMPLES_A_BIN = 4

# Numbers held at once while many subsets are computed: some 64 MB of float64.
_AT_ONCE = 2**23


@dataclasses.dataclass(frozen=True)
class Difference:
    """The proportion of the second of two runs less the first one's, over the same examples.

    The interval is Tango's score interval for pairs and the p-value McNemar's, both at the effective number of
    independent examples: see `winobench.metrics.paired_difference` for the method and its sources.

    Attributes:
      name: the row of the results: a metric, or ``<group>/<metric>`` of a sub-task.
      first: the first run's proportion of right answers, in [0, 1], over the examples that both have answered.
      second: the second run's.
      value: second less first, in [-1, 1].
      low: lower end of the 95% interval of ``value``.
      high: upper end.
      p_value: two-sided, of no difference. At most 5% where the interval excludes 0.
      p_adjusted: the p-value after Benjamini and Hochberg's correction for all differences that are shown together.
      num_examples: that both runs have answered.
      only_first: examples that only the first run has right.
      only_second: examples that only the second run has right.
      clusters_apart: at least so many independent images (pairs of questions, in text tasks) have answers that differ.
      lacks_noise: whether the interval lacks the noise of samples, though the answers depend on samples.
      task: name of the task, or ``@<skill>`` of a mean over tasks.
    """

    name: str
    first: float
    second: float
    value: float
    low: float
    high: float
    p_value: float
    p_adjusted: float
    num_examples: int
    only_first: int
    only_second: int
    clusters_apart: int
    lacks_noise: bool = False
    task: str = ""

    @property
    def metric(self) -> str:
        """The metric, without a group."""
        return self.name.rpartition("/")[2]

    @property
    def group(self) -> str:
        """The sub-task. Empty for all examples of the task."""
        return self.name.rpartition("/")[0]

    @property
    def excludes_zero(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def is_clear(self) -> bool:
        """Whether chance is an unlikely reason, with all rows in view, by enough images."""
        return self.p_adjusted <= CLEAR_BELOW and self.clusters_apart >= FEW_CLUSTERS

    @property
    def mark(self) -> str:
        """``●`` where it is clear, ``○`` where the interval alone excludes 0, with ``‡`` where it lacks noise."""
        mark = "●" if self.is_clear else "○" if self.excludes_zero else ""
        return f"{mark} {NO_NOISE}" if mark and self.lacks_noise else mark


def paired_differences(first: Sequence[Row], second: Sequence[Row], dependence: metrics.Dependence) -> list[Difference]:
    """Paired differences second - first, as `winobench.metrics.paired_difference` computes them.

    Difficulty that both runs share cancels, and examples that depend on each other count as such. Where a row is
    redrawn, the intervals include the noise of its samples.
    """
    differences = []
    for row, other_row in zip(first, second, strict=True):
        if row.name != other_row.name or not np.array_equal(row.members, other_row.members):
            raise ValueError(f"the rows {row.name} and {other_row.name} are not over the same examples.")
        difference = metrics.paired_difference(
            row.correct, other_row.correct, dependence.take(row.members), strata=row.strata, **_noise(row, other_row)
        )
        differences.append(
            Difference(
                row.name,
                row.value,
                other_row.value,
                difference.value,
                difference.low,
                difference.high,
                difference.p_value,
                difference.p_value,
                num_examples=len(row.members),
                only_first=int(np.sum(row.correct & ~other_row.correct)),
                only_second=int(np.sum(other_row.correct & ~row.correct)),
                clusters_apart=difference.num_apart,
            )
        )
    return differences


def _noise(first: Row, second: Row) -> dict[str, Any]:
    """The arguments of `winobench.metrics.paired_difference` on the samples of two rows."""
    if first.redrawn is None and second.redrawn is None:
        return {}
    one, other = (row.correct[:, None] if row.redrawn is None else row.redrawn for row in (first, second))
    numbers = [row.num_samples for row in (first, second) if row.redrawn is not None and row.num_samples is not None]
    return {"replicates": np.subtract(other, one, dtype=np.float64) / _STEP, "freedom": min(numbers) - 1}


def adjusted(differences: Sequence[Difference]) -> list[Difference]:
    """The differences with p-values that are adjusted for their number."""
    rates = metrics.false_discovery_rates([difference.p_value for difference in differences])
    return [
        dataclasses.replace(difference, p_adjusted=rate) for difference, rate in zip(differences, rates, strict=True)
    ]


def shared_rows(first: TaskRun, second: TaskRun) -> tuple[np.ndarray, np.ndarray]:
    """The examples that two runs of a task have both answered: [m] row numbers in the one and in the other."""
    if first.examples is None or second.examples is None:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    places = {second.examples.key(row): row for row in range(len(second.examples.ids))}
    pairs = [(row, places[key]) for row in range(len(first.examples.ids)) if (key := first.examples.key(row)) in places]
    rows = np.array(pairs, np.int64).reshape(-1, 2)
    return rows[:, 0], rows[:, 1]


def select(record: TaskRun, rows: np.ndarray) -> TaskRun:
    """The task run with only these examples, in this order."""
    examples = record.answered
    values = {field.name: getattr(examples, field.name) for field in dataclasses.fields(examples)}
    lists: dict[str, Any] = {name: [own[row] for row in rows] for name, own in values.items() if isinstance(own, list)}
    parts = {name: correct[rows] for name, correct in examples.parts.items()}
    kept = dataclasses.replace(examples, correct=examples.correct[rows], parts=parts, **lists)
    return dataclasses.replace(record, examples=kept)


@dataclasses.dataclass(frozen=True)
class Overlap:
    """How the right answers of two runs overlap, in shares of the examples that both have answered."""

    num_examples: int
    both: float  # the four add up to 1
    only_first: float
    only_second: float
    neither: float
    expected_both: float  # if their answers were independent
    # Cohen's kappa of right and wrong, 0 under independence and 1 if they agree everywhere; None where both runs have
    # all right or all wrong, so that chance alone explains every agreement.
    kappa: float | None

    @property
    def shares(self) -> tuple[float, float, float, float]:
        return self.both, self.only_first, self.only_second, self.neither


def overlap(first: np.ndarray, second: np.ndarray) -> Overlap:
    """The overlap of right answers, from [n] bool of each run (Figure 8).

    Source of kappa: J. Cohen, Educational and Psychological Measurement 20 (1960).
    """
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    share, other_share = first.mean(), second.mean()
    both, neither = (first & second).mean(), (~first & ~second).mean()
    by_chance = share * other_share + (1 - share) * (1 - other_share)
    kappa = None if by_chance == 1 else float((both + neither - by_chance) / (1 - by_chance))
    return Overlap(
        num_examples=len(first),
        both=float(both),
        only_first=float((first & ~second).mean()),
        only_second=float((second & ~first).mean()),
        neither=float(neither),
        expected_both=float(share * other_share),
        kappa=kappa,
    )


def right_sets(correct: np.ndarray) -> list[tuple[tuple[bool, ...], int]]:
    """Runs that have an example right, [num_runs] bool, -> number of such examples, of [num_runs, n] bool.

    The most frequent first.
    """
    patterns, counts = np.unique(np.asarray(correct, bool).T, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return [(tuple(patterns[index].tolist()), int(counts[index])) for index in order]


def redrawn(
    batches: Sequence[Batch], targets: Sequence[int | None], metric: metrics.Metric, timesteps: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Right and wrong under resampled samples, which serve all examples alike: proportion -> [n, DRAWS] bool.

    In a resample each sample's error has a random normal weight of mean 1 (a multiplier bootstrap), so that means over
    samples vary half as much as between seeds. Two samples of opposite noise have one weight. Runs share the weight of
    a sample if its timestep ([num_samples] int, or noise levels) is the same: its noise may be the same, and the
    timestep's difficulty cancels.
    """
    num_samples = batches[0].own.shape[-1]
    levels = np.zeros(num_samples) if timesteps is None else np.asarray(timesteps, np.float64)
    generators = (np.random.default_rng([sample, bits]) for sample, bits in enumerate(levels.view(np.uint64).tolist()))
    units = sample_mean.units(levels)
    drawn = np.stack([generator.standard_normal(DRAWS) for generator in generators])[np.searchsorted(units, units)]
    # The deviations are from their mean, which lowers their variance. This makes up for it.
    weights = (1 + _STEP * np.sqrt(1 + 1 / units[-1]) * (drawn - drawn.mean(axis=0))) / num_samples
    outcomes: dict[str, np.ndarray] = {}
    for chunk in _chunks(batches, DRAWS):
        right = _right(_scores_under(chunk, weights), [targets[row] for row in chunk.rows], metric)
        for name, correct in right.items():
            outcomes.setdefault(name, np.zeros((len(targets), DRAWS), bool))[chunk.rows] = correct
    return outcomes


def pearson(first: Sequence[float], second: Sequence[float]) -> metrics.Interval | None:
    """Pearson's correlation with its 95% interval by Fisher's transformation. None for few points, or equal ones."""
    import scipy.stats  # late: it takes long, and few reports need it

    if len(first) < _FEWEST_POINTS or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    found = scipy.stats.pearsonr(first, second)
    return metrics.Interval(float(found.statistic), *map(float, found.confidence_interval(0.95)))


@dataclasses.dataclass(frozen=True)
class Curve:
    """Accuracy against the number of samples."""

    sizes: np.ndarray  # [m] int: the last one is all samples
    mean: np.ndarray  # [m], of the accuracies on random subsets
    low: np.ndarray  # their percentiles `BAND`
    high: np.ndarray


def sample_sizes(num_samples: int) -> np.ndarray:
    """At most a dozen numbers of samples, from 1 to all, in even steps on a logarithmic scale."""
    return np.unique(np.rint(np.geomspace(1, num_samples, min(_SIZES, num_samples))).astype(np.int64))


def accuracy_by_samples(
    batches: Sequence[Batch],
    targets: Sequence[int | None],
    metric: metrics.Metric,
    *,
    subsets: int = SUBSETS,
    seed: int = 0,
) -> dict[str, Curve]:
    """Accuracy on random subsets of the samples (Figure 9), under the normalisation that the scores have.

    Returns proportion, such as ``recall@1`` -> its curve. The last point is the value of the results.
    """
    num_samples = batches[0].own.shape[-1]
    sizes = sample_sizes(num_samples)
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(num_samples) for _ in range(subsets)]
    by_size = np.zeros((num_samples, len(sizes) - 1, subsets))
    for size_number, size in enumerate(sizes[:-1]):
        for subset, order in enumerate(orders):
            by_size[order[:size], size_number, subset] = 1 / size
    weights = by_size.reshape(num_samples, -1)
    total: dict[str, np.ndarray] = {}
    exact: dict[str, float] = {}
    count = 0
    for chunk in _chunks(batches, weights.shape[1]):
        wanted = [targets[row] for row in chunk.rows]
        for name, right in _right(mean_scores(chunk)[..., None], wanted, metric).items():
            exact[name] = exact.get(name, 0) + int(right.sum())
        for name, right in _right(_scores_under(chunk, weights), wanted, metric).items():
            total[name] = total.get(name, 0) + right.sum(axis=0)
        count += len(chunk.rows)
    curves = {}
    for name, sums in total.items():
        accuracies = (sums / count).reshape(len(sizes) - 1, subsets)
        last = [exact[name] / count]
        low, high = np.percentile(accuracies, BAND, axis=1) if len(sizes) > 1 else ([], [])
        points = zip((accuracies.mean(axis=1), low, high), [last] * 3, strict=True)
        curves[name] = Curve(sizes, *map(np.concatenate, points))
    return curves


@dataclasses.dataclass(frozen=True)
class Profile:
    """Errors of right and wrong candidates against the timestep."""

    timesteps: np.ndarray  # [bins] mean timestep of the samples in each bin
    edges: list[tuple[int, int]]  # the lowest and highest timestep of each
    # Name -> [3, bins] mean over examples and the ends of its 95% interval. ``right`` and ``wrong`` are errors,
    # ``wrong_minus_right`` their difference, ``right_relative`` and ``wrong_relative`` the errors less the
    # unconditional error of the same image, where that was scored.
    series: Mapping[str, np.ndarray]


def timestep_profile(
    batches: Sequence[Batch], timesteps: np.ndarray, targets: Sequence[int | None], dependence: metrics.Dependence
) -> Profile:
    """Mean errors of right and wrong candidates in bins of the timestep, or noise level (Figure 3).

    Each example counts its right and its wrong pairs once. The intervals are Student's, with a variance that includes
    the dependence between examples.
    """
    bins = timestep_bins(timesteps)
    weights = np.zeros((len(timesteps), len(bins)))
    for number, members in enumerate(bins):
        weights[members, number] = 1 / len(members)
    rows = np.concatenate([batch.rows for batch in batches])
    unconditional = normalization.UNCONDITIONAL.name
    relative = all(unconditional in batch.errors for batch in batches)
    parts: dict[str, list[np.ndarray]] = {}
    for batch in batches:
        errors = batch.own.astype(np.float64) @ weights  # [n, images, texts, bins]
        right = _right_pairs(batch, targets)[..., None]
        mean_right, mean_wrong = _masked_mean(errors, right), _masked_mean(errors, ~right)
        parts.setdefault("right", []).append(mean_right)
        parts.setdefault("wrong", []).append(mean_wrong)
        parts.setdefault("wrong_minus_right", []).append(mean_wrong - mean_right)
        if relative:
            errors = errors - batch.errors[unconditional].astype(np.float64) @ weights
            parts.setdefault("right_relative", []).append(_masked_mean(errors, right))
            parts.setdefault("wrong_relative", []).append(_masked_mean(errors, ~right))
    design = metrics.Design(dependence.take(rows))
    return Profile(
        timesteps=np.array([timesteps[members].mean() for members in bins]),
        edges=[(timesteps[members].min().item(), timesteps[members].max().item()) for members in bins],
        series={name: np.stack(design.means(np.concatenate(values))) for name, values in parts.items()},
    )


@dataclasses.dataclass(frozen=True)
class ImagePair:
    """The right image of an example's text and the wrong one with the lowest error, against the timestep."""

    row: int  # of the example
    images: tuple[int, int]  # places of the right and the wrong image in the example
    timesteps: np.ndarray  # [bins] mean timestep of the samples in each bin
    edges: list[tuple[int, int]]  # the lowest and highest timestep of each
    errors: np.ndarray  # [2, 2, bins]: right and wrong image, with the text and with the empty one
    means: np.ndarray  # [2, 2] the same over all samples

    @property
    def error_is_right(self) -> bool:
        """Whether the error alone is lower for the right image."""
        return bool(self.means[0, 0] < self.means[1, 0])


def image_pair(
    batches: Sequence[Batch], timesteps: np.ndarray, targets: Sequence[int | None], shown: Collection[int]
) -> ImagePair | None:
    """An example for Figure 3: two images compete for a text, and the error without text is known.

    The normalised error is lowest for the right image. Examples whose error alone is lower for a wrong one come first,
    then examples with kept images (``shown``), then the largest smaller one of both margins. None if missing.
    """
    unconditional = normalization.UNCONDITIONAL.name
    best: tuple[Any, ...] = ()
    pair_data = None
    for batch in batches:
        if batch.own.shape[1] < 2 or batch.own.shape[2] != 1 or unconditional not in batch.errors:
            continue
        own = batch.own[:, :, 0].astype(np.float64)  # [n, images, samples]
        empty = np.broadcast_to(batch.errors[unconditional], batch.own.shape)[:, :, 0].astype(np.float64)
        means = np.stack([own.mean(-1), empty.mean(-1)], -1)  # [n, images, 2]
        relative = means[..., 0] - means[..., 1]
        for position, row in enumerate(batch.rows):
            target = targets[row]
            if target is None or not np.isfinite(means[position]).all():
                continue
            others = np.delete(np.arange(own.shape[1]), target)
            wrong = int(others[np.argmin(means[position, others, 0])])
            margin = relative[position, others].min() - relative[position, target]
            misled = means[position, target, 0] - means[position, wrong, 0]
            if margin <= 0:
                continue
            rank = (misled > 0, row in shown, min(margin, misled) if misled > 0 else margin)
            if rank > best:
                best = rank
                pair = [target, wrong]
                pair_data = (
                    int(row),
                    (target, wrong),
                    np.stack([own[position, pair], empty[position, pair]], 1),
                    means[position, pair],
                )
    if pair_data is None:
        return None
    row, images, errors, means = pair_data
    bins = timestep_bins(timesteps)
    return ImagePair(
        row,
        images,
        np.array([timesteps[members].mean() for members in bins]),
        [(timesteps[members].min().item(), timesteps[members].max().item()) for members in bins],
        np.stack([errors[..., members].mean(-1) for members in bins], -1),
        means,
    )


def timestep_bins(timesteps: np.ndarray) -> list[np.ndarray]:
    """Indices of the samples in at most a dozen bins of about equal size. Equal timesteps share a bin."""
    timesteps = np.asarray(timesteps)
    num_bins = max(1, min(_MAX_BINS, len(timesteps) // _SAMPLES_A_BIN))
    if len(np.unique(timesteps)) <= _MAX_BINS // 2:
        return [np.flatnonzero(timesteps == value) for value in np.unique(timesteps)]
    inner = np.unique(np.quantile(timesteps, np.arange(1, num_bins) / num_bins, method="higher"))
    numbers = np.searchsorted(inner, timesteps, side="right")
    return [np.flatnonzero(numbers == number) for number in np.unique(numbers)]


def _chunks(batches: Sequence[Batch], sets: int) -> Iterator[Batch]:
    """Parts of the batches, for which so many sets of scores fit into memory."""
    for batch in batches:
        pairs_an_example = batch.own.shape[1] * batch.own.shape[2]
        step = max(1, _AT_ONCE // (pairs_an_example * max(1, sets)))
        for start in range(0, len(batch.rows), step):
            part = slice(start, start + step)
            errors = {name: values[part] for name, values in batch.errors.items()}
            yield dataclasses.replace(batch, rows=batch.rows[part], errors=errors)


def _scores_under(batch: Batch, weights: np.ndarray) -> np.ndarray:
    """[n, images, texts, sets] scores with [samples, sets] weights of the samples."""
    entering = {name: batch.mean.terms(values) for name, values in batch.errors.items()}
    return normalization.scores(batch.terms, entering, lambda values: values.astype(np.float64) @ weights)


def _right(scores: np.ndarray, targets: Sequence[int | None], metric: metrics.Metric) -> dict[str, np.ndarray]:
    """Outcome -> [n, sets] bool, right or wrong under many sets of scores, [n, images, texts, sets], at once."""
    wanted = None if targets[0] is None else np.asarray(targets, np.int64)
    return {name: outcome.correct for name, outcome in metric.judge(scores, wanted).items()}


def _right_pairs(batch: Batch, targets: Sequence[int | None]) -> np.ndarray:
    """[n, images, texts] bool: whether the text belongs to the image."""
    num_images, num_texts = batch.own.shape[1:3]
    right = np.zeros((len(batch.rows), num_images * num_texts), bool)
    wanted = [targets[row] for row in batch.rows]
    for row, target in enumerate(wanted):
        # The diagonal of the matrix, in its flat order, without a target.
        right[row, slice(None, None, num_texts + 1) if target is None else target] = True
    return right.reshape(-1, num_images, num_texts)


def _masked_mean(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """[n, bins] means of [n, images, texts, bins] over the pairs that [n, images, texts, 1] marks."""
    return np.where(mask, values, 0.0).sum(axis=(1, 2)) / mask.sum(axis=(1, 2))
