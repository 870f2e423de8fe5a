"""Reads the annotation files of published data. An error is one sentence that names the file and the line."""

from __future__ import annotations

import ast
import csv
import dataclasses
import io
import itertools
import math
import pathlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.data.example import Box

# The repository of GDBench's authors, and where files of its folder data are downloaded from.
DIFFUSION_ITM = "https://github.com/McGill-NLP/diffusion-itm"
DIFFUSION_ITM_RAW = "https://raw.githubusercontent.com/McGill-NLP/diffusion-itm/main/data"


@dataclasses.dataclass(frozen=True)
class Entry:
    """A value in an annotation file, and where it is there."""

    value: Any
    where: str  # in words, e.g. "'sentence' in row 3 of /data/svo.json". Rows are counted from 1
    remedy: str = "restore the file as it was published"

    def wrong(self, problem: str, code: str) -> InputError:
        """An error about this entry, to be raised."""
        return InputError(f"{self.where} {problem}: {self.remedy}", code=code)

    def __getitem__(self, key: str) -> Entry:
        if not isinstance(self.value, dict):
            raise self.wrong(f"is not an object with the key {key!r}", "not-an-object")
        if key not in self.value:
            raise self.wrong(f"has no {key!r}", "missing-field")
        return dataclasses.replace(self, value=self.value[key], where=f"{key!r} in {self.where}")

    def __contains__(self, key: str) -> bool:
        return isinstance(self.value, dict) and key in self.value

    def rows(self, count: int | None = None) -> Iterator[Entry]:
        """The elements of a list, which has ``count`` of them if that is given."""
        if not isinstance(self.value, list):
            raise self.wrong("is not a list", "not-a-list")
        if count is not None and len(self.value) != count:
            raise self.wrong(f"has {len(self.value)} entries, not {count}", "wrong-number-of-entries")
        noun = "entry" if "'" in self.where else "row"  # of a field, or of a file
        for number, value in enumerate(self.value, start=1):
            yield dataclasses.replace(self, value=value, where=f"{noun} {number} of {self.where}")

    def items(self) -> Iterator[tuple[str, Entry]]:
        """The keys and values of an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("is not an object", "not-an-object")
        for key, value in self.value.items():
            yield key, dataclasses.replace(self, value=value, where=f"{key!r} in {self.where}")

    def text(self) -> str:
        """A text that is not empty."""
        if not isinstance(self.value, str) or not self.value.strip():
            raise self.wrong("is not a text", "not-a-text")
        return self.value

    def texts(self, count: int | None = None) -> tuple[str, ...]:
        """A list of texts, of ``count`` of them if that is given."""
        return tuple(row.text() for row in self.rows(count))

    def one_of(self, names: Collection[str]) -> str:
        """A text that is one of these."""
        if self.text() not in names:
            raise self.wrong(f"is {options.quote(self.value)}, none of {', '.join(names)}", "unknown-name")
        return self.value

    def unique(self, value: Any, seen: Collection) -> Any:
        """The value of this entry, which no earlier row may have."""
        if value in seen:
            raise self.wrong(f"is {value}, as in an earlier row", "repeated-id")
        return value

    def box(self, x: float, y: float, width: float, height: float) -> Box:
        """The part of this row's image, in pixels, rounded as PIL's crop rounds."""
        left, top, right, bottom = map(round, (x, y, x + width, y + height))
        if left >= right or top >= bottom or right <= 0 or bottom <= 0:
            raise self.wrong(f"has a box outside of the image: {width} x {height} pixels at ({x}, {y})", "bad-box")
        return left, top, right, bottom

    def integer(self) -> int:
        """A whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.wrong("is not a whole number", "not-a-number")
        return self.value

    def number(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise self.wrong("is not a number", "not-a-number")
        return self.value


def not_as_published(where: Any, problem: str, code: str) -> InputError:
    """An error that states how a file differs from the published one, to be raised."""
    return InputError(f"{where} {problem}: restore it as it was published", code=code)


def no_such_file(what: Any) -> InputError:
    """An error about a file that the task needs, to be raised."""
    return InputError(f"the task needs {what}, which does not exist: get it as it was published", code="no-such-file")


def read_bytes(path: pathlib.Path) -> bytes:
    """The content of a file."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise no_such_file(f"the file {path}") from None
    except OSError as error:
        raise not_as_published(path, f"cannot be read ({error.strerror or error})", "cannot-read") from None


def read_json(path: pathlib.Path) -> Entry:
    """The content of a JSON file."""
    return Entry(_parse(_read(path), str(path)), str(path))


def read_json_lines(path: pathlib.Path) -> Entry:
    """The content of a file with one JSON value a line, as a list."""
    lines = [(number, line) for number, line in enumerate(_read(path).split("\n"), start=1) if line.strip()]
    return Entry([_parse(line, f"line {number} of {path}") for number, line in lines], str(path))


def read_table(path: pathlib.Path, columns: Iterable[str], delimiter: str = "\t") -> Entry:
    """The rows of a file with a header, as objects whose values are texts. The delimiter is a tab or comma."""
    # Spreadsheets write a mark of the byte order, which is not a part of the first column's name.
    text = _read(path).removeprefix("\ufeff")
    reader = csv.DictReader(io.StringIO(text), delimiter=delimiter, strict=True)
    try:
        rows = list(reader)
    except csv.Error as error:
        kind = "tab" if delimiter == "\t" else "comma"
        # Only a quotation mark that is never closed takes the reader to the end of the file.
        if "unexpected end" in str(error):
            raise _broken_off(str(path)) from None
        raise InputError(
            f"line {reader.reader.line_num} of {path} is not a row of a {kind}-separated table ({error}): restore"
            " the file as it was published",
            code="damaged-table",
        ) from None
    for column in columns:
        if column not in (reader.fieldnames or ()):
            raise not_as_published(path, f"has no column {column!r}", "missing-column")
    return Entry(rows, str(path))


def read_lines(path: pathlib.Path) -> tuple[str, ...]:
    """The lines of a text file that are not blank, stripped."""
    return tuple(line.strip() for line in _read(path).split("\n") if line.strip())


def python_list(entry: Entry) -> Entry:
    """The list that a text states as Python writes it, as pandas leaves lists in tables."""
    try:
        value = ast.literal_eval(entry.text())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        value = None
    if not isinstance(value, list):
        raise entry.wrong("is not a list in Python's notation", "not-a-list")
    return Entry(value, entry.where)


def image_names(folder: pathlib.Path) -> list[pathlib.Path]:
    """The JPEG files of a folder in the order of their names, without the hidden ones that macOS leaves in archives."""
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
    except OSError:
        raise InputError(
            f"the folder {folder} does not exist: make it, with the task's .jpg files in it", code="no-such-folder"
        ) from None
    paths = [path for path in paths if not path.name.startswith(".")]
    if not paths:
        raise InputError(f"the folder {folder} has no .jpg file: put the task's images there", code="missing-images")
    for first, second in itertools.pairwise(paths):
        if first.stem == second.stem:
            raise InputError(
                f"{folder} has both {first.name} and {second.name}: remove or rename one of them", code="two-files"
            )
    return paths


def other_images(folder: pathlib.Path) -> list[pathlib.Path]:
    """The images of a folder that `image_names` does not give, by their endings."""
    others = (".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".jfif", ".jxl")
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    return [path for path in paths if path.suffix.lower() in others and not path.name.startswith(".")]


def _parse(text: str, where: str) -> Any:
    """The value of a JSON text. Messages name ``where``."""
    repeated: list[tuple[dict[str, Any], str]] = []

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in pairs:
            # json would keep the last one and say nothing.
            if key in values:
                repeated.append((values, key))
            values[key] = value
        return values

    try:
        value = json_files.parse(text, pairs=to_dict, largest=json_files.LARGEST_DATA)
    except json_files.NotJSON as error:
        if not text.strip():
            raise InputError(f"{where} is empty: restore the file as it was published", code="empty-file") from None
        if error.cut_off:
            raise _broken_off(where) from None
        raise InputError(
            f"{where} is not JSON ({error}): restore the file as it was published", code=error.code
        ) from None
    if repeated:
        # An object that was left out for a later one with its key is in no place, but then that key is noted as well.
        keys = {id(values): key for values, key in repeated}
        entry = next(entry for entry in _nested(Entry(value, where)) if id(entry.value) in keys)
        raise entry.wrong(f"has the key {keys[id(entry.value)]!r} twice", "repeated-key")
    return value


def _nested(entry: Entry) -> Iterator[Entry]:
    """A value and all that it holds."""
    yield entry
    if isinstance(entry.value, dict):
        for _, inner in entry.items():
            yield from _nested(inner)
    elif isinstance(entry.value, list):
        for inner in entry.rows():
            yield from _nested(inner)


def _broken_off(where: str) -> InputError:
    return InputError(
        f"{where} breaks off in the middle, as after an unfinished download: get the file again", code="incomplete-file"
    )


def _read(path: pathlib.Path) -> str:
    """The text of a file, with the ends of lines that Python's text mode gives."""
    try:
        return read_bytes(path).decode().replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise not_as_published(path, f"cannot be read ({error})", "cannot-read") from None
