"""Tasks whose data others published: what their files hold, how to get them, and the examples once they are prepared.

A task's file states how its published files are read (`PublishedData`); ``python -m launch.prepare`` turns them into a
prepared set, once; `published_task` makes the task that reads that set.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from winobench.base.errors import InputError
from winobench.data.sources import LeftOut
from winobench.tasks.base import Example, Task

Box = tuple[int, int, int, int]


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """An image among the published files, or a part of one.

    Attributes:
      path: the file.
      box: (left, top, right, bottom) in pixels of the part that is meant, right and bottom excluded; None for all.
    """

    path: pathlib.Path
    box: Box | None = None


Item = Example[ImageFile, str]
"""An example whose images are still files: what most tasks' files read, under one name."""


@dataclasses.dataclass(frozen=True)
class Download:
    """A file that may be downloaded: by URL, or from a data set's repository on the Hugging Face hub.

    Attributes:
      to: where it goes, relative to the folder of the task's sources, with ``/``.
      url: its address; None for a file on the hub.
      hub_id: the repository of a data set on the hub. The user's token is used.
      filename: the file's name there.
      unpack: unpack the archive (zip or tar) into the folder where it lies.
      sha256: of the file in hexadecimal, where it is known.
      note: size and licence, for the user.
    """

    to: str
    url: str | None = None
    hub_id: str | None = None
    filename: str | None = None
    unpack: bool = False
    sha256: str | None = None
    note: str = ""

    def __post_init__(self):
        if (self.url is None) == (self.hub_id is None) or (self.hub_id is None) != (self.filename is None):
            raise ValueError("a Download has either a url, or a hub_id with a filename")
        to = pathlib.PurePosixPath(self.to)
        if to.is_absolute() or ".." in to.parts or not to.name:
            raise ValueError(f"a Download goes to a relative path without '..', not to {self.to!r}")


@dataclasses.dataclass(frozen=True)
class PublishedData:
    """The published files of a task.

    Attributes:
      read: ``read(folder) -> items`` in a fixed order, with a `winobench.data.sources.LeftOut` for each row that makes
        none, unless a published rule that the task's file states leaves it out. Raises InputError naming the file where
        an annotation file is missing or broken. It need not look for the images: ``launch.prepare`` names the missing
        ones file by file.
      read_partial: the same where ``--allow_partial`` is given, if more than the files of images may be missing. It
        yields an item with a file that is not there for whatever is missing, so that the set is known to be partial.
      how_to_get: what the folder must hold and where to get it, as the end of a sentence that begins with "where DIR
        holds", without a full stop; for example ``"svo.json and the folder images, from https://..."``.
      num_examples: how many the publication has; None where that depends on the user. Another number is an error.
      downloads: what may be downloaded into the folder. Need not be all that it must hold.
      with_lists: ``with_lists(folder, scorer, name)`` makes the task's lists of candidates again with a contrastive
        scorer, writes them into the folder under this name, and returns what reads them; None for tasks without lists.
      shared_folder: where downloads go, in ``<data_dir>/sources``. The task's name by default. Tasks that read the same
        files give the same name, so that they are downloaded once.
      fetch: ``fetch(folder, progress) -> line for the user`` gets what is no single file, such as images of many web
        sites; ``progress(what, unit)`` is a context with a `winobench.data.downloads.Display`. Tasks that share a
        folder share it.
    """

    read: Callable[[pathlib.Path], Iterable[Item | LeftOut]]
    how_to_get: str
    num_examples: int | None
    downloads: tuple[Download, ...] = ()
    shared_folder: str | None = None
    with_lists: Callable[[pathlib.Path, Any, str], PublishedData] | None = None
    read_partial: Callable[[pathlib.Path], Iterable[Item | LeftOut]] | None = None
    fetch: Callable[[pathlib.Path, Callable[[str, str], AbstractContextManager[Any]]], str] | None = None


def published_task(*, source: PublishedData, **fields: Any) -> Task:
    """A task that reads its examples from ``<data_dir>/<name>``, as ``python -m launch.prepare`` writes it.

    Args:
      source: the published files.
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
    """One sentence on why a prepared set cannot be used and how to get it, or None where it is ready.

    Args:
      name: of the task.
      version: of the task.
      source: its published files.
      data_dir: where prepared sets are; None for the default place.
    """
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
        way += "; without --source it downloads what may be downloaded"
    return way
