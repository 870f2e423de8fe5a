"""Chooses the tasks of a run, and checks that their data are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

from winobench.base import options
from winobench.base.errors import InputError
from winobench.evaluation import contracts
from winobench.tasks import TASKS, TEXT_TASKS, get_task, get_text_task, ready_names, tasks_from
from winobench.tasks.base import Task
from winobench.tasks.questions import TextTask

READY = "ready"
"""Instead of task names: every task whose data are there."""


@overload
def choose_tasks(tasks: str | Sequence[str | Task], data_dir: str | None = None) -> list[Task]: ...
@overload
def choose_tasks(
    tasks: str | Sequence[str | TextTask], data_dir: str | None, known: Mapping[str, TextTask]
) -> list[TextTask]: ...
def choose_tasks(
    tasks: str | Sequence[Any],
    data_dir: str | None = None,
    known: Mapping[str, Any] | None = None,
) -> list[Any]:
    """The tasks that are meant: names, task objects, groups such as ``@spatial``, or ``"ready"``.

    ``"ready"`` means every known task whose data are there, but for tasks that must be named.
    """
    known = TASKS if known is None else known
    kind = TextTask.__name__ if known is TEXT_TASKS else Task.__name__
    if isinstance(tasks, Mapping | bytes) or not isinstance(tasks, Iterable):
        raise InputError(
            f"tasks is {options.quote(tasks)}, but it must be a list of names or {kind} objects, or {READY!r}.",
            code="wrong-type",
        )
    if tasks == READY:
        tasks = [name for name in ready_names(known, data_dir) if not getattr(known[name], "when_named", False)]
    elif isinstance(tasks, str):
        tasks = options.comma_separated(tasks)
    if known is not TEXT_TASKS:
        tasks = tasks_from(tasks, data_dir)
    get = get_text_task if known is TEXT_TASKS else get_task
    chosen = [get(task) if isinstance(task, str) else task for task in tasks]
    for number, task in enumerate(chosen):
        is_task = all(hasattr(task, attribute) for attribute in ("name", "ready", "load"))
        if not (isinstance(task, TextTask) if known is TEXT_TASKS else is_task):
            raise InputError(
                f"tasks[{number}] is {options.quote(task)}, but it must be a task's name or a {kind}.",
                code="wrong-type",
            )
        contracts.check_name(task.name)
        if isinstance(task, Task):
            contracts.check_task(task)
    if not chosen:
        raise InputError(
            f"no task is chosen: name at least one of {', '.join(known)}, or {READY!r}.", code="nothing-named"
        )
    for task in chosen:
        if (how_to_get_data := task.ready(data_dir)) is not None:
            raise InputError(f"task {task.name!r} has no data yet: {how_to_get_data}", code="data-not-ready")
    return chosen
