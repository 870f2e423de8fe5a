"""The paper's numbers as the report's tables and figures need them."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.report import published, published_texts
from winobench.report.published import GDBENCH, PublishedNumber, numbers, source
from winobench.report.published_texts import TextNumber
from winobench.runs.run import Run

RADAR_MODELS = {"sd21-base": "DiffusionITM, SD 2.1", "clip-rn50x64": "CLIP RN50x64"}
"""Registry name -> name in figures, of the paper's models that are drawn beside ours."""


_REFERENCES: weakref.WeakKeyDictionary[Run, Mapping[tuple[str, str], Any]] = weakref.WeakKeyDictionary()


def references(run: Run) -> Mapping[tuple[str, str], PublishedNumber | TextNumber]:
    """(task, metric) -> the published number to print next to it; found once for each run."""
    if run not in _REFERENCES:
        _REFERENCES[run] = published.references(run.results)
    return _REFERENCES[run]


def sources(runs: Sequence[Run]) -> list[dict[str, str]]:
    """The papers whose numbers stand beside those of runs."""
    if not runs[0].is_text:
        found = [number.paper for run in runs for number in references(run).values()]
        return [source(name) for name in dict.fromkeys([GDBENCH, *found])]
    known = dict.fromkeys(published_texts.benchmark_of(task) for run in runs for task in run.tasks)
    return [published_texts.source(benchmark) for benchmark in known if benchmark is not None]


def beside(runs: Sequence[Run], task: str, metric: str) -> list[PublishedNumber | TextNumber]:
    """The numbers to print beside those of runs, each once."""
    found = [references(run).get((task, metric)) for run in runs]
    return list(dict.fromkeys(number for number in found if number is not None))


def of_task(task: str) -> list[PublishedNumber | TextNumber]:
    """All numbers of a task in Tables 1 and 2 and of the checkpoints, in the order of print; of a text task all."""
    if published_texts.benchmark_of(task) is not None:
        return list(published_texts.numbers(task))
    return [number for number in numbers() if number.task == task and (number.table[0] in "12" or number.exactly)]


def value_of(task: str, metric: str, model: str) -> float | None:
    """What Table 1 says of a model as released, normalised where images compete; in [0, 1]."""
    for number in numbers():
        is_asked = (number.task, number.metric, number.model) == (task, metric, model) and number.table[0] == "1"
        if is_asked and number.finetuning is None and number.normalize in (None, "unconditional"):
            return number.in_our_unit
    return None


def columns(tables: Sequence[str], task: str) -> list[str]:
    """The methods that a task has numbers of in some tables, in the order of print."""
    return list(dict.fromkeys(number.method for number in numbers() if number.table in tables and number.task == task))


def notes_beside(runs: Sequence[Run], tasks: Sequence[str]) -> dict[str, list[str]]:
    """What is to be known of the numbers beside those of runs -> the tasks that it is said of."""
    found: dict[str, list[str]] = {}
    for run in runs:
        for (task, _), number in references(run).items():
            note = getattr(number, "note", "")
            if task in tasks and note and task not in found.setdefault(note, []):
                found[note].append(task)
    return found


def notes(tables: Sequence[str], task: str) -> dict[str, list[str]]:
    """What is to be known of numbers of a task in some tables -> the metrics that it is said of."""
    found: dict[str, list[str]] = {}
    for number in numbers():
        if number.table in tables and number.task == task and number.note:
            metrics = found.setdefault(number.note, [])
            if number.metric not in metrics:
                metrics.append(number.metric)
    return found


def cell(tables: Sequence[str], task: str, metric: str, method: str) -> PublishedNumber | None:
    """The number of a task's metric and a method in some tables."""
    for number in numbers():
        if number.table in tables and (number.task, number.metric, number.method) == (task, metric, method):
            return number
    return None


def described(number: PublishedNumber | TextNumber) -> str:
    """Where a number stands: ``DiffusionITM (Ours), Table 1a``."""
    if isinstance(number, TextNumber):
        return f"{number.method}, {number.place}"
    return f"{number.method}, {number.place}"
