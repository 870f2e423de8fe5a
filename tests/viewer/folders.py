"""Run folders to view: a run that is being written, and folders that no run would have written."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterator

from winobench.base import files

_WRITTEN_LATE = ("results.json", "examples", "gallery")


def begin(finished: pathlib.Path, folder: pathlib.Path) -> list[pathlib.Path]:
    """Makes the folder of a run that has just begun, from a finished one. Returns what `run_again` still has to add."""
    folder.mkdir(parents=True)
    for name in ("errors", "examples", "gallery"):
        (folder / name).mkdir()
    set_status(finished, folder, "running")
    parts = sorted((finished / "errors").glob("part-*.parquet"))
    late = [finished / name for name in _WRITTEN_LATE]
    return [*parts, *(path for place in late for path in (sorted(place.iterdir()) if place.is_dir() else [place]))]


def set_status(finished: pathlib.Path, folder: pathlib.Path, status: str) -> None:
    """Writes the config of a finished run with another status."""
    config = json.loads((finished / "config.json").read_text())
    files.write_text(folder / "config.json", json.dumps({**config, "status": status}, indent=2))


def add(finished: pathlib.Path, folder: pathlib.Path, path: pathlib.Path) -> None:
    """Adds one file of the finished run, as winobench writes it: whole, by a change of name."""
    target = folder / path.relative_to(finished)
    temporary = target.with_name(f"{target.name}.tmp")
    shutil.copyfile(path, temporary)
    os.replace(temporary, target)


@contextlib.contextmanager
def taken(folder: pathlib.Path) -> Iterator[None]:
    """Holds the lock that a process holds while it writes a run."""
    lock = os.open(folder / "examples", os.O_RDONLY)
    try:
        assert files.lock(lock)
        yield
    finally:
        os.close(lock)


def run_again(finished: pathlib.Path, folder: pathlib.Path, seconds: float) -> None:
    """Lets a finished run happen once more, in another folder and in so many seconds."""
    missing = begin(finished, folder)
    with taken(folder):
        for path in missing:
            add(finished, folder, path)
            time.sleep(seconds / len(missing))
        set_status(finished, folder, "finished")
