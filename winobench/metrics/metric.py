"""Metrics: the rule that judges answers, and all data on it for races, records and reports."""

from __future__ import annotations

import collections
import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
import pathlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winobench.base import files, near_names, registry
from winobench.base.errors import InputError

ENTRY_POINTS = "winobench.metrics"  # the group of entry points that plug in metrics: any name -> a `Metric`


class Outcome(NamedTuple):
    """The result of each example under one metric, [num_examples, ...] bool, with more axes for many sets of scores."""

    correct: np.ndarray
    tie: np.ndarray  # the answer hung on equal scores. It may still be wrong or right in any order


@dataclasses.dataclass(frozen=True)
class Decision:
    """Comparisons of candidates that decide a question under a metric, and that a race has to settle.

    ``tops`` are the sets of best candidates that the metric asks for: (1, 5) for the best one and the five best. A
    question is one image and some texts, or one text and some images, with a target. Empty for the diagonal.
    """

    tops: tuple[int, ...] = ()

    @property
    def is_diagonal(self) -> bool:
        """Whether n images and n texts belong together in order, and each pair is compared with the wrong ones."""
        return not self.tops

    @property
    def asks_for(self) -> str:
        return "as many images as texts, two at least" if self.is_diagonal else "one image or one text"

    def fits(self, shape: tuple[int, int]) -> bool:
        return shape[0] == shape[1] > 1 if self.is_diagonal else min(shape) == 1


@dataclasses.dataclass(frozen=True)
class Alone:
    """Rule that judges each pair of an image and a text by itself.

    ``judge`` is a `Metric`'s, of scores less the threshold: above 0 they match. ``combined`` belongs to a
    `Metric`, and ``chance`` gives the levels of all these rows, as a `Metric`'s does, if a coin decides on each pair.
    """

    judge: Callable[[np.ndarray, np.ndarray | None], Mapping[str, Outcome]]
    combined: Callable[[Mapping[str, np.ndarray]], Mapping[str, tuple[str, ...]]]
    chance: Callable[[tuple[int, int]], Mapping[str, float]]


@dataclasses.dataclass(frozen=True)
class Metric:
    """Rule that judges answers and sums up a task.

    Attributes:
      name: what a task calls it, and what ``config.json`` records.
      judge: ``judge(scores, targets) -> name -> Outcome``, one or more outcomes of examples that have one shape.
        ``scores`` is [n, images, texts, ...] float64, higher = better match. Trailing axes are sets of scores that are
        judged at once, and outcomes are [n, ...]. ``targets`` is [n] int64, an index along the longer axis, or None
        where the right answer is the diagonal. Raises ValueError for questions that it is not for.
      headline: the outcome by which an example counts as right or wrong in short tables.
      shown: the outcomes that charts and summaries show. The others follow from the same answers. The headline alone by
        default.
      chance: ``chance((images, texts)) -> outcome -> level in [0, 1]`` of guessing, for tasks that state none.
      decision: which comparisons decide a question. A race needs it; None if nothing shorter than all of them does.
      averages_groups: also give the mean over the task's groups, ``macro_<outcome>``, which differs from the mean over
        examples where groups differ in size.
      higher_is_better: False for metrics whose proportions count failures.
      pairs: ``pairs((images, texts)) -> [images, texts] bool``, which belong together in an example without a target,
        for pages that mark them. The diagonal by default.
      alone: how `at` judges pairs each by itself, where a threshold of the scores decides whether they match.
      threshold: the one by which that is judged.
      combined: ``combined(outcome -> [n] bool) -> row -> outcomes``, more rows of the results. Each counts the answers
        under its outcomes together.
    """

    name: str
    judge: Callable[[np.ndarray, np.ndarray | None], Mapping[str, Outcome]]
    headline: str
    shown: tuple[str, ...] = ()
    chance: Callable[[tuple[int, int]], Mapping[str, float]] = lambda shape: {}
    decision: Decision | None = None
    averages_groups: bool = False
    higher_is_better: bool = True
    pairs: Callable[[tuple[int, int]], np.ndarray] = lambda shape: np.eye(*shape, dtype=bool)
    alone: Alone | None = None
    threshold: float | None = None
    combined: Callable[[Mapping[str, np.ndarray]], Mapping[str, tuple[str, ...]]] = lambda answers: {}

    def __post_init__(self) -> None:
        if not self.shown:
            object.__setattr__(self, "shown", (self.headline,))

    def __call__(self, scores: Sequence[np.ndarray], targets: Sequence[int | None]) -> dict[str, Outcome]:
        """Judges examples that may differ in their number of candidates.

        Args:
          scores: [images, texts] floats an example, higher = better match.

        Returns:
          Name -> outcome over all examples, in the order of ``judge``.
        """
        alike: dict[tuple[Any, bool], list[int]] = {}
        for index, (matrix, target) in enumerate(zip(scores, targets, strict=True)):
            alike.setdefault((np.shape(matrix), target is None), []).append(index)
        if not alike:
            raise ValueError(f"{self.name} needs at least one example.")
        outcomes: dict[str, Outcome] = {}
        for (_, has_no_target), indices in alike.items():
            wanted = None if has_no_target else np.array([targets[index] for index in indices])
            judged = self.judge(np.stack([scores[index] for index in indices]), wanted)
            for name, outcome in judged.items():
                whole = outcomes.setdefault(name, Outcome(*(np.zeros(len(scores), bool) for _ in range(2))))
                whole.correct[indices], whole.tie[indices] = outcome
        return outcomes

    def mean_chance(
        self, outcome: str, shapes: Sequence[tuple[int, int]], strata: np.ndarray | None = None
    ) -> float | None:
        """The chance of an outcome over questions of these shapes, or the mean over strata. None where one has none."""
        levels = {shape: self.chance(shape).get(outcome) for shape in dict.fromkeys(shapes)}
        if not levels or None in levels.values():
            return None
        of_each = np.array([levels[shape] for shape in shapes], np.float64)
        if strata is None:
            return float(of_each.mean())
        return float((np.bincount(strata, of_each) / np.bincount(strata)).mean())

    def at(self, threshold: float | None) -> Metric:
        """The metric that also judges pairs alone, or the same one without a threshold."""
        if threshold is None or self.alone is None:
            return self
        alone, judge, chance = self.alone, self.judge, self.chance
        return dataclasses.replace(
            self,
            judge=lambda scores, targets: {
                **judge(scores, targets),
                **alone.judge(np.asarray(scores, np.float64) - threshold, targets),
            },
            chance=lambda shape: {**chance(shape), **alone.chance(shape)},
            combined=alone.combined,
            threshold=threshold,
        )

    def described(self) -> dict[str, Any]:
        """The record in ``config.json``: enough to show a run where the metric's code is not available."""
        names = {"name": self.name, "headline": self.headline, "shown": list(self.shown)}
        threshold = {} if self.threshold is None else {"threshold": self.threshold}
        return {**names, "higher_is_better": self.higher_is_better, **threshold}


class Metrics(collections.UserDict[str, Metric]):
    """Name -> metric: winobench's, and those that other packages plug in, which are read when they are first needed."""

    def __init__(self, own: Mapping[str, Metric]):
        super().__init__(own)
        self._own = dict(own)
        self.broken: list[str] = []  # a sentence for each plug-in that has failed
        self._places: dict[str, str] = {}  # name of a metric from a file -> that file

    def named(self, word: str) -> Metric:
        """The metric that a user names: by its name, or as ``FILE.py:NAME``, a `Metric` in a Python file.

        A metric from a file is one of these metrics from then on, under its own name.

        Raises:
          InputError: the name is unknown, the file fails, or it has no such metric. The message names near ones.
        """
        file, _, name = word.rpartition(":")
        if not file.endswith(".py"):
            self.check(word)
            return self[word]
        metric = _metric_in(pathlib.Path(files.user_path(file)), name)
        if metric.name in self and self._places.get(metric.name) != os.path.abspath(file):
            raise InputError(
                f"{word} has the name {metric.name!r}, as another metric has: rename it", code="already-exists"
            )
        self._places[metric.name] = os.path.abspath(file)
        self.data[metric.name] = metric
        return metric

    def check(self, name: str, *more: str, what: str = "") -> None:
        """Refuses an unknown name with near ones, and with the plug-ins that may have had it. ``more`` are known."""
        known = [*self, *more]
        if name in known:
            return
        choices = f"choose one of {', '.join(known)}, or name a metric in a file, FILE.py:NAME."
        hint = near_names.did_you_mean(name, known, choices)
        if self.broken:
            hint += f" It may be missing because {'; '.join(self.broken)}: correct that package, or uninstall it"
        code = "broken-plug-in" if self.broken else "unknown-metric"
        raise InputError(f"{what}metric {name!r:.80} is unknown: {hint}", code=code)

    def is_own(self, name: str) -> bool:
        """Whether winobench defines this metric, so that the version fixes its results."""
        return name in self._own and self.data.get(name) is self._own[name]

    def __contains__(self, name: object) -> bool:
        return name in self.data or name in self._plugged_in

    def __getitem__(self, name: str) -> Metric:
        return self.data[name] if name in self.data else self._plugged_in[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.data, **self._plugged_in})

    def __len__(self) -> int:
        return len({**self.data, **self._plugged_in})

    @functools.cached_property
    def _plugged_in(self) -> dict[str, Metric]:
        plugins: dict[str, Metric] = {}
        self.broken.clear()
        for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
            where = registry.entry_point(entry)
            # A broken plug-in must not take the others away.
            try:
                metric = entry.load()
                if not isinstance(metric, Metric):
                    raise TypeError(f"{metric!r:.80} is not a winobench.metrics.Metric")
                if metric.name in self.data or metric.name in plugins:
                    raise ValueError(f"there is a metric {metric.name!r} already")
                plugins[metric.name] = metric
            except (Exception, SystemExit) as error:
                self.broken.append(f"{where} adds no metric: {type(error).__name__}: {error}")
                warnings.warn(self.broken[-1], stacklevel=2)
        return plugins


def _metric_in(path: pathlib.Path, name: str) -> Metric:
    """A metric that a Python file has under a name."""
    if not path.is_file():
        raise InputError(f"the metric's file {path} does not exist: name another one", code="no-such-file")
    with registry.foreign_code(f"the metric's file {path}"):
        spec = importlib.util.spec_from_file_location(f"winobench_metric_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ImportError("it is not a Python file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    metrics = {key: value for key, value in vars(module).items() if isinstance(value, Metric)}
    if name not in metrics:
        hint = near_names.did_you_mean(name, metrics, f"it has {', '.join(metrics) or 'none'}.")
        raise InputError(f"{path} has no winobench.metrics.Metric called {name!r}: {hint}", code="unknown-metric")
    return metrics[name]
