"""Writes the figures of a benchmark as JSON with one record per line, so that a new record changes one line."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from winobench.base import files


def write(figures: Mapping[str, Any], path: pathlib.Path | None) -> None:
    """Writes one line per entry, and one per record of an entry that has records. Does nothing without a path."""
    if path:
        path.parent.mkdir(parents=True, exist_ok=True)
        entries = (f"{json.dumps(name)}: {_lines(value)}" for name, value in figures.items())
        files.write_text(path, "{\n" + ",\n".join(entries) + "\n}\n")


def _lines(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return "[\n " + ",\n ".join(map(json.dumps, value)) + "\n]"
    if isinstance(value, dict) and value and all(isinstance(each, dict) for each in value.values()):
        return "{\n " + ",\n ".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()) + "\n}"
    return json.dumps(value)
