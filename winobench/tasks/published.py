"""Tasks whose data others published, once ``winobench prepare`` has turned their files into a prepared set."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from winobench.base.errors import InputError
from winobench.metrics import METRICS
from winobench.tasks.base import Example, PublishedData, Task

_SOURCE_FIELDS = {field.name for field in dataclasses.fields(PublishedData)}


def published_task(*, source: PublishedData | None = None, **fields: Any) -> Task:
    """A task that reads its examples from ``<data_dir>/<name>``, with the fields of `Task` and of its source.

    ``limit`` counts examples, a random choice that is the same from run to run. In tasks with an ``association`` it
    counts the images of each group. Fields that are not given are version 1, accuracy, the metric's chance, and
    ``images_compete`` where there are several.
    """
    source = source or PublishedData(**{name: fields.pop(name) for name in _SOURCE_FIELDS & fields.keys()})
    fields = {"version": 1, "metric": "accuracy", **fields}
    metric, shape = METRICS.data.get(fields["metric"]), fields["shape"]
    chance = dict(metric.chance(shape)) if metric is not None else {}
    by_question = fields.get("chance_by_question", "chance" not in fields)
    fields = {"chance": chance, "images_compete": shape[0] > 1, **fields, "chance_by_question": by_question}
    name, version = fields["name"], fields["version"]

    def prepared(data_dir: str | None):
        from winobench.data import prepared as prepared_sets

        reason = ready(data_dir)
        if reason is not None:
            raise InputError(f"the data of task {name!r} are not ready: {reason}", code="data-not-ready")
        return prepared_sets.PreparedSet(prepared_sets.task_folder(name, data_dir))

    def ready(data_dir: str | None) -> str | None:
        return problem(name, version, source, data_dir)

    def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
        data = prepared(data_dir)
        data.verify()
        return data.examples(limit, per_group=fields.get("association") is not None)

    def count(data_dir: str | None) -> int | None:
        return None if ready(data_dir) is not None else prepared(data_dir).num_examples

    def data_fingerprint(data_dir: str | None, limit: int | None) -> str:
        return prepared(data_dir).subset_fingerprint(limit)

    return Task(**fields, load=load, ready=ready, count=count, data_fingerprint=data_fingerprint, source=source)


def problem(name: str, version: int, source: PublishedData, data_dir: str | None) -> str | None:
    """One sentence on why a prepared set cannot be used and how to get it, or None where it is ready."""
    from winobench.data import prepared as prepared_sets

    folder = prepared_sets.task_folder(name, data_dir)
    state = prepared_sets.read_state(folder)
    command = f"`{prepare_command(name)}`, where DIR holds {source.how_to_get}"
    if state is None and prepared_sets.has_state(folder):
        damaged = f"{folder / prepared_sets.STATE} is damaged or of another version of winobench"
        return f"{damaged}: prepare the data again with {command}"
    if state is None:
        return how_to_prepare(name, source)
    if state["task_version"] != version:
        return (
            f"{folder} was prepared for version {state['task_version']} of the task, which is now at {version}:"
            f" renew it with {command}"
        )
    return None


def prepare_command(name: str) -> str:
    """The command line that prepares a task from a folder DIR."""
    return f"winobench prepare --tasks={name} --source=DIR"


def how_to_prepare(name: str, source: PublishedData) -> str:
    """One sentence on how to get a task's data."""
    downloads = ". Without --source it downloads what may be downloaded"
    way = f"run `{prepare_command(name)}`, where DIR holds {source.how_to_get}"
    return way + downloads * bool(source.downloads or source.fetch)
