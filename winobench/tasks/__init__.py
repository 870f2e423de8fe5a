"""What is asked: one short file a data set.

Every module of this package that has a ``TASKS`` tuple declares tasks. Other people's packages add theirs by an entry
point of the group ``winobench.tasks`` that names a `Task` or a sequence of tasks.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.metadata
import pkgutil
import warnings
from collections.abc import Iterable, Iterator, Mapping

from winobench.errors import InputError
from winobench.tasks.base import Association, Example, ImageSource, TargetPair, Task

ENTRY_POINTS = "winobench.tasks"
"""The group of entry points that plug in tasks."""

__all__ = ["TASKS", "Association", "Example", "ImageSource", "TargetPair", "Task", "get_task"]


class _Tasks(Mapping[str, Task]):
    """Name -> task; the declarations are read when the first one is asked for."""

    def __getitem__(self, name: str) -> Task:
        return _all_tasks()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_all_tasks())

    def __len__(self) -> int:
        return len(_all_tasks())


TASKS: Mapping[str, Task] = _Tasks()
"""Name -> task: this package's, in the order of their names, and then those that other packages plug in."""


def get_task(name: str) -> Task:
    """The task of this name.

    Raises:
      InputError: there is none; the message names near ones.
    """
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"there is no task {name!r}: {hint}the tasks are {', '.join(TASKS)}")
    return TASKS[name]


@functools.cache
def _all_tasks() -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(__path__)):
        declared = getattr(importlib.import_module(f"{__name__}.{module}"), "TASKS", ())
        _add(tasks, declared, f"winobench/tasks/{module}.py")
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda entry: entry.name):
        where = f"the entry point {entry.name!r} ({entry.value})"
        # A broken plug-in must not take the others away.
        try:
            declared = entry.load()
            _add(tasks, (declared,) if isinstance(declared, Task) else declared, where)
        except Exception as error:
            warnings.warn(f"{where} adds no tasks: {type(error).__name__}: {error}", stacklevel=2)
    return tasks


def _add(tasks: dict[str, Task], declared: Iterable[Task], where: str) -> None:
    new: dict[str, Task] = {}
    for task in declared:
        if not isinstance(task, Task):
            raise TypeError(f"{where} declares {task!r}, which is no winobench.Task")
        if task.name in tasks or task.name in new:
            raise ValueError(f"{where} declares the task {task.name!r}, which there is already")
        new[task.name] = task
    tasks.update(new)
