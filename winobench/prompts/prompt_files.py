"""Prompts, and the lines and tables that hold them."""

from __future__ import annotations

import copy
import csv
import dataclasses
import io
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from winobench.base import csv_cells, files, json_files, options
from winobench.base.errors import InputError
from winobench.base.texts import LONGEST_CAPTION, check_texts

SOURCE_IMAGE, SOURCE_SHA256 = "source_image", "source_sha256"
"""Fields in the content of a prompt that edits an image: the image's path in the set, and the SHA-256 of its file."""

LARGEST_LINE = 1_000_000  # bytes of a line. A longer line is not a prompt, and not read to its end
_LONGEST_NAME = 255
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_BLANKS = re.compile(r"[\t\r\n\v\f\x85]+")


@dataclasses.dataclass(frozen=True)
class Prompt:
    """A text to generate images from.

    Attributes:
      id: tells it from the others of its set.
      text: what judges read, and the models, unless they are given another text.
      category: of its set, such as ``counting``. Empty where it has none.
      content: what the image must show, or what else its set says of it, as JSON values; None where nothing is known.
      shown: the text that the models are given instead, where somebody has rewritten the prompt.
      source: reads the file of the image to edit. None without one, and for the prompts of a run, which has a copy
        (`winobench.runs.image_records.source_path`). The content tells this image from others.
    """

    id: str
    text: str
    category: str = ""
    content: Any = None
    shown: str | None = None
    source: Callable[[], bytes] | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def given(self) -> str:
        """What the models are given."""
        return self.text if self.shown is None else self.shown

    @property
    def source_sha256(self) -> str | None:
        """SHA-256, in hexadecimal, of the file of the image to edit. None for a prompt without one."""
        value = self.content.get(SOURCE_SHA256) if isinstance(self.content, Mapping) else None
        return value if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else None

    def to_json(self) -> dict[str, Any]:
        """The fields as a JSON object, without the source. A prompt that nobody has rewritten has no ``shown``."""
        fields = {name: copy.deepcopy(getattr(self, name)) for name in self._recorded()}
        return fields if self.shown is not None else {name: fields[name] for name in fields if name != "shown"}

    @classmethod
    def from_json(cls, value: Any) -> Prompt:
        """The inverse of `to_json`, from an object that may hold more.

        Raises:
          InputError: it has another form.
        """
        names = cls._recorded()
        fields: dict[str, Any] = {name: value.get(name) for name in names} if isinstance(value, Mapping) else {}
        if not all(isinstance(fields.get(name), str) for name in ("id", "text", "category")) or "content" not in value:
            raise InputError(f"{options.quote(value)} is not a prompt with id, text, category and content")
        if not isinstance(fields["shown"], str | None):
            raise InputError(f"{options.quote(value)} is not a prompt: shown is not a text")
        return cls(**fields)

    @classmethod
    def _recorded(cls) -> list[str]:
        return [field.name for field in dataclasses.fields(cls) if field.name != "source"]


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where a program puts the images of prompts. See `winobench.generation.image_layouts`."""

    name: str  # in words, as in "GenEval's layout"
    pattern: str  # of the paths, without the file's ending. ``{part}`` or ``{category}/`` ahead: a folder for each part
    id: str = ""  # makes the prompt's id from fields of the pattern, if ``{id}`` is not one
    black_is_missing: bool = False  # an all black image says that the model gave none
    leaves_out: str = ""  # the end of the names of files that are not results, such as ``_SRCIMG``. Empty for none


@dataclasses.dataclass(frozen=True)
class NamedSet:
    """A set of prompts that has a name."""

    read: Callable[[str], list[Prompt]]  # what follows the colon (empty for nothing) -> the prompts
    wanted: str  # behind the colon, for messages and the help
    description: str  # one line
    layouts: tuple[Layout, ...] = ()  # in which its published code reads images


def digest(prompts: Sequence[Prompt]) -> str:
    """SHA-256, in hexadecimal, of prompts in their order."""
    return files.digest([prompt.to_json() for prompt in prompts])


def text_lines(path: str | os.PathLike[str]) -> Iterator[tuple[int, str]]:
    """The lines of a text file with their numbers from 1 on, without their ends. Empty ones are left out."""
    try:
        files.check_regular(path)
        with open(path, "rb") as file:
            for number, line in enumerate(iter(lambda: file.readline(LARGEST_LINE + 1), b""), 1):
                if len(line) > LARGEST_LINE:
                    raise InputError(
                        f"line {number} of {path} has more than {LARGEST_LINE:,} bytes, which is not a prompt: write"
                        " one prompt a line"
                    )
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                except UnicodeDecodeError:
                    raise InputError(f"line {number} of {path} is not UTF-8: save the file in UTF-8") from None
                if "\0" in text:
                    raise InputError(f"line {number} of {path} has a NUL byte in it, which no text has: take it away")
                if text.strip():
                    yield number, text
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): name a file of prompts") from None


def table_rows(
    path: str | os.PathLike[str], columns: Iterable[Sequence[str]], *, delimiter: str
) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a table: (number of the line that a row begins in, column in small letters -> cell).

    A column may have any of its names, in large or small letters. Empty rows are left out.
    """
    lines = list(text_lines(path))
    # Blank lines are put back, so that the reader counts as an editor does.
    rows = [""] * (lines[-1][0] if lines else 0)
    for number, text in lines:
        rows[number - 1] = text
    reader = csv.reader(
        io.StringIO("\n".join(rows), newline=""),
        delimiter=delimiter,
        strict=True,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
    )
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InputError(f"line {line} of {path} is not a row of a table ({error}): mend the line") from None
        if cells is None:
            break
        if not any(cell.strip() for cell in cells):
            continue
        if header is None:
            header = _header(cells, columns, path)
        elif len(cells) != len(header):
            raise InputError(f"line {line} of {path} has {len(cells)} cells, but its header {len(header)}: mend it")
        else:
            yield line, dict(zip(header, map(csv_cells.unescape_formula, cells), strict=True))
    if header is None:
        raise InputError(f"{path} is empty: a table of prompts begins with the names of its columns, such as prompt")


def make_prompt(where: str, text: str, *, id: str, category: str = "", content: Any = None, shown: str = "") -> Prompt:
    """A prompt of checked parts, without blanks at the ends. Line breaks and tabs inside become blanks."""
    text, id, category, shown = (_BLANKS.sub(" ", part).strip() for part in (text, id, category, shown))
    for name, part, longest in (
        ("prompt", text, LONGEST_CAPTION),
        ("shown", shown or text, LONGEST_CAPTION),
        ("id", id, _LONGEST_NAME),
        ("category", category, _LONGEST_NAME),
    ):
        if not part and name != "category":
            raise InputError(f"{where} has an empty {name}: fill it in, or take the line away")
        if match := _CONTROL.search(part):
            raise InputError(f"{where} has the control character {match[0]!r} in its {name}: take it away")
        if len(part) > longest:
            raise InputError(f"{where} has a {name} of {len(part):,} characters, but {longest:,} are the most")
    check_texts([text, shown])
    return Prompt(id, text, category, content, shown if shown not in ("", text) else None)


def _header(cells: Sequence[str], columns: Iterable[Sequence[str]], path: str | os.PathLike[str]) -> list[str]:
    header = [cell.strip().casefold() for cell in cells]
    for names in columns:
        matching = [name for name in header if name in names]
        if len(matching) != 1:
            problem = f"has no column {names[0]!r}" if not matching else f"has the column {names[0]!r} twice"
            raise InputError(f"{path} {problem}: its header is {options.quote(','.join(cells))}. Name each column once")
        header[header.index(matching[0])] = names[0]
    return header


def read_json_prompts(path: str | os.PathLike[str], advice: str) -> list[Prompt]:
    """The prompts of a file with one as JSON a line, as runs have them."""
    prompts = []
    for number, value in json_files.read_lines(path, advice):
        try:
            prompts.append(Prompt.from_json(value))
        except InputError as error:
            raise InputError(f"line {number} of {path}: {error}: {advice}") from None
    return prompts


def existing_file(name: str, file: str) -> pathlib.Path:
    """The file of a named set. Refuses one that does not exist."""
    if not file:
        raise InputError(f"the prompts {name!r} are read from their published file: write {name}:FILE")
    path = pathlib.Path(files.user_path(file))
    # os.path, unlike pathlib, takes a name that is too long for a path as one that is not there.
    if not os.path.isfile(path):
        raise InputError(
            f"the file {options.quote(str(path))} does not exist for the prompts {name!r}: name the published one"
        )
    return path


def existing_folder(name: str, source: str) -> pathlib.Path:
    """The folder of a named set, the current one by default. Refuses one that does not exist."""
    path = pathlib.Path(files.user_path(source or "."))
    if not os.path.isdir(path):
        raise InputError(
            f"the folder {options.quote(str(path))} does not exist for the prompts {name!r}: name the published one"
        )
    return path.resolve()
