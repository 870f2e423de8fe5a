"""Long texts that published judges read, verbatim from the published code: files in ``templates``."""

from __future__ import annotations

import pathlib

_FOLDER = pathlib.Path(__file__).parent / "templates"


def read(name: str) -> str:
    """The text of a file."""
    return (_FOLDER / name).read_text("utf-8")
