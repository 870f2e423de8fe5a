"""The files of a run must agree: the numbers with each other, and with the examples."""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Mapping
from typing import Any, NoReturn

from winobench import metrics
from winobench.base.errors import InputError
from winobench.metrics import association
from winobench.runs import schema as schemas
from winobench.runs.labels import shortened
from winobench.runs.rows import rows_of
from winobench.runs.run import OTHER_METRIC, TaskRun

# Numbers that are computed again differ by the order of sums.
_ROUNDING = 1e-6
_ADVICE = "restore the files, or evaluate again with --overwrite."


def check_config(config: Mapping[str, Any], results: Mapping[str, Any], config_path: pathlib.Path) -> None:
    """Checks ``config.json`` against itself and ``results.json``: models, tasks, and how they were judged."""
    models = [_model_of(content.get("config")) for content in (config, results)]
    if None not in models and models[0] != models[1]:
        _refuse(f"{config_path} is of the model {_quoted(models[0])} and results.json of {_quoted(models[1])}")
    for task in results["tasks"].keys() & (results.get("failed") or {}).keys():
        _refuse(f"results.json in {config_path.parent} has the task {_quoted(task)} both in tasks and in failed")
    status = config.get("status", "finished")
    if status not in ("running", "finished", "interrupted") and not status.startswith("failed"):
        _refuse(f"{config_path} has the unknown status {_quoted(status)}")
    sample_groups = config.get("rounds") or []
    grouped = collections.Counter(task for group in sample_groups for task in group["tasks"])
    for task, count in grouped.items():
        if count > 1:
            _refuse(f"{config_path} has the task {_quoted(task)} twice in rounds")
    known = (config["identity"].get("tasks") or {}).keys()
    for file, tasks in (("results.json", results["tasks"]), ("rounds", grouped)):
        for task in tasks:
            if known and task not in known:
                _refuse(f"{file} has the task {_quoted(task)}, which identity.tasks of {config_path} does not name")
    for number, group in enumerate(sample_groups):
        weights, timesteps, count = (group.get(name) for name in ("weights", "timesteps", "num_samples"))
        if timesteps is None:
            continue
        if weights is not None and len(weights) != len(timesteps):
            _refuse(f"rounds[{number}] of {config_path} has {len(weights)} weights for {len(timesteps)} timesteps")
        if count is not None and count != len(timesteps):
            _refuse(f"rounds[{number}] of {config_path} has {len(timesteps)} timesteps for {count} samples")
    for task, recorded in (config.get("metrics") or {}).items():
        metric = metrics.METRICS.get(recorded["name"])
        if metric is not None and recorded.get("higher_is_better", True) != metric.higher_is_better:
            _refuse(f"metrics.{_quoted(task)}.higher_is_better of {config_path} differs from {metric.name}'s")


def _model_of(config: Mapping[str, Any] | None) -> Any:
    return None if config is None else config.get("model")


def check_task(record: TaskRun, path: pathlib.Path) -> None:
    """Checks each row of a task by itself, and against the examples that it counts."""
    for row, entry in record.results.items():
        value, low, high, called = entry["value"], entry["low"], entry["high"], _row_name(record, row)
        room = schemas.ROUNDING * max(1.0, abs(value))
        # The interval of a mean of absolute effect sizes allows for what chance adds to the mean, and may exclude it.
        is_inside = low - room <= value <= high + room or row == association.AVERAGE
        if low > high or not is_inside:
            _refuse(
                f"{_row_name(record, row)} of {path} is {value:.6g}, outside of its interval {low:.6g} to {high:.6g}"
            )
        if entry.get("independent", 0) > entry["n"]:
            _refuse(f"{called} of {path} has {entry['independent']:,} independent among {entry['n']:,} examples")
        if entry.get("ties", 0) > entry["n"]:
            _refuse(f"{called} of {path} has {entry['ties']:,} ties among {entry['n']:,} examples")
    _check_examples(record, path)


def _check_examples(record: TaskRun, path: pathlib.Path) -> None:
    table = path.parent / "examples" / f"{record.name}.parquet"
    try:
        judged, judge = record.judged, record.judge
    except ValueError as error:
        raise InputError(
            f"{table} does not fit the metric {record.metric} ({error}): restore it, or evaluate again.",
            code="damaged-examples",
        ) from None
    given = None if record.examples is None else record.examples.correct
    if judge is not None and given is not None and (judged[judge.headline].correct != given).any():
        _refuse(f"{table} calls an example right that its scores have wrong, or the other way round")
    if record.metric == OTHER_METRIC:  # nobody knows what its rows count
        return
    rows = {row.name: row for row in rows_of(record)}
    counted = {name for name in rows if "/" not in name}
    for name, entry in record.results.items():
        row, called = rows.get(name), _row_name(record, name)
        if row is None and "/" in name and name.rpartition("/")[2] in counted:
            _refuse(f"{called} of {path} is of a group that no example of {table} is in")
        if row is None and "/" not in name and judged:
            _refuse(f"{called} of {path} is not a row of the metric {record.metric}")
        if row is None:
            continue
        if entry["n"] != len(row.correct):
            _refuse(f"n of {called} of {path} is {entry['n']:,}, and {table} has {len(row.correct):,} examples")
        if abs(entry["value"] - row.value) > _ROUNDING:
            _refuse(f"{called} of {path} is {entry['value']:.6g}, and the examples of {table} give {row.value:.6g}")
        outcome = judged.get(name.rpartition("/")[2].removeprefix("macro_"))
        if outcome is not None and (ties := int(outcome.tie[row.members].sum())) != entry["ties"]:
            _refuse(f"ties of {called} of {path} are {entry['ties']:,}, and {table} has {ties:,}")


def _row_name(record: TaskRun, row: str) -> str:
    return f"tasks.{_quoted(record.name)}.{_quoted(row)}"


def _quoted(name: Any) -> str:
    return shortened(str(name), 80)


def _refuse(what: str) -> NoReturn:
    raise InputError(f"{what}: {_ADVICE}", code="damaged-results")
