"""Reads finished run folders."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from winobench import metrics
from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.metrics import association
from winobench.metrics.sample_mean import DTYPES, SampleMean
from winobench.runs import consistency, image_runs, labels, records
from winobench.runs import schema as schemas
from winobench.runs.examples import Examples, read_examples, read_questions
from winobench.runs.labels import model_label, shortened
from winobench.runs.rows import rows_of
from winobench.runs.run import BIAS_METRIC, OTHER_METRIC, TEXT_METRIC, Run, TaskRun

_MOST_LETTERS_OF_REASONS = 200
# Options that are in words already, and that change no number.
_NO_DIFFERENCE = ("model", "sampling.num_samples", "sampling.seed", "batch_size", "data_dir")

# Marks of runs that do not name their metrics.
_ROWS_OF_OLD_RUNS = {
    "accuracy": {"accuracy"},
    "macro_accuracy": {"accuracy", "macro_accuracy"},
    "recall": {"recall@1", "recall@5"},
    "winoground": {"text", "image", "group"},
}


def read_runs(
    paths: Sequence[str | os.PathLike[str]],
    skip: Callable[[InputError], None] | None = None,
    *,
    mixed: bool = False,
) -> list[Run]:
    """Reads runs and gives each its own label. A path is a run's folder, or one that holds runs.

    Of several folders, ``skip`` is called with the error of each that cannot be read or is named twice. None refuses
    all. Runs with images and runs of text benchmarks are refused together, unless they may be ``mixed``.
    """
    if not isinstance(paths, list | tuple):
        raise InputError(f"the runs are {options.quote(paths)}, but they must be a list of folders.", code="wrong-type")
    if not paths:
        raise InputError("no run is named: winobench report RUN [RUN ...].", code="nothing-named")
    runs: list[Run] = []
    seen: set[str] = set()
    folders = [folder for path in paths for folder in run_folders(path) or [pathlib.Path(user_path(path))]]
    for folder in folders:
        try:
            real = os.path.realpath(folder)  # where links go in circles, pathlib raises
            if real in seen:
                raise InputError(f"run {folder} is named twice: name each run once.", code="named-twice")
            seen.add(real)
            runs.append(read_run(folder))
        except InputError as error:
            if skip is None or len(folders) == 1 or error.code == "no-such-folder":
                raise
            skip(error)
    if not runs:
        raise InputError(f"none of the {len(folders):,} folders is a finished run: name others.", code="not-a-run")
    kinds = {run.is_text: run.path for run in runs}
    if len(kinds) > 1 and not mixed:
        raise InputError(
            f"{kinds[True]} is a run of a text benchmark and {kinds[False]} one with images: report each kind alone.",
            code="runs-of-two-kinds",
        )
    make_labels_unique(runs)
    return runs


def run_folders(path: str | os.PathLike[str]) -> list[pathlib.Path]:
    """The folder itself if it is a run's, else the runs in it, by name."""
    path = pathlib.Path(user_path(path))
    if is_run(path):
        return [path]
    try:
        return [path / name for name in sorted(os.listdir(path)) if is_run(path / name)]
    except OSError:
        return []


def is_run(path: pathlib.Path) -> bool:
    """Whether a folder has a ``config.json``, even a damaged one."""
    return os.path.lexists(path / "config.json")


def read_run(path: str | os.PathLike[str]) -> Run:
    """Reads a run's folder. Its errors are read when they are requested.

    Raises:
      InputError: the folder does not exist, it holds no run, one that has not finished, or one of another layout, or a
        file of it cannot be read.
    """
    return _read(path, with_tables=True)


def read_without_tables(path: str | os.PathLike[str]) -> Run:
    """A run without its tables of examples, which takes milliseconds. The numbers are not checked against these."""
    return _read(path, with_tables=False)


def _read(path: str | os.PathLike[str], with_tables: bool) -> Run:
    path = pathlib.Path(user_path(path))
    try:
        return _read_folder(path, with_tables)
    except (InputError, MemoryError):
        raise
    except Exception as error:  # such as a text where a number should be
        said = " ".join(str(error).split())[:_MOST_LETTERS_OF_REASONS]
        raise InputError(
            f"the files in {path} do not fit together ({type(error).__name__}: {said}): restore them, or evaluate"
            " again.",
            code="damaged-file",
        ) from error


def _read_folder(path: pathlib.Path, with_tables: bool) -> Run:
    config_path, results_path = path / "config.json", path / "results.json"
    config = _read_config(path, config_path)
    if not results_path.is_file():
        raise InputError(
            f"the run in {path} has no results yet (status: {config.get('status', 'unknown')}): repeat its "
            "winobench eval command, which resumes it, and then report it.",
            code="unfinished-run",
        )
    results = _read_json(results_path)
    if not isinstance(results.get("tasks"), dict) or not results["tasks"]:
        raise InputError(f"{results_path} has no tasks: evaluate again with --overwrite.", code="empty-file")
    _check(results, schemas.Results, results_path)
    for name in results["tasks"]:
        # It is a part of files' names.
        if not name or len(name) > 200 or not name.isprintable() or "/" in name:
            odd = shortened(name, 32)
            raise InputError(f"{results_path} has a task of the odd name {odd!r}: restore it.", code="damaged-file")
    consistency.check_config(config, results, config_path)
    notes = []
    if config.get("status") != "finished":
        notes.append(f"The run's status is “{config.get('status')}”: its numbers are those of its last complete pass.")
    # Configs record the sample groups under the key "rounds".
    sample_groups = {task: group for group in config.get("rounds") or [] for task in group.get("tasks", [])}
    tasks = {}
    for name, entries in results["tasks"].items():
        recorded = recorded_metric(entries, (config.get("metrics") or {}).get(name))
        if recorded["headline"] and recorded["headline"] not in entries:
            raise InputError(
                f"{results_path} has no {recorded['headline']!r} of {name}, which is the headline of its metric "
                f"{recorded['name']!r} in {config_path}: restore them, or evaluate again with --overwrite.",
                code="damaged-results",
            )
        if recorded["name"] != BIAS_METRIC:
            kind = schemas.Agreement if recorded["name"] in metrics.RATING_METRICS else schemas.Proportion
            for row, entry in entries.items():
                _check(entry, kind, f"tasks.{name}.{row} of {results_path}")
        table = path / "examples" / f"{name}.parquet"
        examples = None
        if with_tables and table.is_file():
            examples = (read_questions if "protocol" in config["identity"] else read_examples)(table)
        task = _task_run(name, entries, recorded, sample_groups.get(name), config["identity"], examples)
        tasks[name] = task
        consistency.check_task(task, results_path)
        _mend_chance(entries, task, table)
        if not table.is_file():
            notes.append(f"The run has no table of the examples of {name}: only its numbers are shown.")
        elif task.has_answers and task.metric != TEXT_METRIC and task.judge is None:
            notes.append(
                f"The metric of {name} is not winobench's own, nor that of an installed package: right and wrong are "
                "taken as the run recorded them, and accuracy against the number of samples is not plotted."
            )
    run = Run(path, "", config, results, tasks, dict(results.get("failed") or {}), notes)
    run.label = short_label(run)
    return run


def _mend_chance(entries: dict[str, dict[str, Any]], task: TaskRun, table: pathlib.Path) -> None:
    """Gives groups the chance of their own questions, where an earlier version gave them the whole task's mean.

    Earlier versions did not record ``independent``. They took the mean over all questions of a file, also with a limit.
    Without the questions or the metric's code a chance that may be wrong becomes None.
    """
    old = {name: entry for name, entry in entries.items() if "independent" not in entry and entry.get("chance")}
    if not old or not task.has_answers or task.metric == TEXT_METRIC:
        return
    judge = task.judge
    # Under winobench's metrics two candidates have the highest chance, and a mean is as high if all questions have two.
    is_own = judge is not None and metrics.METRICS.is_own(judge.name)
    most = {**judge.chance((1, 2)), **judge.chance((2, 2))} if judge is not None and is_own else {}
    outcome_of = {name: name.rpartition("/")[2].removeprefix("macro_") for name in old}
    if all(entry["chance"] == most.get(outcome_of[name]) for name, entry in old.items()):
        return
    try:
        examples = task.examples or read_examples(table)
    except (InputError, OSError):
        for name, entry in old.items():
            entry["chance"] = entry["chance"] if name == outcome_of[name] else None
        return
    shapes = [np.shape(matrix) for matrix in examples.scores]
    if len(set(shapes)) < 2:
        return
    rows = {row.name: row for row in rows_of(dataclasses.replace(task, examples=examples))}
    whole = {name: entry["chance"] for name, entry in old.items() if "/" not in name}
    for name, entry in old.items():
        row, outcome = rows.get(name), outcome_of[name]
        if row is None or entry["chance"] != whole.get(outcome):  # a task may state the level of each group
            continue
        mean = None if judge is None else judge.mean_chance(outcome, shapes)
        entry["chance"] = None
        if judge is not None and mean is not None and math.isclose(whole[outcome], mean):
            own = [shapes[index] for index in row.members]
            entry["chance"] = judge.mean_chance(outcome, own, row.strata)


def recorded_metric(entries: Mapping[str, Mapping[str, Any]], recorded: schemas.Metric | None) -> schemas.Metric:
    """How a task was judged, as ``config.json`` says, or by the names of its rows where that is of an older version."""
    if recorded is not None:
        return recorded
    if any("p_one_sided" in entry or "pairs" in entry for entry in entries.values()):
        return {"name": BIAS_METRIC, "headline": association.AVERAGE, "shown": [association.AVERAGE]}
    names = [name for name in entries if "/" not in name]
    for metric, rows in _ROWS_OF_OLD_RUNS.items():
        if set(names) == rows:
            return cast(schemas.Metric, metrics.METRICS[metric].described())
    return {"name": OTHER_METRIC if names else "", "headline": "", "shown": names[:1]}


def _task_run(
    name: str,
    entries: Mapping[str, Mapping[str, Any]],
    recorded: schemas.Metric,
    described: Mapping[str, Any] | None,
    identity: Mapping[str, Any],
    examples: Examples | None,
) -> TaskRun:
    common: dict[str, Any] = {
        "name": name,
        "results": entries,
        "identity": (identity.get("tasks") or {}).get(name, {}),
        "examples": examples,
    }
    if "protocol" in identity:
        shown = tuple(row for row in entries if "/" not in row)[:1]
        without: dict[str, Any] = {"num_samples": None, "timesteps": None, "deterministic": True}
        return TaskRun(metric=TEXT_METRIC, shown=shown, best=1.0, **without, **common)
    if described is None:  # an older run, which sampled all tasks alike
        sampling = identity.get("sampling") or {}
        # The published rule chooses another number of timesteps than it is given.
        num_samples = None if sampling.get("timesteps") == "published" else sampling.get("num_samples")
        given = sampling.get("timesteps")
        timesteps = np.array(given) if isinstance(given, list) else None
        deterministic = False
    else:
        given = described.get("timesteps")
        timesteps = None if given is None else np.array(given)
        num_samples = described.get("num_samples") if given is None else len(given)
        deterministic = given is None
    group = described or {}
    weights = None if group.get("weights") is None else np.array(group["weights"])
    return TaskRun(
        metric=recorded["name"] or None,
        shown=tuple(recorded["shown"]),
        best=1.0 if recorded.get("higher_is_better", True) else 0.0,
        num_samples=num_samples,
        timesteps=timesteps,
        deterministic=deterministic,
        mean=SampleMean(weights, group.get("reduce_dtype", DTYPES[0])),
        threshold=recorded.get("threshold"),
        **common,
    )


def _read_config(path: pathlib.Path, config_path: pathlib.Path) -> dict[str, Any]:
    """A run's config. Raises InputError where the folder, or the file, is not one of a run of this version."""
    config = _read_json(image_runs.config_path(path, "winobench eval"))
    if config.get("kind") == image_runs.KIND:
        raise InputError(
            f"{path} holds generated images: open {path / 'pictures.html'}, or add it to a report (--images={path})",
            code="not-a-run",
        )
    if "recipe" in config and "identity" not in config:
        raise InputError(
            f"{path} is a training by the recipe {options.quote(config['recipe'])}, not an evaluation: evaluate its"
            " model with the command that winobench train prints at its end.",
            code="not-a-run",
        )
    schema = config.get("schema")
    if not isinstance(schema, int) or not 1 <= schema <= records.SCHEMA_VERSION or "identity" not in config:
        raise InputError(
            f"{config_path} has the layout {schema}, and this version of winobench reads 1 to "
            f"{records.SCHEMA_VERSION}: evaluate again, or use the version that wrote it.",
            code="another-version",
        )
    _check(config, schemas.Config, config_path)
    return config


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    try:
        config = json_files.load(path, constants=True)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({error}): restore it, or evaluate again.", code="cannot-read"
        ) from error
    if not isinstance(config, dict):
        raise InputError(f"{path} is not winobench's: name the folder of a run of launch.eval.", code="not-a-run")
    return config


def _check(content: dict[str, Any], expected: Any, path: str | os.PathLike[str]) -> None:
    try:
        schemas.check(content, expected, str(path))
    except InputError as error:
        raise InputError(f"{error}: restore the file, or evaluate again with --overwrite.", code=error.code) from None


def short_label(run: Run) -> str:
    """A run's label where no other run has its name or model."""
    name = run.config.get("name") or model_label(str(run.config.get("model") or run.model))
    return labels.shortened(str(name), labels.MOST_LETTERS)


def make_labels_unique(runs: Sequence[Run]) -> None:
    """Adds to equal labels the fields in which their runs differ."""
    described = [labels.Labelled(run.label, run.model, fields_of(run.config), run.path.resolve().name) for run in runs]
    for run, label in zip(runs, labels.unique_labels(described), strict=True):
        run.label = label


def fields_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The options of a run's ``config.json`` in words, by name, the most telling first."""
    identity, launched = config.get("identity") or {}, config.get("config")
    limit, seed = identity.get("limit"), (identity.get("sampling") or {}).get("seed")
    fields = {
        "protocol": ", ".join(dict.fromkeys((identity.get("protocol") or {}).values())),
        "normalize": f"normalize {identity['normalize']}" if "normalize" in identity else "",
        "samples": _samples_of(config),
        "limit": "all questions" if limit is None else f"limit {limit:,}",
        "tasks": ", ".join(identity.get("tasks") or ()),
        "dtype": str((identity.get("scorer") or {}).get("dtype") or ""),
        "seed": "" if seed is None else f"seed {seed}",
    }
    for name, value in sorted(_leaves(launched if isinstance(launched, Mapping) else {})):
        if name not in {*fields, *_NO_DIFFERENCE}:
            word = model_label(value) if isinstance(value, str) else json.dumps(value)
            fields[name] = f"{name.rpartition('.')[2]} {word}"
    return {**fields, labels.STARTED: str(config.get("started") or "")[: len("2026-01-31T12:34")].replace("T", " ")}


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _samples_of(config: Mapping[str, Any]) -> str:
    """The largest number of samples a pair, of tasks that take random ones."""
    identity, kinds = config.get("identity") or {}, config.get("metrics") or {}
    if "rounds" in config:
        bias = {task for task, metric in kinds.items() if metric["name"] == BIAS_METRIC}
        counts = [
            len(group.get("timesteps") or ()) for group in config["rounds"] if not bias.issuperset(group["tasks"])
        ]
    else:  # an older run, which sampled all tasks alike
        sampling = identity.get("sampling") or {}
        counts = [] if sampling.get("timesteps") == "published" else [sampling.get("num_samples") or 0]
    return f"{max(counts):,} samples" if any(counts) else ""
