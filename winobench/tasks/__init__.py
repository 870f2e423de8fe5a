"""Tasks: one short file a data set, and the tasks of other packages.

A module declares tasks about images in ``TASKS``, tasks about texts alone in ``TEXT_TASKS``, the rows of listings in
``DATA_SETS``, and in ``SOURCES`` how to make tasks of data that the user names, as in ``selfbench:FOLDER``.
``names.txt`` lists these names, so that a task imports its own module alone. ``python docs/write_task_names.py`` writes
it. An entry point of the group ``winobench.tasks`` names a `Task`, a `TextTask`, a sequence of them, or a package with
a ``names.txt``.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from winobench.base import extensions, near_names, options, registry
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.tasks import groups
from winobench.tasks.base import DataSet, Task
from winobench.tasks.questions import TextTask

_Kind = TypeVar("_Kind", Task, TextTask, DataSet)

NAMES = "names.txt"
# Modules of tasks that need no prepared data.
_RENDERED = tuple(f"{__name__}.{name}" for name in ("clevr", "clevr_hard", "clevr_image", "clevr_winoground"))


class _Tasks(Mapping[str, _Kind], Generic[_Kind]):
    """Name -> task of one kind. A task's module is imported when the task is requested."""

    def __init__(self, kind: type[_Kind], attribute: str):
        self._kind: type[_Kind] = kind
        self._attribute = attribute

    def __getitem__(self, name: str) -> _Kind:
        task = self._known()[name]
        if isinstance(task, str):
            return next(declared for declared in _declared(task, self._attribute) if declared.name == name)
        return task

    def __iter__(self) -> Iterator[str]:
        return iter(self._known())

    def __len__(self) -> int:
        return len(self._known())

    def _known(self) -> dict[str, str | _Kind]:
        """Name -> module, or the task of a package without a table of names."""
        return {**_modules()[self._attribute], **_plugged_in()[self._kind]}


TASKS: Mapping[str, Task] = _Tasks(Task, "TASKS")
"""Name -> task about images, in the order of their modules. Tasks of packages without a table of names are last."""

TEXT_TASKS: Mapping[str, TextTask] = _Tasks(TextTask, "TEXT_TASKS")
"""Name -> task about texts alone, in the same order."""

DATA_SETS: Mapping[str, DataSet] = _Tasks(DataSet, "DATA_SETS")
"""Name -> data set, whose tasks share their files, in the same order."""


def get_task(name: str) -> Task:
    """The task about images of this name.

    Raises:
      InputError: the name is unknown. The message names near ones.
    """
    return _get(TASKS, name, "task")


def get_text_task(name: str) -> TextTask:
    """The task about texts of this name.

    Raises:
      InputError: the name is unknown. The message names near ones.
    """
    return _get(TEXT_TASKS, name, "text task")


def data_sets() -> list[DataSet]:
    """Every data set. A task outside of all data sets makes one more."""
    declared = list(DATA_SETS.values())
    placed = {task.name for each in declared for task in each.tasks}
    tasks: list[Task | TextTask] = [*TASKS.values(), *TEXT_TASKS.values()]
    alone = [task for task in tasks if task.name not in placed]
    return declared + [DataSet(task.name, task.name, task.description, (task,)) for task in alone]


def ready_names(tasks: Mapping[str, Any], data_dir: str | None = None) -> list[str]:
    """The names of tasks whose data are there. A task without a prepared set is not imported, unless it is rendered."""
    from winobench.data import prepared

    def may_be_ready(name: str) -> bool:
        module = _modules()["TASKS"].get(name)
        if module is None or module in _RENDERED:
            return True
        return prepared.has_state(prepared.task_folder(name, data_dir))

    return [name for name in tasks if may_be_ready(name) and tasks[name].ready(data_dir) is None]


def tasks_from(words: Iterable[str | Task], data_dir: str | None = None) -> list[str | Task]:
    """The same with tasks instead of words such as ``selfbench:FOLDER`` and names instead of ``@spatial``.

    All words of a kind of source make one set. Tasks of groups that are there already are left out.
    """
    sources: dict[str, list[str]] = {}
    result: list[str | Task] = []
    words = list(words)
    named = {word for word in words if isinstance(word, str)}
    for word in words:
        kind, colon, source = word.partition(":") if isinstance(word, str) else ("", "", "")
        if isinstance(word, str) and word.startswith(groups.MARK):
            members = [name for name in groups.ready_members(word, TASKS, data_dir, DATA_SETS) if name not in named]
            named.update(members)
            result += members
        elif not colon:
            result.append(word)
        else:
            if kind not in sources:
                result.append(f"{kind}:")
            sources.setdefault(kind, []).append(source)
    makers = _modules()["SOURCES"]
    for kind, given in sources.items():
        if kind not in makers:
            raise InputError(
                f"there are no tasks from {options.quote(f'{kind}:{given[0]}')}: what comes before the colon is one"
                f" of {', '.join(makers)}",
                code="unknown-name",
            )
        index = result.index(f"{kind}:")
        result[index : index + 1] = _declared(makers[kind], "SOURCES")[kind](given)
    return result


def _get(tasks: Mapping[str, Any], name: str, noun: str) -> Any:
    if not isinstance(name, str):
        raise InputError(f"a {noun} is called by its name, a text, not {name!r:.80}", code="wrong-type")
    if name not in tasks:
        hint = near_names.did_you_mean(name, tasks, "winobench eval --list_tasks lists them.")
        if tasks is TASKS and name in DATA_SETS:
            hint = f"write {groups.MARK}{name} for all tasks of this data set, or name one. {hint}"
        if tasks is TASKS and os.path.isfile(user_path(name)):
            hint = f"write jsonl:{name} for the questions in this file"
        if broken := "; ".join(_broken()):
            hint = f"{hint} It may be missing because {broken}: correct that package, or uninstall it"
        raise InputError(f"{noun} {name!r} is unknown: {hint}", code="broken-plug-in" if broken else "unknown-name")
    return tasks[name]


def packages() -> list[str]:
    """The packages of tasks with a table of names: this one, and packages of entry points."""
    added = extensions.added(extensions.TASKS).values()
    return [__name__, *(value for value in added if ":" not in value and _table(value).is_file())]


def _table(package: str) -> pathlib.Path:
    module_spec = importlib.util.find_spec(package)
    return pathlib.Path((module_spec and module_spec.origin) or package).parent / NAMES


@functools.cache
def _modules() -> dict[str, dict[str, str]]:
    """Attribute of modules -> a name in it -> module."""
    lines = [(line.split(), package) for package in packages() for line in _table(package).read_text().splitlines()]
    modules: dict[str, dict[str, str]] = {}
    own = {name for words, package in lines if package == __name__ for name in words[2:]}
    for (attribute, module, *names), package in sorted((line for line in lines if line[0][2:]), key=lambda x: x[0][1]):
        new = names if package == __name__ else [name for name in names if name not in own]  # names of winobench stay
        modules.setdefault(attribute, {}).update(dict.fromkeys(new, f"{package}.{module}"))
    return modules


def _declared(module: str, attribute: str) -> Any:
    return getattr(importlib.import_module(module), attribute)


@functools.cache
def _plugged_in() -> dict[type, dict[str, Any]]:
    """Kind -> name -> task of another package."""
    tasks: dict[type, dict[str, Any]] = {Task: {}, TextTask: {}, DataSet: {}}
    _broken().clear()
    for entry in sorted(importlib.metadata.entry_points(group=extensions.TASKS), key=lambda entry: entry.name):
        is_gone = ":" not in entry.value and entry.value not in extensions.added(extensions.TASKS).values()
        if entry.value in packages() or is_gone:  # a deleted contrib package takes its tasks alone away
            continue
        where = registry.entry_point(entry)
        # A broken plug-in must not take the others away.
        try:
            declared = entry.load()
            declared = [declared] if isinstance(declared, Task | TextTask) else list(declared)
            _add(tasks, [_guarded(task) if isinstance(task, Task | TextTask) else task for task in declared], where)
        except (Exception, SystemExit) as error:
            broken = f"{where} adds no tasks: {type(error).__name__}: {error}"
            _broken().append(broken)
            warnings.warn(broken, stacklevel=2)
    return tasks


@functools.cache
def _broken() -> list[str]:
    """A sentence for each plug-in that has failed so far."""
    return []


def _guarded(task: Task | TextTask) -> Task | TextTask:
    """A plugged-in task whose failures are sentences. One that cannot tell whether its data are there is not ready."""
    _check_fields(task)

    def ready(data_dir: str | None) -> str | None:
        try:
            with registry.foreign_code(f"ready() of task {task.name!r}"):
                return task.ready(data_dir)
        except InputError as error:
            return str(error)

    def data_fingerprint(data_dir: str | None, limit: int | None) -> str:
        with registry.foreign_code(f"data_fingerprint() of task {task.name!r}"):
            fingerprint = task.data_fingerprint(data_dir, limit)
        if not isinstance(fingerprint, str):
            raise InputError(
                f"data_fingerprint() of task {task.name!r} gave {options.quote(fingerprint)}: return a text that"
                " changes with its data",
                code="broken-plug-in",
            )
        return fingerprint

    def count(data_dir: str | None) -> int | None:
        try:
            number = task.count(data_dir)
        except (Exception, SystemExit):  # a listing continues without the number
            return None
        return number if isinstance(number, int) else None

    return dataclasses.replace(task, ready=ready, data_fingerprint=data_fingerprint, count=count)


def _check_fields(task: Task | TextTask) -> None:
    for field, kind in (("name", str), ("version", int), ("description", str)):
        if not isinstance(getattr(task, field), kind):
            raise TypeError(f"{field} of a task is {getattr(task, field)!r:.80}, no {kind.__name__}")
    shape = getattr(task, "shape", (1, 1))
    sides = shape if isinstance(shape, tuple) else ()
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise TypeError(f"shape of task {task.name!r} is {shape!r:.80}, not the numbers of images and texts")


def _add(tasks: dict[type, dict[str, Any]], declared: Iterable[Any], where: str) -> None:
    new: list[Task | TextTask] = []
    taken = {name for names in (_modules()["TASKS"], _modules()["TEXT_TASKS"], *tasks.values()) for name in names}
    for task in declared:
        if not isinstance(task, Task | TextTask):
            raise TypeError(f"{where} declares {task!r}, which is not a winobench.Task")
        if task.name in taken:
            raise ValueError(f"{where} declares the task {task.name!r}, which there is already")
        taken.add(task.name)
        new.append(task)
    for task in new:
        tasks[Task if isinstance(task, Task) else TextTask][task.name] = task
