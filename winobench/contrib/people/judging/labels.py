"""One person's labels, in a file that only grows: a click is on disk before it is answered."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import re
import threading
from collections.abc import Sequence
from typing import Any

from winobench.base import files, json_files
from winobench.base.errors import InputError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SUFFIX = ".jsonl"


class Labels:
    """One person's labels: lines of JSON, of which the last one of an item counts, so that nothing is overwritten.

    A context manager: while it is open, no other process can write for the same person.
    """

    def __init__(self, folder: str | os.PathLike, name: str, choices: Sequence[str]):
        check_name(name)
        self.name = name
        self.choices = tuple(choices)
        self.path = pathlib.Path(folder) / f"{name}{_SUFFIX}"
        self.labels: dict[str, str] = {}  # by item, in the order of the clicks
        self._file: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Labels:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            if not files.lock(self._file):
                raise InputError(f"the page of {self.name!r} is open already: use that one, or end it", code="in-use")
            files.sync(self.path.parent)
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):  # the click was never answered, so that its person knows that it did not count
                os.ftruncate(self._file, whole)
            self.labels = parse(content[:whole], self.path, self.choices)
        except OSError as error:
            self.close()
            raise InputError(
                f"{self.path} cannot be written: {error.strerror or error}", code="cannot-write"
            ) from error
        except InputError:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Lets other processes write for this person."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def add(self, item: str, label: str | None) -> None:
        """Stores a click. It is on disk when this returns."""
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"item": item, "label": label, "time": moment}).encode() + b"\n"
        with self._lock:
            size = os.fstat(self._file).st_size
            try:
                done = 0
                while done < len(line):
                    done += os.write(self._file, line[done:])
                os.fsync(self._file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, size)
                raise
            self.labels.pop(item, None)  # the order follows the clicks
            if label is not None:
                self.labels[item] = label


def check_name(name: str) -> None:
    """Refuses a person's name that cannot be a file's."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"the name {name!r} cannot be a file's: call the person by letters, digits, - and _, 40 at most",
            code="bad-name",
        )


def read_labels(folder: str | os.PathLike, choices: Sequence[str]) -> dict[str, dict[str, str]]:
    """Person -> item -> label, of all files in a folder. Empty if missing."""
    found = {}
    for path in sorted(pathlib.Path(folder).glob(f"*{_SUFFIX}")):
        content = path.read_bytes()
        found[path.stem] = parse(content[: content.rfind(b"\n") + 1], path, choices)
    return found


def parse(content: bytes, path: pathlib.Path, choices: Sequence[str]) -> dict[str, str]:
    """The last label of each item, of the whole lines of a file; ``path`` is for messages."""
    labels: dict[str, str] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            click = json_files.parse(line)
            item, label = click["item"], click["label"]
        except (ValueError, TypeError, KeyError):
            item, label = None, None
        if not isinstance(item, str) or label not in (*choices, None):
            raise InputError(
                f"{path}, line {number} is not a label: delete this line, or restore the file", code="damaged-file"
            )
        labels.pop(item, None)
        if label is not None:
            labels[item] = label
    return labels
