"""What is asked: one short file a data set, and the table of their names."""

from __future__ import annotations

import difflib
import importlib

from winobench.errors import InputError
from winobench.tasks.base import Example, ImageSource, Task

# Task name -> module of this package whose TASK declares it; imported only when the task is asked for.
TASKS: dict[str, str] = {
    "clevr": "clevr",
    "clevr_image": "clevr_image",
    "clevr_winoground": "clevr_winoground",
}

__all__ = ["TASKS", "Example", "ImageSource", "Task", "get_task"]


def get_task(name: str) -> Task:
    """The task of this name.

    Raises:
      InputError: there is none; the message names near ones.
    """
    if name not in TASKS:
        near = difflib.get_close_matches(name, TASKS, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"there is no task {name!r}: {hint}the tasks are {', '.join(TASKS)}")
    return importlib.import_module(f"winobench.tasks.{TASKS[name]}").TASK
