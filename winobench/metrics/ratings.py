"""Does a score rank images as people do? Agreement of scores with people's ratings, and its intervals.

Packages plug in the measures. Intervals are from a bootstrap over prompts, as the images of a prompt are easy or hard
together. All measures are ratios of sums over images, or over pairs of images, so that a resample is how often each
prompt was sampled. An image is never compared with a copy of itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from winobench.base import extensions
from winobench.base.errors import InputError
from winobench.metrics import bootstrap

NUM_RESAMPLES, _BATCH = 2_000, 256  # of the bootstrap


@dataclasses.dataclass(frozen=True)
class Rated:
    """Images with their scores and people's ratings."""

    scores: np.ndarray  # [n] float64, how well an image matches its prompt
    ratings: np.ndarray  # [n] float64, higher = better
    prompts: np.ndarray  # [n] int64, from 0 to the number of prompts - 1, each of which occurs

    @classmethod
    def of(cls, scores: ArrayLike, ratings: ArrayLike, prompts: Sequence[Hashable]) -> Rated:
        """The same of any labels of prompts."""
        numbers: dict[Hashable, int] = {}
        labels = np.array([numbers.setdefault(prompt, len(numbers)) for prompt in prompts], np.int64)
        x, y = np.asarray(scores, np.float64), np.asarray(ratings, np.float64)
        if x.ndim != 1 or not len(x) or not x.shape == y.shape == labels.shape:
            raise ValueError(f"ratings need a score, a rating and a prompt an image, got {x.shape} and {y.shape}.")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            raise ValueError("scores or ratings hold NaN or infinity.")
        return cls(x, y, labels)

    @property
    def num_prompts(self) -> int:
        return int(self.prompts.max()) + 1


class Measure(NamedTuple):
    """A number over rated images, of any sample of their prompts.

    ``of(counts)`` takes [b, prompts] float64, how often each prompt was sampled, and returns [b] float64; NaN where the
    number is undefined, as a correlation of images that all have one rating. ``chance`` is its value without any
    agreement, ``about`` what else ``results.json`` says of it.
    """

    of: Callable[[np.ndarray], np.ndarray]
    chance: float | None
    about: Mapping[str, float | int] = {}

    @property
    def is_correlation(self) -> bool:
        """Whether it lies in [-1, 1]. Others lie in [0, 1]."""
        return self.chance == 0

    def value(self, num_prompts: int) -> float:
        """The number over all prompts, each taken once."""
        return float(self.of(np.ones((1, num_prompts)))[0])


@dataclasses.dataclass(frozen=True)
class RatingMetric:
    """Measure of a scorer's agreement with people's ratings."""

    name: str
    measures: Callable[[Rated], Mapping[str, Measure]]  # by name
    headline: str  # the measure in short tables

    @property
    def shown(self) -> tuple[str, ...]:
        """The measures that charts and summaries show."""
        return (self.headline,)

    def described(self) -> dict[str, Any]:
        """Its record in ``config.json``."""
        return {"name": self.name, "headline": self.headline, "shown": list(self.shown), "higher_is_better": True}


class _RatingMetrics(Mapping[str, RatingMetric]):
    """The metrics that packages plug in. One is imported when it is requested."""

    def __getitem__(self, name: str) -> RatingMetric:
        if name not in self:
            raise KeyError(name)
        return extensions.find(extensions.RATING_METRICS, name)

    def __contains__(self, name: object) -> bool:
        return name in extensions.added(extensions.RATING_METRICS)

    def __iter__(self) -> Iterator[str]:
        return iter(extensions.added(extensions.RATING_METRICS))

    def __len__(self) -> int:
        return len(extensions.added(extensions.RATING_METRICS))


RATING_METRICS: Mapping[str, RatingMetric] = _RatingMetrics()
"""Name -> what a task whose images people have rated may name as its metric."""


def rating_results(
    metric: RatingMetric,
    scores: Sequence[np.ndarray],
    ratings: Sequence[Sequence[float]],
    prompts: Sequence[Hashable],
    groups: Sequence[Sequence[str]],
    *,
    seed: int = 0,
    num_resamples: int = NUM_RESAMPLES,
) -> dict[str, dict[str, Any]]:
    """All numbers of a task whose images people have rated: of all images first, then of each group.

    Returns row -> {"value", "low", "high" (95% interval), "chance" (or None), "n" (images), "ties" (images whose score
    another one has too), "prompts", and ``about`` of the measure}. Groups as ``<group>/<measure>``. Measures that are
    undefined, and measures of groups with one prompt, have no row.
    """

    def rated(indices: Sequence[int]) -> Rated:
        return Rated.of(
            np.concatenate([np.ravel(scores[index]) for index in indices]),
            np.concatenate([np.ravel(ratings[index]) for index in indices]),
            [prompts[index] for index in indices for _ in range(np.size(scores[index]))],
        )

    results = _rows(metric, rated(range(len(scores))), "", seed, num_resamples)
    if metric.headline not in results:
        raise InputError(
            f"these images have no {metric.headline}: it needs at least two prompts, and images that differ"
            " in score and rating",
            code="nothing-to-compare",
        )
    members: dict[str, list[int]] = {}
    for index, of_example in enumerate(groups):
        for group in of_example:
            members.setdefault(group, []).append(index)
    for group, indices in members.items():
        results |= _rows(metric, rated(indices), f"{group}/", seed, num_resamples)
    return results


def _rows(metric: RatingMetric, rated: Rated, prefix: str, seed: int, num_resamples: int) -> dict[str, dict[str, Any]]:
    if rated.num_prompts < 2:
        return {}
    _, same, sizes = np.unique(rated.scores, return_inverse=True, return_counts=True)
    counts = {"n": len(rated.scores), "ties": int((sizes[same] > 1).sum()), "prompts": rated.num_prompts}
    rows = {}
    for name, measure in metric.measures(rated).items():
        value = measure.value(rated.num_prompts)
        if np.isfinite(value):
            low, high = _interval(measure, rated.num_prompts, seed, num_resamples)
            ends = {"value": value, "low": min(low, value), "high": max(high, value)}
            chance = None if measure.chance is None else float(measure.chance)
            rows[f"{prefix}{name}"] = {**ends, "chance": chance, **counts, **measure.about}
    return rows


def _interval(
    measure: Measure, num_prompts: int, seed: int, num_resamples: int, level: float = 0.95
) -> tuple[float, float]:
    def statistic(drawn: np.ndarray) -> np.ndarray:
        rows = drawn.reshape(-1, drawn.shape[-1])
        counts = np.zeros((len(rows), num_prompts))
        np.add.at(counts, (np.arange(len(rows))[:, None], rows), 1.0)
        values = measure.of(counts)
        # A resample that has no value, as one of a single prompt's copies, shows no agreement.
        return np.where(np.isfinite(values), values, measure.chance or 0.0).reshape(drawn.shape[:-1])

    return bootstrap.interval(
        [num_prompts],
        statistic,
        level=level,
        num_resamples=num_resamples,
        seed=seed,
        batch=_BATCH,
        span=(-1.0, 1.0) if measure.is_correlation else (0.0, 1.0),
    )
