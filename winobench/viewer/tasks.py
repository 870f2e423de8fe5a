"""Documents by names and plain values, as the server and its worker ask for them."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from winobench.base import parquet_files
from winobench.runs.labels import task_label
from winobench.runs.reading import read_run, read_without_tables
from winobench.runs.run import Run
from winobench.viewer import documents


def run(path: str, slug: str, label: str, reproduce: str | None) -> dict[str, Any]:
    return documents.run_document(path, slug, label, reproduce=_function(reproduce))


def report(paths: Sequence[str], slugs: Sequence[str], labels: Sequence[str], reproduce: str | None) -> str:
    return documents.report_page(paths, labels, reproduce=_function(reproduce))


def pair(paths: Sequence[str], slugs: Sequence[str], labels: Sequence[str], reproduce: str | None) -> dict[str, Any]:
    first, second = paths
    return documents.pair_document(first, second, labels)


def drawn(paths: Sequence[str], slugs: Sequence[str], labels: Sequence[str], reproduce: str | None) -> dict[str, Any]:
    return documents.images_document(paths[0], slugs[0])


def export(
    paths: Sequence[str], slugs: Sequence[str], labels: Sequence[str], reproduce: str | None, name: str
) -> str | bytes:
    return documents.export(paths[0], name, _function(reproduce))


def errors(path: str, task: str) -> bytes:
    """The errors behind a task's scores as a Parquet file, whose rows are the examples. Or nothing."""
    table = documents.errors_table(read_run(path), task)
    return b"" if table is None else parquet_files.content(table, ())


def leaderboard(path: str) -> dict[str, Any]:
    """A run's numbers of whole tasks, without its slug and label. ``data`` is equal where the questions are equal."""
    run = read_without_tables(path)
    identity = run.config["identity"]
    return {
        "model": run.model,
        "kind": "text" if run.is_text else "images",
        "started": run.config.get("started"),
        "tasks": {
            name: {
                "label": task_label(name),
                "kind": documents.task_kind(run, task),
                "metric": task.metric,
                "best": task.best,
                "shown": list(task.shown),
                "data": json.dumps([task.identity, identity.get("limit")], sort_keys=True),
                "results": {
                    row: {key: entry.get(key) for key in ("value", "low", "high", "chance", "n")}
                    | ({"too_few": True} if entry.get("too_few") else {})
                    for row, entry in task.results.items()
                    if "/" not in row
                },
            }
            for name, task in run.tasks.items()
        },
    }


def _function(name: str | None) -> Callable[[Run], str | None]:
    if name is None:
        return lambda run: None
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)
