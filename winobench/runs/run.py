"""A finished run as arrays: examples or questions, answers, and the per-sample errors behind them."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from winobench import metrics
from winobench.base.errors import InputError
from winobench.base.text_tables import TableFormat
from winobench.metrics import sample_mean
from winobench.metrics.sample_mean import PLAIN, SampleMean
from winobench.runs import run_tables
from winobench.runs.columns import columns, read_table
from winobench.runs.error_store import Batch, ErrorStore, read_error_stores, read_race_store
from winobench.runs.examples import Examples

_IMAGE_COLUMNS = columns(image=pa.string(), jpeg=pa.binary())

BIAS_METRIC = "effect_size"
"""The metric of bias tasks, whose rows are effect sizes and not proportions."""

OTHER_METRIC = "other"
"""A metric that the run does not name: the examples' table alone marks right answers under it."""

TEXT_METRIC = "answers"
"""The metric of text tasks, whose examples say by themselves whether they are right."""


@dataclasses.dataclass(frozen=True, repr=False)
class TaskRun:
    """One task of one run."""

    name: str
    results: Mapping[str, Mapping[str, Any]]  # metric or <group>/<metric> -> its entry of results.json
    metric: str | None  # a name in METRICS or RATING_METRICS, or one of the three above; None without rows
    shown: tuple[str, ...]  # rows that charts and summaries show
    best: float  # value of a perfect answer to everything
    identity: Mapping[str, Any]  # version and fingerprint of the task's data
    examples: Examples | None
    num_samples: int | None  # a pair; None where the run does not record it
    timesteps: np.ndarray | None  # [num_samples] int, or noise levels; None without samples, and where not recorded
    deterministic: bool  # the scorer needs no samples
    mean: SampleMean = PLAIN  # over the samples
    threshold: float | None = None  # the score above which image and text match, where that was judged

    def __repr__(self) -> str:
        count = "no table of examples" if self.examples is None else f"{len(self.examples.ids):,} examples"
        return f"<TaskRun {run_tables.headline(self)}, {count}>"

    @property
    def answered(self) -> Examples:
        """The examples. Raises InputError for a run without their table."""
        if self.examples is None:
            reason = f"the run has no table of the examples of {self.name}: restore it, or evaluate again"
            raise InputError(reason, code="no-examples")
        return self.examples

    @property
    def num_units(self) -> int | None:
        """The number of samples that are independent of each other."""
        return self.num_samples if self.timesteps is None else int(sample_mean.units(self.timesteps)[-1]) + 1

    @property
    def is_bias(self) -> bool:
        return self.metric == BIAS_METRIC

    @property
    def is_rated(self) -> bool:
        return self.metric in metrics.RATING_METRICS

    @property
    def has_answers(self) -> bool:
        """Whether examples are right or wrong, each by itself."""
        return not (self.is_bias or self.is_rated)

    @property
    def judge(self) -> metrics.Metric | None:
        """The metric itself; None for bias, ratings and texts, and where its code is not available."""
        metric = None if self.metric is None else metrics.METRICS.get(self.metric)
        return None if metric is None else metric.at(self.threshold)

    @functools.cached_property
    def judged(self) -> dict[str, metrics.Outcome]:
        """The examples under each outcome of the metric. Empty without examples, or the metric's code."""
        if self.examples is None or self.judge is None:
            return {}
        return self.judge(self.examples.scores, self.examples.targets)


@dataclasses.dataclass(eq=False, repr=False)
class Run:
    """A finished run. Printing it gives the model, the folder and the first tasks. A notebook shows the table.

    Attributes:
      path: its folder.
      label: how tables and figures call it.
      config: the content of ``config.json``.
      results: the content of ``results.json``.
      tasks: in the order of the results.
      failed: task -> why it gave no numbers.
      notes: sentences on what the folder lacks.
    """

    path: pathlib.Path
    label: str
    config: Mapping[str, Any]
    results: Mapping[str, Any]
    tasks: Mapping[str, TaskRun]
    failed: Mapping[str, str]
    notes: list[str]

    def __repr__(self) -> str:
        return run_tables.few_lines(self)

    def _repr_html_(self) -> str:
        return run_tables.notebook(self)

    def table(self, format: TableFormat = "text", *, groups: bool = False) -> str:
        """The results as a table, a row a task and metric.

        Values, intervals and chance are in percent with one decimal. Effect sizes (bias tasks) and agreement with
        ratings are plain numbers, and then percentages have a percent sign. The intervals come from ``results``:
        see `winobench.metrics.wilson` for the formula and its sources.

        Args:
          format: ``"text"`` for a terminal, ``"markdown"``, ``"latex"`` (a ``tabular`` for the package booktabs), or
            ``"csv"``. CSV has the columns task, metric, group, value, low, high, chance, n, independent, ties
            and too_few, and numbers in full precision between 0 and 1. Special characters are escaped for each format.
          groups: whether to add the rows of sub-tasks, such as ``spatial/accuracy``.

        Returns:
          The table, with a line end after its last line.

        Raises:
          InputError: the format is unknown (``unknown-name``).
        """
        return run_tables.results_table([self], format, groups)

    @property
    def model(self) -> str:
        """The model's full name: of the registry, a hub id, or a path. The folder's name where the run has none."""
        launched = self.config.get("config") or {}
        return str(launched.get("model") or self.config.get("model") or self.path.resolve().name)

    @property
    def is_text(self) -> bool:
        """Whether questions came without images."""
        return "protocol" in (self.config.get("identity") or {})

    @property
    def protocol(self) -> str:
        """How the questions were put. Empty for runs with images."""
        return ", ".join(dict.fromkeys((self.config["identity"].get("protocol") or {}).values()))

    def has_raced(self, task: str) -> bool:
        """Whether the candidates of a task took as many samples as it took to decide."""
        return task in (self.results.get("race") or {}).get("tasks", {})

    @functools.cached_property
    def errors(self) -> list[ErrorStore]:
        """The recorded errors: a store for each way to sample and score."""
        return read_error_stores(self.path / "errors")

    def batches(self, task: str) -> list[Batch] | None:
        """The per-sample errors behind a task's scores.

        Returns:
          None where no complete set of errors reproduces the scores of the examples' table: the parts were deleted, or
          the scores were not made from them.
        """
        record = self.tasks[task]
        if record.examples is None or not record.has_answers or record.metric is None or self.is_text:
            return None
        for store in self.errors:
            batches = store.batches(record.examples, record.num_samples, record.mean)
            if batches is not None:
                return batches
        return None

    def recorded_batches(self, task: str) -> list[Batch] | None:
        """As `batches`. A race has NaN for each sample that it never computed."""
        record = self.tasks[task]
        if not self.has_raced(task) or record.examples is None or record.timesteps is None:
            return self.batches(task)
        store = read_race_store(self.path / "errors", record.timesteps.tolist())
        return None if store is None else store.raced_batches(record.examples, len(record.timesteps))

    def images(self, task: str) -> dict[str, bytes]:
        """SHA-256 of an image -> a small JPEG of it, for the examples that the run kept images of."""
        path = self.path / "gallery" / f"{task}.parquet"
        if task not in list(self.tasks) or not path.is_file():
            return {}
        table = read_table(path, _IMAGE_COLUMNS)
        return dict(zip(table["image"].to_pylist(), table["jpeg"].to_pylist(), strict=True))


def outcomes(record: TaskRun) -> dict[str, np.ndarray]:
    """Metric -> [n] bool, which examples are right, recomputed from the scores if the metric is installed."""
    if record.examples is None or not record.has_answers or record.metric in (TEXT_METRIC, None):
        return {}
    if record.judge is None:
        names = [name for name in record.results if "/" not in name]
        parts = {name: record.examples.parts[name] for name in names if name in record.examples.parts}
        return parts or {names[0]: record.examples.correct}
    return {name: outcome.correct for name, outcome in record.judged.items()}
