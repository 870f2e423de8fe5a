"""The content of each address below ``data/``: files of runs, and documents on them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from winobench.base.errors import InputError
from winobench.base.version import __version__
from winobench.runs.labels import shortened
from winobench.viewer import errors, library

VERSION = 1
"""Version of the addresses and their contents."""

HTML, JSON, PARQUET = "text/html", "application/json", "application/vnd.apache.parquet"
_SLUGS = re.compile(r"[A-Za-z0-9._-]+(?:~[A-Za-z0-9._-]+)*")
_MOST_LETTERS = 80  # of a name in a sentence


@dataclasses.dataclass(frozen=True)
class File:
    """A file of a run's folder, to be opened by `winobench.viewer.library.opened`."""

    root: str
    name: str
    media_type: str


@dataclasses.dataclass(frozen=True)
class Document:
    """A value that JSON can hold."""

    value: Any


@dataclasses.dataclass(frozen=True)
class Work:
    """A call of a function of `winobench.viewer.tasks`, which may take long."""

    function: str
    arguments: Mapping[str, Any]
    version: Any  # changes with the runs
    media_type: str = JSON
    file_name: str | None = None  # of a document that is saved and not shown
    waits: bool = False  # the reader cannot repeat the request


class Missing(Exception):
    """There is nothing at an address. The message is one sentence."""


class Site:
    """The addresses of a library."""

    def __init__(self, runs: library.Library, reproduce: str | None = None):
        """``reproduce`` is a function, as ``module:name``, that gives the command by which a run is made again."""
        self._library = runs
        self._reproduce = reproduce
        self._errors = errors.Errors()
        self._documents: dict[tuple[str, str], tuple[Any, Any]] = {}  # (function, root) -> version, document
        self._lock = threading.Lock()

    def find(self, address: str) -> File | Document | Work:
        """The content of an address, relative to ``data/``. Raises Missing, InputError and OSError."""
        parts = address.split("/")
        if any(part in ("", ".", "..") or "\0" in part for part in parts):
            raise Missing("this address does not exist")
        match parts:
            case ["site.json"]:
                return Document(described())
            case ["runs.json"]:
                return Document({"runs": self._library.runs()})
            case ["leaderboard.json"]:
                return Document({"runs": self._leaderboard()})
            case ["report", name] if name.endswith(".html"):
                run_folders = self._run_folders(name.removesuffix(".html"), 1, library.MOST_RUNS)
                return dataclasses.replace(self._work("report", run_folders), media_type=HTML)
            case ["pairs", name] if name.endswith(".json"):
                return self._work("pair", self._run_folders(name.removesuffix(".json"), 2, 2))
            case ["runs", slug, *rest]:
                return self._of_run(self._library.find(slug), rest)
        raise Missing("this address does not exist")

    def _of_run(self, run_folder: library.RunFolder, rest: Sequence[str]) -> File | Document | Work:
        match rest:
            case ["results.json" | "config.json" as name]:
                return File(run_folder.root, name, JSON)
            case ["run.json"]:
                threading.Thread(target=self._errors.prepare, args=(run_folder.root,), daemon=True).start()
                label, tasks = self._label(run_folder), _tasks()
                return Document(
                    self._kept(
                        "run", run_folder, lambda: tasks.run(run_folder.root, run_folder.slug, label, self._reproduce)
                    )
                    | {"label": label}
                )
            case ["examples" | "gallery" as folder, name] if name.endswith(".parquet"):
                return File(run_folder.root, f"{folder}/{name}", PARQUET)
            case ["errors", task, name] if re.fullmatch(r"\d{1,9}\.json", name, re.ASCII):
                return Document(self._errors_of(run_folder, task, int(name.removesuffix(".json"))))
            case ["drawn.json"]:
                return self._work("drawn", [run_folder])
            case ["pictures", model, seed, name] if name.endswith(".png"):
                return File(run_folder.root, f"pictures/{model}/{seed}/{name}", "image/png")
            case ["thumbnails", name] if name.endswith(".jpg"):
                return File(run_folder.root, f"thumbnails/{name}", "image/jpeg")
            case ["export", name] if name in library.EXPORTS:
                kind = library.EXPORTS[name]
                saved = f"{run_folder.slug}-{name}"
                return dataclasses.replace(
                    self._work("export", [run_folder], name=name), media_type=kind, file_name=saved, waits=True
                )
        raise Missing("this address does not exist")

    def _run_folders(self, names: str, least: int, most: int) -> list[library.RunFolder]:
        slugs = names.split("~")
        if not _SLUGS.fullmatch(names) or not least <= len(slugs) <= most or len(set(slugs)) < len(slugs):
            raise Missing(f"an address has {least} to {most} different runs here")
        return [self._library.find(slug) for slug in slugs]

    def _work(self, function: str, run_folders: Sequence[library.RunFolder], **more: Any) -> Work:
        arguments = {
            "paths": [run_folder.root for run_folder in run_folders],
            "slugs": [run_folder.slug for run_folder in run_folders],
            "labels": [self._label(run_folder) for run_folder in run_folders],
            "reproduce": self._reproduce,
            **more,
        }
        return Work(function, arguments, [library.stamps(run_folder.root) for run_folder in run_folders])

    def _label(self, run_folder: library.RunFolder) -> str:
        labels = {run["slug"]: run["label"] for run in self._library.runs()}
        return labels.get(run_folder.slug, run_folder.slug)

    def _kept(self, function: str, run_folder: library.RunFolder, make: Any) -> Any:
        """A document of one run, made again only after the run has changed."""
        version = library.stamps(run_folder.root)
        with self._lock:
            known = self._documents.get((function, run_folder.root))
        if known is None or known[0] != version:
            known = version, make()
            with self._lock:
                self._documents[function, run_folder.root] = known
        return known[1]

    def _leaderboard(self) -> list[dict[str, Any]]:
        entries = []
        tasks = _tasks()
        for run in self._library.runs():
            if run["status"] != library.FINISHED or run["kind"] == library.GENERATED:
                continue
            try:
                run_folder = self._library.find(run["slug"])
                entry = self._kept(
                    "leaderboard", run_folder, lambda run_folder=run_folder: tasks.leaderboard(run_folder.root)
                )
            except (InputError, OSError):  # the reason is in the table of runs
                continue
            entries.append({"slug": run["slug"], "label": run["label"], **entry})
        return entries

    def _errors_of(self, run_folder: library.RunFolder, task: str, row: int) -> dict[str, Any]:
        try:
            errors_of_row = self._errors.row(run_folder.root, task, row)
        except FileNotFoundError:
            errors_of_row = None
        except (OSError, pa.ArrowException, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            reason = " ".join(str(error).split())[:200]
            raise InputError(
                f"the errors of {task} cannot be read ({reason}): restore them, or evaluate again"
            ) from error
        if errors_of_row is None:
            raise Missing(f"the run has no errors behind the scores of {shortened(task, _MOST_LETTERS)}")
        return errors_of_row


def _tasks() -> Any:
    """The functions of documents, which take seconds to import."""
    from winobench.viewer import tasks

    return tasks


def preload() -> None:
    """Imports the modules of documents before the first request."""
    with contextlib.suppress(Exception):  # the request repeats the error
        _tasks()


def described() -> dict[str, Any]:
    """What ``site.json`` holds."""
    return {"version": VERSION, "bundle": False, "winobench": __version__}


def open_file(file: File) -> int:
    """Opens a file of a run. Raises Missing where it is not there."""
    try:
        return library.opened(file.root, file.name)
    except OSError as error:
        reason = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise Missing(f"{shortened(os.path.basename(file.name), _MOST_LETTERS)} {reason}") from error
