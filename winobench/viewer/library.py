"""The runs in folders, and how far each got. Every request looks again, because other programs write and delete them.

Folders are not trusted. A file is read, or given out, only where it is a regular file within the run's folder.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import glob
import os
import pathlib
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pyarrow.parquet as pq

from winobench import metrics
from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.runs import image_records, image_runs, judgements, records
from winobench.runs.labels import MOST_LETTERS, Labelled, model_label, shortened, task_label, unique_labels
from winobench.runs.reading import fields_of, is_run, recorded_metric, run_folders
from winobench.runs.run import BIAS_METRIC

RUNNING, FINISHED, INTERRUPTED, FAILED, UNREADABLE = "running", "finished", "interrupted", "failed", "unreadable"
"""Values of a run's status."""

IMAGES, TEXT, GENERATED = "images", "text", "generated"
"""Kinds of runs."""

_CONFIG, _RESULTS = "config.json", "results.json"
_JUDGED = os.path.join(judgements.FOLDER, "*", judgements.RESULTS)

LARGEST = {_CONFIG: 8 * 2**20, _RESULTS: 64 * 2**20}
"""Bytes of a file that is read."""

EXPORTS = {
    "model-card.md": "text/markdown",
    "eval_results.yaml": "application/yaml",
    "inspect.zip": "application/zip",  # a log a task
    "results.csv": "text/csv",
    "results.tex": "text/x-tex",
    "report.html": "text/html",
}
"""Files of a run for other programs, with their media types."""

MOST_RUNS = 6
"""The largest number of runs in a report."""

_FOLDERS = {
    IMAGES: (records.ERRORS, "examples", "gallery"),
    TEXT: (records.RESPONSES, "examples", "gallery"),
    GENERATED: (image_records.GENERATED, image_records.IMAGES),
}
_UNITS = {IMAGES: "errors", TEXT: "responses", GENERATED: "images"}
_MOST_LETTERS_OF_REASONS, _MOST_TASKS = 500, 500
_BYTES_AT_ONCE = 2**20

T = TypeVar("T")
Stamp = tuple[int, int, int]  # inode, size and time of a file


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run's folder, and its name in addresses."""

    slug: str
    path: pathlib.Path  # as it was named, for people
    root: str  # without links


@dataclasses.dataclass(frozen=True)
class _Kept:
    """The content of a file, or why it could not be read."""

    stamp: Stamp
    value: Any = None
    error: Exception | None = None


class Library:
    """The runs in some folders: each a run's, or one that holds runs."""

    def __init__(self, paths: Sequence[str | os.PathLike[str]]):
        self._paths = [pathlib.Path(files.user_path(path)) for path in paths]
        self._run_folders: dict[str, RunFolder] = {}  # by the slug, as they were last seen
        self._slugs: dict[str, str] = {}  # by the folder without links (a slug keeps its folder)
        self._read: dict[str, _Kept] = {}  # by the file's path
        self._seen: dict[str, _Kept] = {}  # of the files that are still there
        self._lock = threading.RLock()

    def run_folders(self) -> list[RunFolder]:
        """The runs that are there now, in the order of the paths and then of the names."""
        with self._lock:
            by_root: dict[str, RunFolder] = {}
            for folder in self._folders():
                root = os.path.realpath(folder)
                by_root.setdefault(root, RunFolder(self._slug(root), folder, root))
            self._run_folders = {run_folder.slug: run_folder for run_folder in by_root.values()}
            return list(by_root.values())

    def find(self, slug: str) -> RunFolder:
        """The run of a slug. Raises InputError where it is gone, or its files are too large."""
        run_folder = self._run_folders.get(slug)
        if run_folder is None or not is_run(pathlib.Path(run_folder.root)):
            run_folder = next((run_folder for run_folder in self.run_folders() if run_folder.slug == slug), None)
        if run_folder is None:
            shown = _text(slug, 80)
            raise InputError(f"the run {shown!r} is not there: it was moved or deleted", code="no-such-folder")
        for name in LARGEST:
            with contextlib.suppress(OSError):
                _check_size(name, os.stat(os.path.join(run_folder.root, name)).st_size)
        return run_folder

    def runs(self) -> list[dict[str, Any]]:
        """Entries of the table of runs, the newest first. A run that cannot be read has a reason."""
        with self._lock:
            run_folders, self._seen = self.run_folders(), {}
            entries = [self._described(run_folder) for run_folder in run_folders]
            self._read = self._seen
        _tell_apart(entries)
        return sorted(entries, key=lambda run: run["started"] or "", reverse=True)

    def _folders(self) -> Iterator[pathlib.Path]:
        for path in self._paths:
            yield from run_folders(os.path.abspath(path))

    def _slug(self, root: str) -> str:
        if root not in self._slugs:
            safe = re.sub(r"[^A-Za-z0-9._-]+", "-", os.path.basename(root))[:100]
            safe = safe if safe.strip(".") else "run"
            taken, number, slug = set(self._slugs.values()), 1, safe
            while slug in taken:
                number += 1
                slug = f"{safe}-{number}"
            self._slugs[root] = slug
        return self._slugs[root]

    def _described(self, run_folder: RunFolder) -> dict[str, Any]:
        """The entry of a run. No content of a folder makes it fail."""
        entry: dict[str, Any] = {
            "slug": run_folder.slug,
            "folder": _text(str(run_folder.path)),
            "label": _text(run_folder.path.name),
            "model": None,
            "kind": IMAGES,
            "status": UNREADABLE,
            "reason": None,
            "started": None,
            "updated": None,
            "tasks": [],
            "headline": [],
            "progress": None,
            "fields": {},
        }
        try:
            self._fill(entry, run_folder)
        except (InputError, OSError) as error:
            entry |= {"status": UNREADABLE, "reason": _reason(error, run_folder)}
        except Exception as error:  # such as a text where a number should be
            what = f"its files do not fit together ({type(error).__name__}: {error}): restore them, or evaluate again"
            entry |= {"status": UNREADABLE, "reason": _text(what, _MOST_LETTERS_OF_REASONS)}
        return entry

    def _fill(self, entry: dict[str, Any], run_folder: RunFolder) -> None:
        config = self._object(run_folder, _CONFIG, _facts_of_config)
        kind = config["kind"]
        entry |= {name: config[name] for name in ("kind", "model", "started", "tasks", "fields")}
        if label := config["name"] or model_label(config["model"]):
            entry["label"] = shortened(label, MOST_LETTERS)
        entry["updated"] = _newest(run_folder.root, kind)
        status, _, reason = config["status"].partition(": ")
        if status == RUNNING and not _is_locked(run_folder.root, kind):
            status = INTERRUPTED
        known = (RUNNING, FINISHED, INTERRUPTED, FAILED)
        entry |= {"status": status if status in known else UNREADABLE, "reason": reason or None}
        if kind != GENERATED:
            try:
                entry |= self._object(run_folder, _RESULTS, lambda content: _facts_of_results(content, config))
            except FileNotFoundError:
                if status == FINISHED:
                    raise InputError("it has no results.json: evaluate again, which reads the records") from None
        if entry["status"] == UNREADABLE:
            entry["reason"] = f"config.json has the unknown status {_text(config['status'])!r}: evaluate again"
        if config["total"] and (kind == GENERATED or entry["status"] in (RUNNING, INTERRUPTED, FAILED)):
            count = _errors_in if kind == IMAGES else _lines_in
            done = sum(self._kept(run_folder, name, count)[0] for name in parts(run_folder.root, kind))
            entry["progress"] = {"done": min(done, config["total"]), "total": config["total"], "unit": _UNITS[kind]}

    def _object(self, run_folder: RunFolder, name: str, read: Callable[[dict[str, Any]], T]) -> T:
        """The value that a function reads out of a JSON file, again only after the file has changed."""

        def parse(descriptor: int, _: T | None) -> T:
            _check_size(name, os.fstat(descriptor).st_size)
            with open(descriptor, "rb", closefd=False) as file:
                value = json_files.parse(file.read(LARGEST[name] + 1), constants=True)
            if not isinstance(value, dict):
                raise InputError(f"{name} does not hold an object: restore it, or evaluate again", code="not-an-object")
            return read(value)

        try:
            return self._kept(run_folder, name, parse)
        except json_files.NotJSON as error:
            raise InputError(f"{name} cannot be read as JSON ({error}): restore it, or evaluate again") from None

    def _kept(self, run_folder: RunFolder, name: str, read: Callable[[int, T | None], T]) -> T:
        """Reads an open file by a function, again only after a change. The function gets its former result."""
        path = os.path.join(run_folder.root, *name.split("/"))
        about = os.stat(path)
        stamp = about.st_ino, about.st_size, about.st_mtime_ns
        known = self._read.get(path)
        if known is None or known.stamp != stamp:
            before = known.value if known is not None and known.stamp[0] == stamp[0] else None
            try:
                with _open(run_folder.root, name) as descriptor:
                    known = _Kept(stamp, read(descriptor, before))
            except Exception as error:
                known = _Kept(stamp, error=error)
        self._read[path] = self._seen[path] = known
        if known.error is not None:
            raise known.error
        return known.value


@contextlib.contextmanager
def _open(root: str, name: str) -> Iterator[int]:
    descriptor = opened(root, name)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def opened(root: str, name: str) -> int:
    """Opens a regular file of a run's folder, with ``/`` in its name. Links that lead elsewhere are refused.

    Raises OSError without such a file. The caller closes it.
    """
    real = os.path.realpath(os.path.join(root, *name.split("/")))
    if os.path.commonpath([root, real]) != root or real == root:
        raise FileNotFoundError(errno.ENOENT, "it is not within the run's folder", name)
    *folders, last = os.path.relpath(real, root).split(os.sep)
    # Step by step, so that no link that appears in the meantime is followed.
    how = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    directory = os.open(root, how | os.O_DIRECTORY)
    try:
        for folder in folders:
            inner = os.open(folder, how | os.O_DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = inner
        descriptor = os.open(last, how, dir_fd=directory)
    finally:
        os.close(directory)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return descriptor


def stamps(root: str) -> list[tuple[str, Stamp]]:
    """Names, sizes and times of what a run's documents are made of."""
    found = []
    judged = [os.path.relpath(path, root) for path in sorted(glob.glob(os.path.join(glob.escape(root), _JUDGED)))]
    for name in ("", "verdicts.jsonl", *judged, _CONFIG, _RESULTS, *dict.fromkeys(sum(_FOLDERS.values(), ()))):
        with contextlib.suppress(OSError):
            about = os.stat(os.path.join(root, name))
            found.append((name, (about.st_ino, about.st_size, about.st_mtime_ns)))
    return found


def _check_size(name: str, size: int) -> None:
    if size > LARGEST[name]:
        raise InputError(
            f"{name} has {files.size_in_words(size)}, and {files.size_in_words(LARGEST[name])} are read at most: find"
            " the program that wrote it",
            code="too-large",
        )


def _facts_of_config(config: Mapping[str, Any]) -> dict[str, Any]:
    identity = config.get("identity")
    if not isinstance(identity, dict):
        raise InputError(f"{_CONFIG} is not winobench's: name other folders", code="not-a-run")
    total = config.get("total")
    if config.get("kind") == image_runs.KIND:
        kind, tasks = GENERATED, []
        total = len(identity["models"]) * len(identity["seeds"]) * identity["prompts"]["count"]
    else:
        kind = TEXT if "protocol" in identity else IMAGES
        tasks = list(identity.get("tasks") or {})
    return {
        "kind": kind,
        "model": _text((config.get("config") or {}).get("model") or config.get("model") or ""),
        "status": _text(config.get("status", FINISHED), _MOST_LETTERS_OF_REASONS),
        "started": _moment(config.get("started")),
        "tasks": [_text(task) for task in tasks[:_MOST_TASKS]],
        "total": total if isinstance(total, int) and total > 0 else None,
        "metrics": config.get("metrics") or {},
        "name": _text(config.get("name") or ""),
        "fields": _fields_of(config),
    }


def _facts_of_results(results: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The tasks, and the main row of each."""
    rows = []
    tasks = list(results["tasks"].items())[:_MOST_TASKS]
    for task, entries in tasks:
        recorded = recorded_metric(entries, config["metrics"].get(task))
        name = next((row for row in recorded["shown"] if row in entries), None)
        name = recorded["headline"] if recorded["headline"] in entries else name
        if config["kind"] == TEXT:
            name = next((row for row in entries if "/" not in row), None)
        if name is None:
            continue
        entry = entries[name]
        has_numbers = recorded["name"] == BIAS_METRIC or recorded["name"] in metrics.RATING_METRICS
        numbers = {key: _number(entry.get(key)) for key in ("value", "low", "high", "chance", "n")}
        numbers["too_few"] = entry.get("too_few") is True
        names = {"task": _text(task), "label": _text(task_label(task)), "metric": _text(name)}
        rows.append({**names, **numbers, "unit": "" if has_numbers else "%"})
    return {"tasks": [_text(task) for task, _ in tasks], "headline": rows}


def _tell_apart(runs: Sequence[dict[str, Any]]) -> None:
    """Adds to equal labels the fields in which their runs differ, as reports do."""
    described = [Labelled(run["label"], run["model"] or "", run.pop("fields"), run["slug"]) for run in runs]
    for run, label in zip(runs, unique_labels(described), strict=True):
        run["label"] = label


def _fields_of(config: Mapping[str, Any]) -> dict[str, str]:
    """The options of a run in words, or none of a config that no run has written."""
    try:
        return {name: _text(words) for name, words in fields_of(config).items()}
    except (TypeError, ValueError, LookupError, AttributeError):
        return {}


def parts(root: str, kind: str) -> list[str]:
    """The files that a run records in while it continues, within its folder."""
    folder = _FOLDERS[kind][0]
    ending = ".parquet" if kind == IMAGES else ".jsonl"
    with contextlib.suppress(OSError), os.scandir(os.path.join(root, folder)) as entries:
        names = sorted(entry.name for entry in entries)
        return [f"{folder}/{name}" for name in names if name.startswith("part-") and name.endswith(ending)]
    return []


def _errors_in(descriptor: int, before: tuple[int, int] | None) -> tuple[int, int]:
    """Errors in a part by its footer, and 0."""
    with open(descriptor, "rb", closefd=False) as file, pq.ParquetFile(file) as part:
        groups, last = part.metadata.num_row_groups, part.metadata.num_columns - 1
        return sum(part.metadata.row_group(number).column(last).num_values for number in range(groups)), 0


def _lines_in(descriptor: int, before: tuple[int, int] | None) -> tuple[int, int]:
    """Lines of a part that only grows, and the bytes in which they were counted."""
    lines, end = before if before is not None and before[1] <= os.fstat(descriptor).st_size else (0, 0)
    with open(descriptor, "rb", closefd=False) as file:
        file.seek(end)
        for content in iter(lambda: file.read(_BYTES_AT_ONCE), b""):
            lines, end = lines + content.count(b"\n"), end + len(content)
    return lines, end


def _newest(root: str, kind: str) -> str:
    """When a file of a run was last written, or added."""
    names = [_CONFIG, _RESULTS, *_FOLDERS[kind]]
    if kind != IMAGES:  # lines are added to their parts
        names += parts(root, kind)
    times = []
    for name in names:
        with contextlib.suppress(OSError):
            times.append(os.stat(os.path.join(root, name)).st_mtime)
    moment = datetime.datetime.fromtimestamp(max(times), datetime.UTC)
    return moment.isoformat(timespec="seconds")


def _is_locked(root: str, kind: str) -> bool:
    """Whether a process writes into a run's folder."""
    return files.is_locked(os.path.join(root, image_records.GENERATED if kind == GENERATED else "examples"))


def _text(value: Any, most: int = 200) -> str:
    """A text that JSON and a page can hold."""
    return shortened(json_files.well_formed(str(value)), most)


def _number(value: Any) -> float | None:
    return value if isinstance(value, int | float) and value == value and abs(value) != float("inf") else None


def _moment(value: Any) -> str | None:
    """A time as it was recorded; None for anything else."""
    try:
        return datetime.datetime.fromisoformat(value).isoformat(timespec="seconds")
    except (TypeError, ValueError):
        return None


def _reason(error: Exception, run_folder: RunFolder) -> str:
    said = error.strerror or str(error) if isinstance(error, OSError) else str(error)
    if isinstance(error, OSError) and error.filename:
        said = f"{os.path.basename(str(error.filename))} cannot be read ({said}): restore it, or evaluate again"
    return _text(said, _MOST_LETTERS_OF_REASONS)
