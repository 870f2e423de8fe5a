"""Types of the documents that ``--json`` prints. ``docs/write_schemas.py`` writes a JSON Schema of each."""

from __future__ import annotations

from typing import Literal, Required, TypedDict

from winobench.runs.schema import Count, Share
from winobench.tasks.base import BY_HAND, GATED, ONE_COMMAND, PARTLY, READY

Way = Literal[ONE_COMMAND, PARTLY, BY_HAND, GATED]


class Download(TypedDict):
    """A file that winobench prepare downloads."""

    file: Required[str]  # where it goes, in the folder of the data set's sources
    note: Required[str]  # its size and its licence, if they are known


class ProtocolRow(TypedDict):
    """A way to ask the questions of a task about texts."""

    name: Required[str]
    kind: Required[str]
    description: Required[str]


class TaskRow(TypedDict):
    """A task."""

    name: Required[str]
    version: Required[int]
    description: Required[str]
    ready: Required[bool]  # its data are here
    prepared: Required[bool]  # winobench prepare has made a set of it, which may be of another version
    data: Required[str]  # what is here, or how to get it
    questions: Required[Count | None]  # here or published. None where nobody knows
    only_by_name: Required[bool]  # --tasks=ready leaves it out
    groups: Required[list[str]]  # such as @spatial
    images: Required[Count | None]  # of a question. None for a task about texts
    texts: Required[Count | None]
    metric: Required[str | None]
    chance: Required[dict[str, Share]]  # row of the results -> chance level
    paper: Required[str | None]
    licence: Required[str | None]
    url: Required[str | None]
    files: Required[str | None]  # which published files the folder of --source must hold
    downloads: Required[list[Download]]
    protocols: Required[list[ProtocolRow]]


class DataSetRow(TypedDict):
    """A data set: tasks that come from one source."""

    name: Required[str]  # @NAME means all its tasks
    title: Required[str]
    description: Required[str]
    state: Required[Literal[READY, ONE_COMMAND, PARTLY, BY_HAND, GATED]]
    way: Required[Way | None]  # how to get its data. None where winobench makes them
    questions: Required[Count | None]  # of all its tasks. None where nobody knows
    command: Required[str | None]  # that prepares it. None where there is none
    downloads: Required[str]  # which files winobench prepare downloads
    supplies: Required[str]  # which files the user supplies
    licence: Required[str]
    size: Required[str]
    tasks: Required[list[TaskRow]]


class DataSets(TypedDict):
    """``winobench eval --list_tasks`` and ``winobench prepare --list``."""

    data_sets: Required[list[DataSetRow]]


class ModelRow(TypedDict):
    """A model that has a short name."""

    name: Required[str]
    description: Required[str]
    state: Required[str]
    kind: Required[str]
    source: Required[str]  # a folder, a hub id, or the variable of a key


class Models(TypedDict):
    """``winobench eval --list_models``."""

    models: Required[list[ModelRow]]
