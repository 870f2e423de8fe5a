"""Run folders as arrays: what was asked, the answers, and the per-sample errors behind them.

Runs of text benchmarks have responses in place of errors, and questions in place of images and candidates; what they
share with the others (who was right on which example) has the same form.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from winobench import json_files, metrics, parquet_files
from winobench.data.images import image_hash
from winobench.errors import InputError
from winobench.evaluation import records
from winobench.evaluation import schema as schemas
from winobench.evaluation.plan import EMPTY_TEXT, GRAY_IMAGE, Question, text_hash
from winobench.evaluation.summary import image_dependence
from winobench.files import user_path
from winobench.metrics import association, normalization
from winobench.report.labels import model_label, shortened

# Recomputed scores may differ from stored ones by the order of a sum in float64, relative to the largest score.
_SAME_SCORE = 1e-9
# What a part says about its errors; those that agree in all of it were scored in the same way.
_SAME_SCORING = (b"winobench.scores", b"winobench.timesteps", b"winobench.error")

# Of a model's name and of each thing that tells runs of one model apart: what tables and legends have room for.
_MOST_LETTERS, _MOST_LETTERS_MORE = 32, 26
_MOST_LETTERS_OF_A_TASK = 200


def _fields(**kinds: pa.DataType) -> pa.Schema:
    """The columns that a table must have, none of which may lack a value; names that end with _ may."""
    return pa.schema([pa.field(name.rstrip("_"), kind, nullable=name.endswith("_")) for name, kind in kinds.items()])


_STRINGS = pa.list_(pa.string())
_EXAMPLE_COLUMNS = _fields(
    id=pa.string(),
    groups=_STRINGS,
    images=_STRINGS,
    texts=_STRINGS,
    target_=pa.int64(),
    scores=pa.list_(pa.list_(pa.float64())),
    correct_=pa.bool_(),
)
_QUESTION_COLUMNS = _fields(
    id=pa.string(),
    groups=_STRINGS,
    pair_=pa.string(),
    texts=pa.map_(pa.string(), pa.string()),
    options=_STRINGS,
    answer_=pa.int64(),
    status=pa.string(),
    choice_=pa.int64(),
    choices=pa.list_(pa.int64()),
    scores_=pa.list_(pa.float64()),
    responses=_STRINGS,
    correct_=pa.bool_(),
)
_PICTURE_COLUMNS = _fields(image=pa.string(), jpeg=pa.binary())
_ERROR_COLUMNS = _fields(image=pa.string(), text=pa.string(), first_sample=pa.int64(), errors=pa.list_(pa.float32()))

# By which runs are known that do not name their metrics.
_ROWS_OF_OLD_RUNS = {
    "accuracy": {"accuracy"},
    "macro_accuracy": {"accuracy", "macro_accuracy"},
    "recall": {"recall@1", "recall@5"},
    "winoground": {"text", "image", "group"},
}

BIAS_METRIC = "effect_size"
"""The metric of bias tasks, whose rows are effect sizes and not proportions."""

OTHER_METRIC = "other"
"""A metric that the run does not name: the examples' table alone says what is right under it."""

TEXT_METRIC = "answers"
"""The metric of text tasks, whose examples say by themselves whether they are right."""


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
        numbers: dict[str, int] = {}
        questions = [
            Question(
                id=self.ids[row],
                images=tuple(numbers.setdefault(image, len(numbers)) for image in self.images[row]),
                texts=tuple(range(len(self.texts[row]))),
                target=self.targets[row],
                groups=self.groups[row],
            )
            for row in range(len(self.ids))
        ]
        return image_dependence(questions)

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
      num_failed: questions that are left out.
    """

    named: list[dict[str, str]] = dataclasses.field(default_factory=list)
    options: list[tuple[str, ...]] = dataclasses.field(default_factory=list)
    pairs: list[str | None] = dataclasses.field(default_factory=list)
    choices: list[int | None] = dataclasses.field(default_factory=list)
    orders: list[tuple[int | None, ...]] = dataclasses.field(default_factory=list)
    responses: list[tuple[str | None, ...]] = dataclasses.field(default_factory=list)
    num_failed: int = 0

    @functools.cached_property
    def dependence(self) -> metrics.Dependence:
        """Questions of a pair depend on each other."""
        return metrics.Dependence.of_labels(
            ("pair", pair) if pair is not None else ("question", name)
            for pair, name in zip(self.pairs, self.ids, strict=True)
        )


@dataclasses.dataclass(frozen=True)
class Batch:
    """Errors of those examples of a task that have the same number of images and texts.

    Attributes:
      rows: [n] int, which examples.
      errors: name of a term -> [n, images or 1, texts or 1, samples] float32, of all terms that were scored.
      terms: what the task's scores are made of.
    """

    rows: np.ndarray
    errors: Mapping[str, np.ndarray]
    terms: tuple[normalization.Term, ...] = (normalization.OWN,)

    @property
    def own(self) -> np.ndarray:
        """[n, images, texts, samples] float32 errors of the examples' pairs themselves."""
        return self.errors[normalization.OWN.name]


@dataclasses.dataclass(frozen=True)
class TaskRun:
    """One task of one run.

    Attributes:
      name: the task's.
      results: metric or ``<group>/<metric>`` -> its entry of ``results.json``.
      metric: what the run calls it: a name in `winobench.metrics.METRICS`, unless the package that plugs it in is not
        there; ``effect_size`` for bias, ``answers`` for texts; ``other`` where the run does not say and the rows do not
        tell, None where there are no rows.
      shown: its rows that charts and summaries show.
      best: value of a perfect answer to everything, 1; or 0 where lower is better.
      identity: version and fingerprint of the task's data, as the run recorded them.
      examples: None where the run has no table of them.
      num_samples: samples a pair; None where the run does not say.
      timesteps: [num_samples] int; None for a deterministic scorer, and where the run did not record them.
      deterministic: the scorer needs no samples.
    """

    name: str
    results: Mapping[str, Mapping[str, Any]]
    metric: str | None
    shown: tuple[str, ...]
    best: float
    identity: Mapping[str, Any]
    examples: Examples | None
    num_samples: int | None
    timesteps: np.ndarray | None
    deterministic: bool

    @property
    def is_bias(self) -> bool:
        """Whether the rows are effect sizes."""
        return self.metric == BIAS_METRIC

    @property
    def judge(self) -> metrics.Metric | None:
        """The metric itself; None for bias and texts, and where its code is not at hand."""
        return None if self.metric is None else metrics.METRICS.get(self.metric)


@dataclasses.dataclass
class Run:
    """A finished run.

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

    @property
    def model(self) -> str:
        """The model's full name: of the registry, a hub id, or a path; the folder's name where the run has none."""
        launched = self.config.get("config") or {}
        return str(launched.get("model") or self.config.get("model") or self.path.resolve().name)

    @property
    def is_text(self) -> bool:
        """Whether questions were asked without images."""
        return "protocol" in (self.config.get("identity") or {})

    @property
    def protocol(self) -> str:
        """How the questions were put; empty for runs with images."""
        return ", ".join(dict.fromkeys((self.config["identity"].get("protocol") or {}).values()))

    def has_raced(self, task: str) -> bool:
        """Whether the candidates of a task took as many samples as it took to decide."""
        return task in (self.results.get("race") or {}).get("tasks", {})

    @functools.cached_property
    def errors(self) -> list[ErrorStore]:
        """The recorded errors, those of one way to sample and score in one store."""
        return read_error_stores(self.path / "errors")

    def batches(self, task: str) -> list[Batch] | None:
        """The per-sample errors behind a task's scores.

        Returns:
          None where no complete set of errors reproduces the scores of the examples' table: the parts were deleted, or
          the scores were not made from them.
        """
        record = self.tasks[task]
        if record.examples is None or record.is_bias or record.metric is None or self.is_text:
            return None
        for store in self.errors:
            batches = store.batches(record.examples, record.num_samples)
            if batches is not None:
                return batches
        return None

    def pictures(self, task: str) -> dict[str, bytes]:
        """SHA-256 of an image -> a small JPEG of it, for the examples that the run kept pictures of."""
        path = self.path / "gallery" / f"{task}.parquet"
        if not path.is_file():
            return {}
        table = _read_table(path, _PICTURE_COLUMNS)
        return dict(zip(table["image"].to_pylist(), table["jpeg"].to_pylist(), strict=True))


class ErrorStore:
    """Per-sample errors of (image, text) pairs that were scored in the same way."""

    def __init__(self, table: pa.Table):
        self._images, image_codes = parquet_files.encoded(table["image"])
        self._texts, text_codes = parquet_files.encoded(table["text"])
        errors = table["errors"].combine_chunks()
        offsets = errors.offsets.to_numpy()
        self._flat = errors.values.to_numpy(zero_copy_only=False)
        keys = image_codes * max(1, len(self._texts)) + text_codes
        order = np.argsort(keys, kind="stable")  # stable: where a sample was scored twice, the later part counts
        self._keys = keys[order]
        self._starts = offsets[:-1][order].astype(np.int64)
        self._lengths = np.diff(offsets)[order].astype(np.int64)
        self._first = table["first_sample"].to_numpy()[order].astype(np.int64)

    def pairs(self, images: Sequence[str], texts: Sequence[str], num_samples: int | None = None) -> np.ndarray | None:
        """Errors of pairs.

        Args:
          images: hash of each pair's image.
          texts: hash of each pair's text.
          num_samples: how many; None for as many as every one of the pairs has.

        Returns:
          [num_pairs, num_samples] float32, or None where one of them was not scored.
        """
        image_codes = np.array([self._images.get(image, -1) for image in images], np.int64)
        text_codes = np.array([self._texts.get(text, -1) for text in texts], np.int64)
        if not len(image_codes) or image_codes.min() < 0 or text_codes.min() < 0:
            return None
        keys = image_codes * len(self._texts) + text_codes
        first, last = np.searchsorted(self._keys, keys, "left"), np.searchsorted(self._keys, keys, "right")
        counts = last - first
        if counts.min() == 0:
            return None
        pair = np.repeat(np.arange(len(keys)), counts)
        rows = parquet_files.ranges(first, counts)
        ends = self._first[rows] + self._lengths[rows]
        if num_samples is None:
            reach = np.zeros(len(keys), np.int64)
            np.maximum.at(reach, pair, ends)
            num_samples = int(reach.min())
        errors = np.full(len(keys) * num_samples, np.nan, np.float32)
        kept = np.minimum(ends, num_samples) - self._first[rows]
        inside = kept > 0
        pair, rows, kept = pair[inside], rows[inside], kept[inside]
        into = parquet_files.ranges(pair * num_samples + self._first[rows], kept)
        errors[into] = self._flat[parquet_files.ranges(self._starts[rows], kept)]
        return None if np.isnan(errors).any() else errors.reshape(len(keys), num_samples)

    def batches(self, examples: Examples, num_samples: int | None) -> list[Batch] | None:
        """The errors behind the scores of examples; None where they are incomplete or give other scores."""
        by_shape: dict[tuple[int, int], list[int]] = {}
        for row, matrix in enumerate(examples.scores):
            by_shape.setdefault(matrix.shape, []).append(row)
        hashes = {text: text_hash(text) for texts in set(examples.texts) for text in texts}
        batches = []
        for rows in by_shape.values():
            errors = self._errors_of_terms(examples, rows, hashes, num_samples)
            if errors is None:
                return None
            stored = np.stack([examples.scores[row] for row in rows])
            batch = _reproducing(Batch(np.array(rows), errors), stored, examples.terms)
            if batch is None:
                return None
            batches.append(batch)
        return batches

    def _errors_of_terms(
        self, examples: Examples, rows: Sequence[int], hashes: Mapping[str, str], num_samples: int | None
    ) -> dict[str, np.ndarray] | None:
        """``Batch.errors`` of examples of one shape; None where those of their pairs themselves are incomplete."""
        empty_hash, gray_hash = text_hash(EMPTY_TEXT), image_hash(GRAY_IMAGE)
        found: dict[str, np.ndarray] = {}
        for term in normalization.TERMS.values():
            images = [(gray_hash,) if term.of_gray_image else examples.images[row] for row in rows]
            texts = [
                (empty_hash,) if term.of_empty_text else [hashes[text] for text in examples.texts[row]] for row in rows
            ]
            asked = [(image, text) for row in range(len(rows)) for image in images[row] for text in texts[row]]
            errors = self.pairs([image for image, _ in asked], [text for _, text in asked], num_samples)
            if errors is not None:
                num_samples = errors.shape[-1]
                found[term.name] = errors.reshape(len(rows), len(images[0]), len(texts[0]), -1)
            elif term is normalization.OWN:
                return None
        return found


def mean_scores(batch: Batch) -> np.ndarray:
    """Scores from errors: their means over samples, added up as the task's normalisation says.

    In float64 and in the order in which an evaluation computes them, so that ties are the same.

    Returns:
      [n, images, texts] float64, higher = better match.
    """
    return normalization.scores(batch.terms, batch.errors, lambda values: values.mean(axis=-1, dtype=np.float64))


def read_runs(paths: Sequence[str | os.PathLike]) -> list[Run]:
    """Reads runs and gives each a name of its own.

    Raises:
      InputError: no run, one that is named twice, runs with and without images, or one that `read_run` refuses.
    """
    if not paths:
        raise InputError("no run is named: python -m launch.report RUN [RUN ...], with the folders of finished runs.")
    folders = [pathlib.Path(user_path(path)) for path in paths]
    for number, folder in enumerate(folders):
        # Where links go in circles, pathlib raises.
        if os.path.realpath(folder) in map(os.path.realpath, folders[:number]):
            raise InputError(f"run {folder} is named twice: name each run once.")
    runs = [read_run(folder) for folder in folders]
    kinds = {run.is_text: run.path for run in runs}
    if len(kinds) > 1:
        raise InputError(
            f"{kinds[True]} is a run of a text benchmark and {kinds[False]} one with images, which have nothing in"
            " common: make a report on each kind."
        )
    tell_apart(runs)
    return runs


def read_run(path: str | os.PathLike) -> Run:
    """Reads a run's folder; its errors are read when they are asked for.

    Raises:
      InputError: there is no such folder, it holds no run, one that has not finished, or one of another layout, or a
        file of it cannot be read.
    """
    path = pathlib.Path(user_path(path))
    if not os.path.isdir(path):  # pathlib raises where a name is too long
        raise InputError(f"there is no folder {path}: name the folder of a run, which launch.eval prints first.")
    config_path, results_path = path / "config.json", path / "results.json"
    if not config_path.is_file():
        raise InputError(f"{path} is no run of winobench: it has no config.json; name a folder that launch.eval made.")
    config = _read_json(config_path)
    schema = config.get("schema")
    if not isinstance(schema, int) or not 1 <= schema <= records.SCHEMA_VERSION or "identity" not in config:
        raise InputError(
            f"{config_path} has the layout {schema}, and this version of winobench reads 1 to "
            f"{records.SCHEMA_VERSION}: evaluate again, or use the version that wrote it."
        )
    _check(config, schemas.Config, config_path)
    if not results_path.is_file():
        raise InputError(
            f"the run in {path} has no results yet (status: {config.get('status', 'unknown')}): give its launch.eval "
            "command again, which goes on where it stopped, and then report it."
        )
    results = _read_json(results_path)
    if not isinstance(results.get("tasks"), dict) or not results["tasks"]:
        raise InputError(f"{results_path} has no tasks: evaluate again with --overwrite.")
    _check(results, schemas.Results, results_path)
    for name in results["tasks"]:
        # It is a part of files' names.
        if not name or len(name) > _MOST_LETTERS_OF_A_TASK or not name.isprintable() or "/" in name:
            raise InputError(f"{results_path} has a task of the odd name {name[:_MOST_LETTERS]!r}: restore the file.")
    notes = []
    if config.get("status") != "finished":
        notes.append(f"The run's status is “{config.get('status')}”: its numbers are those of its last complete pass.")
    rounds = {task: described for described in config.get("rounds") or [] for task in described.get("tasks", [])}
    tasks = {}
    for name, entries in results["tasks"].items():
        recorded = _recorded_metric(entries, (config.get("metrics") or {}).get(name))
        if recorded["headline"] and recorded["headline"] not in entries:
            raise InputError(
                f"{results_path} has no {recorded['headline']!r} of {name}, which is the headline of its metric "
                f"{recorded['name']!r} in {config_path}: restore them, or evaluate again with --overwrite."
            )
        if recorded["name"] != BIAS_METRIC:
            for row, entry in entries.items():
                _check(entry, schemas.Proportion, f"tasks.{name}.{row} of {results_path}")
        task = tasks[name] = _task_run(path, name, entries, recorded, rounds.get(name), config["identity"])
        if task.examples is None:
            notes.append(f"The run has no table of the examples of {name}: only its numbers are shown.")
        elif task.metric not in (BIAS_METRIC, TEXT_METRIC) and task.judge is None:
            notes.append(
                f"The metric of {name} is not winobench's own, nor that of an installed package: right and wrong are "
                "taken as the run recorded them, and accuracy against the number of samples is not drawn."
            )
    run = Run(path, "", config, results, tasks, dict(results.get("failed") or {}), notes)
    run.label = short_label(run)
    return run


def _recorded_metric(entries: Mapping[str, Mapping[str, Any]], recorded: schemas.Metric | None) -> schemas.Metric:
    """How a task was judged, as ``config.json`` says, or by the names of its rows where that is of an older version."""
    if recorded is not None:
        return recorded
    if any("p_one_sided" in entry or "pairs" in entry for entry in entries.values()):
        return {"name": BIAS_METRIC, "headline": association.AVERAGE, "shown": [association.AVERAGE]}
    names = [name for name in entries if "/" not in name]
    for metric, rows in _ROWS_OF_OLD_RUNS.items():
        if set(names) == rows:
            return metrics.METRICS[metric].described()
    return {"name": OTHER_METRIC if names else "", "headline": "", "shown": names[:1]}


def outcomes(record: TaskRun) -> dict[str, np.ndarray]:
    """Metric -> [n] bool, right or wrong of each example, recomputed from the examples' scores.

    Of a plug-in's metric, whose function is not at hand, what the run recorded.
    """
    if record.examples is None or record.metric in (BIAS_METRIC, TEXT_METRIC, None):
        return {}
    if record.judge is None:
        names = [name for name in record.results if "/" not in name]
        parts = {name: record.examples.parts[name] for name in names if name in record.examples.parts}
        return parts or {names[0]: record.examples.correct}
    answers = record.judge(record.examples.scores, record.examples.targets)
    return {name: outcome.correct for name, outcome in answers.items()}


def read_error_stores(folder: pathlib.Path) -> list[ErrorStore]:
    """The parts in a run's ``errors`` folder, those that were scored in the same way together.

    Raises:
      InputError: a part cannot be read.
    """
    tables: dict[tuple[bytes, ...], list[pa.Table]] = {}
    for path in sorted(folder.glob("part-*.parquet")):
        table = _read_table(path, _ERROR_COLUMNS)
        said = table.schema.metadata or {}
        tables.setdefault(tuple(said.get(key, b"") for key in _SAME_SCORING), []).append(table)
    return [
        ErrorStore(pa.concat_tables([part.replace_schema_metadata(None) for part in parts]))
        for parts in tables.values()
    ]


def short_label(run: Run) -> str:
    """What a run is called where its model is no other run's."""
    return shortened(model_label(str(run.config.get("model") or run.model)), _MOST_LETTERS)


def tell_apart(runs: Sequence[Run]) -> None:
    """Adds to equal labels what differs between their runs, as little of it as will do.

    That is the part of the model's name above the last one, the normalisation, the samples a pair, the scorer's dtype,
    its quantization, else the name of the run's folder; runs that agree in all of them are numbered.
    """
    by_label: dict[str, list[Run]] = {}
    for run in runs:
        by_label.setdefault(run.label, []).append(run)
    for label, alike in by_label.items():
        told: list[tuple[str, ...]] = [() for _ in alike]
        for said in (
            _different_parts([run.model for run in alike]),
            [run.protocol for run in alike],
            [f"normalize {run.config['identity'].get('normalize')}" for run in alike],
            [_samples_said(run) for run in alike],
            [str((run.config["identity"].get("scorer") or {}).get("dtype") or "") for run in alike],
            [str((run.config["identity"].get("scorer") or {}).get("quantization") or "") for run in alike],
            [run.path.resolve().name for run in alike],
        ):
            if len(set(told)) == len(alike):
                break
            if len(set(said)) > 1:
                told = [(*before, shortened(more, _MOST_LETTERS_MORE)) for before, more in zip(told, said, strict=True)]
        for run, more in zip(alike, told, strict=True):
            run.label = f"{label} ({', '.join(filter(None, more))})" if any(more) else label
    labels = [run.label for run in runs]
    for number, run in enumerate(runs):
        if labels.count(run.label) > 1:
            run.label = f"{run.label} {number + 1}"


def _different_parts(models: Sequence[str]) -> list[str]:
    """Of the names' parts before the last one, those nearest to it in which the names differ; empty if none do."""
    parts = [re.split(r"[/\\]", model.rstrip("/\\"))[-2::-1] for model in models]
    for some in itertools.zip_longest(*parts, fillvalue=""):
        if len(set(some)) > 1:
            return list(some)
    return [""] * len(models)


def _samples_said(run: Run) -> str:
    counts = [task.num_samples for task in run.tasks.values() if not (task.deterministic or task.is_bias)]
    known = [count for count in counts if count is not None]
    return f"{max(known):,} samples" if known else ""


def _task_run(
    path: pathlib.Path,
    name: str,
    entries: Mapping[str, Mapping[str, Any]],
    recorded: schemas.Metric,
    described: Mapping[str, Any] | None,
    identity: Mapping[str, Any],
) -> TaskRun:
    table_path = path / "examples" / f"{name}.parquet"
    if "protocol" in identity:
        return TaskRun(
            name=name,
            results=entries,
            metric=TEXT_METRIC,
            shown=tuple(row for row in entries if "/" not in row)[:1],
            best=1.0,
            identity=(identity.get("tasks") or {}).get(name, {}),
            examples=_read_questions(table_path) if table_path.is_file() else None,
            num_samples=None,
            timesteps=None,
            deterministic=True,
        )
    if described is None:  # a run from before rounds were recorded: one way to sample for all tasks
        sampling = identity.get("sampling") or {}
        # The published rule chooses another number of timesteps than it is given.
        num_samples = None if sampling.get("timesteps") == "published" else sampling.get("num_samples")
        given = sampling.get("timesteps")
        timesteps = np.array(given, np.int64) if isinstance(given, list) else None
        deterministic = False
    else:
        given = described.get("timesteps")
        timesteps = None if given is None else np.array(given, np.int64)
        num_samples = described.get("num_samples") if given is None else len(given)
        deterministic = given is None
    metric = recorded["name"] or None
    return TaskRun(
        name=name,
        results=entries,
        metric=metric,
        shown=tuple(recorded["shown"]),
        best=1.0 if recorded.get("higher_is_better", True) else 0.0,
        identity=(identity.get("tasks") or {}).get(name, {}),
        examples=_read_examples(table_path, metric) if table_path.is_file() else None,
        num_samples=num_samples,
        timesteps=timesteps,
        deterministic=deterministic,
    )


def _read_examples(path: pathlib.Path, metric: str | None) -> Examples:
    """Reads a table of examples; raises InputError for one that its metric cannot have been computed from."""
    table = _read_table(path, _EXAMPLE_COLUMNS)
    if not table.num_rows:
        raise InputError(f"{path} has no examples: restore it, or evaluate again.")
    for row in table.select(_EXAMPLE_COLUMNS.names).to_pylist():
        num_images, num_texts = len(row["images"]), len(row["texts"])
        if [len(scores) for scores in row["scores"]] != [num_texts] * num_images or not (
            row["target"] is None or 0 <= row["target"] < max(num_images, num_texts)
        ):
            raise InputError(f"{path} has scores or a target that fit no example: restore it, or evaluate again.")
    if metric in metrics.METRICS:
        try:
            metrics.METRICS[metric](
                [np.array(each) for each in table["scores"].to_pylist()], table["target"].to_pylist()
            )
        except ValueError as error:
            raise InputError(
                f"{path} does not fit the metric {metric} ({error}): restore it, or evaluate again."
            ) from None
    terms = None
    if "terms" in table.column_names:
        terms = tuple(table["terms"][0].as_py() or ())
        unknown = [name for name in terms if name not in normalization.TERMS]
        if unknown or normalization.OWN.name not in terms:
            raise InputError(f"{path} has scores of the terms {terms!r:.80}, which nobody knows: evaluate again.")
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


def _read_questions(path: pathlib.Path) -> Questions:
    rows = _read_table(path, _QUESTION_COLUMNS).to_pylist()
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
        num_failed=len(rows) - len(known),
    )


def _reproducing(batch: Batch, stored: np.ndarray, said: tuple[str, ...] | None) -> Batch | None:
    """The batch with the terms that give the stored scores; None where its errors do not give them at all."""
    others = [name for name in normalization.TERMS if name != normalization.OWN.name]
    choices = [
        (normalization.OWN.name, *itertools.compress(others, chosen))
        for chosen in itertools.product((False, True), repeat=len(others))
    ]
    for names in choices if said is None else (said,):
        if not batch.errors.keys() >= set(names):
            continue
        candidate = dataclasses.replace(batch, terms=tuple(normalization.TERMS[name] for name in names))
        # Relative to the errors, whose rounding this is: normalised scores are small differences of them.
        tolerance = _SAME_SCORE * max(1.0, float(np.abs(batch.own).max()))
        if np.allclose(mean_scores(candidate), stored, rtol=0, atol=tolerance):
            return candidate
    return None


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        found = json_files.load(path, constants=True)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): restore it, or evaluate again.") from error
    if not isinstance(found, dict):
        raise InputError(f"{path} is not winobench's: name the folder of a run that launch.eval made.")
    return found


def _check(content: dict[str, Any], expected: Any, path: str | os.PathLike) -> None:
    try:
        schemas.check(content, expected, str(path))
    except InputError as error:
        raise InputError(f"{error}: restore the file, or evaluate again with --overwrite.") from None


def _read_table(path: pathlib.Path, columns: pa.Schema) -> pa.Table:
    try:
        table = parquet_files.read(path)
    except (OSError, parquet_files.DamagedError) as error:
        raise InputError(f"{path} cannot be read ({error}): restore it, or evaluate again.") from error
    missing = [name for name in columns.names if name not in table.column_names]
    if missing:
        raise InputError(f"{path} has no column {missing[0]}: it is not of this version; evaluate again.")
    for field in columns:
        place = table.column_names.index(field.name)
        try:
            column = table[field.name].cast(field.type)
        except pa.ArrowException as error:
            raise InputError(f"{path} has another column {field.name} ({error}): evaluate again.") from error
        if column.null_count and not field.nullable:
            raise InputError(f"{path} lacks values in the column {field.name}: restore it, or evaluate again.")
        table = table.set_column(place, field.name, column)
    return table
