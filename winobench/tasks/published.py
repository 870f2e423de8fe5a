"""Tasks whose data others published: what their files hold, how to get them, and the examples once they are prepared.

A task's file states how its published files are read (`PublishedData`); ``python -m launch.prepare`` turns them into a
prepared set, once; `published_task` makes the task that reads that set.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from winobench.base.errors import InputError
from winobench.tasks.base import Example, PublishedData, Task


def published_task(*, source: PublishedData, **fields: Any) -> Task:
    """A task that reads its examples from ``<data_dir>/<name>``, as ``python -m launch.prepare`` writes it.

    Args:
      **fields: the other fields of `Task`, but for ``load``, ``ready``, ``count`` and ``data_fingerprint``, which are
        filled in. ``limit`` then counts examples, a random choice that is the same from run to run. In tasks with an
        ``association`` it counts the images of each group.
    """
    name, version = fields["name"], fields["version"]
    per_group = fields.get("association") is not None

    def prepared(data_dir: str | None):
        from winobench.data import prepared as prepared_sets

        reason = ready(data_dir)
        if reason is not None:
            raise InputError(f"the data of task {name!r} are not ready: {reason}", code="data-not-ready")
        return prepared_sets.PreparedSet(prepared_sets.task_folder(name, data_dir))

    def ready(data_dir: str | None) -> str | None:
        return problem(name, version, source, data_dir)

    def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
        found = prepared(data_dir)
        found.verify()
        return found.examples(limit, per_group=per_group)

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
    if state is None and prepared_sets.has_state(folder):
        return (
            f"{folder / prepared_sets.STATE} is damaged or of another version of winobench: prepare the data again"
            f" with `{prepare_command(name)}`, where DIR holds {source.how_to_get}"
        )
    if state is None:
        return how_to_prepare(name, source)
    if state["task_version"] != version:
        return (
            f"{folder} was prepared for version {state['task_version']} of the task, which is now at {version}:"
            f" renew it with `{prepare_command(name)}`, where DIR holds {source.how_to_get}"
        )
    return None


def prepare_command(name: str) -> str:
    """The command line that prepares a task from a folder DIR."""
    return f"python -m launch.prepare --task={name} --source=DIR"


def how_to_prepare(name: str, source: PublishedData) -> str:
    """One sentence on how to get a task's data."""
    way = f"run `{prepare_command(name)}`, where DIR holds {source.how_to_get}"
    if source.downloads or source.fetch is not None:
        way += ". Without --source it downloads what may be downloaded"
    return way
