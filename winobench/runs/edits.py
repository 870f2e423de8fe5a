"""Edited images on disk: ``edits/`` in a run's folder.

edits/<image>.png              an image as the model was given it. Named by the first half of its content's SHA-256
edits/<image>-<text>.png       the same, edited towards a text
edits/part-<process>.jsonl     a line an edit (`Edit`), written once its image is there. The last one counts
"""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pathlib

import numpy as np
import PIL.Image

from winobench.base import files, json_files
from winobench.base.errors import InputError

FOLDER = "edits"
_NAME = 32  # hexadecimal digits of a hash in a file's name


@dataclasses.dataclass(frozen=True)
class Edit:
    """An image that was edited towards a text."""

    image: str  # SHA-256 of its content (`winobench.data.images.image_hash`)
    text: str
    distance: float  # Euclidean distance that the latents have moved
    error_before: float  # mean denoising error under the text (squared L2), on the same noise as error_after
    error_after: float
    before: str  # paths within the run's folder, with /
    after: str


def edit_files(image: str, text: str) -> tuple[str, str]:
    """Paths of the images before and after, within the run's folder."""
    names = image[:_NAME], files.digest(text)[:_NAME]
    return f"{FOLDER}/{names[0]}.png", f"{FOLDER}/{'-'.join(names)}.png"


class EditWriter:
    """Writes the edits of one process. An image is on disk before its line, and both before `add` returns."""

    def __init__(self, folder: str | os.PathLike, process: int = 0):
        self._folder = pathlib.Path(folder)
        self._path = self._folder / FOLDER / f"part-{process}.jsonl"

    def add(self, edit: Edit, before: np.ndarray, after: np.ndarray) -> None:
        """Writes an edit with its images, uint8 ``[height, width, 3]``."""
        with files.writing(self._folder):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for file, pixels in ((edit.before, before), (edit.after, after)):
                if file == edit.after or not (self._folder / file).exists():
                    with files.atomic_path(self._folder / file) as temporary:
                        PIL.Image.fromarray(pixels).save(temporary, "PNG")
            line = json.dumps(dataclasses.asdict(edit), separators=(",", ":")).encode() + b"\n"
            with open(self._path, "a+b") as lines:
                # A kill can leave a part of a line, which must not swallow this one.
                if lines.tell() and lines.seek(-1, io.SEEK_END) >= 0 and lines.read(1) != b"\n":
                    line = b"\n" + line
                lines.write(line)
                lines.flush()
                os.fsync(lines.fileno())


def read_edits(folder: str | os.PathLike) -> dict[tuple[str, str], Edit]:
    """(image's hash, text) -> edit, of a run. A line that a kill has cut off is skipped."""
    edits: dict[tuple[str, str], Edit] = {}
    for path in sorted((pathlib.Path(folder) / FOLDER).glob("part-*.jsonl")):
        try:
            content = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror or error}): see to its rights") from error
        edits |= {(edit.image, edit.text): edit for line in content.splitlines() if (edit := _parsed(line)) is not None}
    return edits


def _parsed(line: bytes) -> Edit | None:
    try:
        edit = Edit(**json_files.parse(line))
    except (ValueError, TypeError):
        return None
    whole = isinstance(edit.image, str) and isinstance(edit.text, str)
    whole &= all(isinstance(number, float | int) for number in (edit.distance, edit.error_before, edit.error_after))
    return edit if whole and (edit.before, edit.after) == edit_files(edit.image, edit.text) else None
