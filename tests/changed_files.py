"""Changes files of models and runs."""

import json
import pathlib
from collections.abc import Callable
from typing import Any


def edit(path: pathlib.Path, change: Callable[[Any], object] = lambda content: None, **values: Any) -> None:
    """Changes what a file holds by a function, and then members of its object. ``...`` takes one out."""
    content = json.loads(path.read_text())
    change(content)
    if values:
        content = {name: value for name, value in (content | values).items() if value is not ...}
    path.write_text(json.dumps(content))


def edited(name: str, **values: Any) -> Callable[[pathlib.Path], None]:
    """The same as a function of the folder."""
    return lambda folder: edit(folder / name, **values)


def change_a_byte(path: pathlib.Path) -> None:
    """In the middle."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
