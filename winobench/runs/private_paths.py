"""Absolute paths, cut to their last part in what others read: they name a computer's folders and its user."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from winobench.base import options
from winobench.runs.run import Run

# In a setting, such as "/data", "sdxl+~/file.safetensors" or "jsonl:/data/a.jsonl". Web addresses have two slashes.
_IN_SETTINGS = re.compile(r"(?:^|[=,:+;\s'\"(])((?:~[\w.-]*|[A-Za-z]:)?[/\\](?![/\\])[^,+=;\n'\"]*)")
_FURTHER = r"(?:[/\\][^\s'\",;:)\]<>&]*)?"


def remover(folders: Iterable[str | os.PathLike[str]], settings: Any = None) -> Callable[[Any], Any]:
    """A function that cuts paths in all texts of a JSON value, or in a text.

    It knows the user's home, the current folder, some folders with the ones that hold them, and all absolute paths in
    some settings, a JSON value. Other texts stay as they are.
    """
    home = os.path.expanduser("~")
    known = {home, *(path for text in _texts(settings) for path in _IN_SETTINGS.findall(text))}
    for folder in (*folders, os.path.curdir):
        path = pathlib.Path(os.path.abspath(folder))
        known |= {str(part) for part in (path, path.parent, os.path.realpath(path), os.path.realpath(path.parent))}
    known = {path.rstrip("/\\ ") for path in known} - {"", "~"}
    longest = sorted(known, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, longest))}){_FURTHER}(?![\w-])")

    def last_part(match: re.Match[str]) -> str:
        path = match[0].rstrip("/\\")
        return "~" if path == home else re.split(r"[/\\]", path)[-1]

    def cut(value: Any) -> Any:
        if isinstance(value, str):
            return pattern.sub(last_part, value)
        if isinstance(value, Mapping):
            return {cut(key): cut(content) for key, content in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(cut, value))
        return value

    return cut


def without_paths(run: Run) -> Run:
    """A run whose settings and sentences can be published. Its own path stays: its files are read there."""
    options.instance("a run as winobench.read_run gives it", Run).check("run", run, "wrong-type")
    cut = remover([run.path], run.config)
    said = {name: cut(getattr(run, name)) for name in ("label", "config", "results", "failed", "notes")}
    return dataclasses.replace(run, **said)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for content in value.values():
            yield from _texts(content)
    elif isinstance(value, list):
        for content in value:
            yield from _texts(content)
