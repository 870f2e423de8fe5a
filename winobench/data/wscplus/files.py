"""Files in the layout of WSC+, read and written."""

from __future__ import annotations

import ast
import csv
import dataclasses
import difflib
import hashlib
import io
import itertools
import os
import pathlib
import re
from collections.abc import Iterable, Mapping

from winobench.base import csv_cells, files
from winobench.base.errors import InputError
from winobench.base.files import write_text
from winobench.data.prepared import data_folder
from winobench.data.wscplus.items import TYPES, UNTYPED, Item, validation_ids
from winobench.data.wscplus.text import normalize, repair

COLUMNS = ("statement", "pronoun", "snippet", "options", "answer", "reason", "model", "type")
"""The columns of the layout. A file may have others as well, as the files of recorded answers do."""

FILE_NAME = "WSC+.csv"
RESULT_FILES = ("GPT4_results.csv", "GPT3_results.csv")  # the published files of recorded answers
_TEXT_COLUMNS = ("statement", "pronoun", "snippet", "options", "reason")
_GENERATOR_NAMES = {"gpt4": "GPT4", "gpt35turbo": "GPT3", "gpt35": "GPT3", "claude2": "Claude2", "human": "Human"}
_MODEL_COLUMN = {"GPT3": "GPT3.5 Turbo"}
_RECORDED_COLUMN = "predicted_answer"
# Of two neighbours, the share of words (as difflib counts it) from which on they are a pair. The least of the published
# pairs is 0.35.
_PAIR_SIMILARITY = 0.3


def data_file(data_dir: str | os.PathLike | None = None) -> pathlib.Path:
    """The user's file ``wscplus/WSC+.csv`` in the folder of all data."""
    return data_folder(data_dir) / "wscplus" / FILE_NAME


def result_file(data_dir: str | os.PathLike | None = None) -> pathlib.Path | None:
    """The first of ``RESULT_FILES`` that lies next to the data; None if missing."""
    paths = [data_file(data_dir).with_name(name) for name in RESULT_FILES]
    return next((path for path in paths if path.is_file()), None)


def read(path: str | os.PathLike) -> tuple[Item, ...]:
    """All rows of a CSV file in the layout of WSC+, in its order.

    UTF-8 with or without a byte order mark, or UTF-16 with one. Other bytes are read as Windows-1252. A
    file of recorded answers (one with the column ``predicted_answer``) has shuffled rows, so no pairs, and all of them
    are validation items. A wrong ``type`` in it is ``UNTYPED``, and `winobench.data.wscplus.validation` looks the type
    up.
    """
    path = pathlib.Path(path)
    header, rows = _rows(path)
    items = []
    repeated: dict[str, int] = {}
    recorded = _RECORDED_COLUMN in header
    known = frozenset(validation_ids())
    for number, row in enumerate(rows, start=1):
        item = _item(row, number, path, recorded)
        repeated[item.id] = repeated.get(item.id, 0) + 1
        if repeated[item.id] > 1:
            item = dataclasses.replace(item, id=f"{item.id}-{repeated[item.id]}")
        of_others = "few_shot" if item.generator == "Human" else "test"
        split = "validation" if recorded or item.id in known else of_others
        items.append(dataclasses.replace(item, split=split))
    return tuple(items if recorded else _with_pairs(items))


def read_rows(path: str | os.PathLike) -> list[dict[str, str]]:
    """The rows of such a file as they are there, with all columns and unrepaired. Raises as `read`."""
    return _rows(pathlib.Path(path))[1]


def write(path: str | os.PathLike, items: Iterable[Item]) -> None:
    """Writes items as a CSV file of the same layout (UTF-8), which `read` gives back."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(COLUMNS)
    for item in items:
        model = _MODEL_COLUMN.get(item.generator, item.generator)
        texts = (item.statement, item.pronoun, item.snippet, item.options_text)
        row = (*texts, item.answer, item.reason, model, item.type.capitalize())
        writer.writerow(map(csv_cells.escape_formula, row))
    write_text(path, buffer.getvalue())


def parse_options(text: str) -> tuple[str, str] | None:
    """The two candidates in a list as Python writes it, or as hands do: marks may be missing, or inside the text."""
    text = text.strip()
    try:
        values = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        if not (text.startswith("[") and text.endswith("]")):
            return None
        inner = text[1:-1]
        # Where one of the marks is missing there is still a comma, and where both are there it stands between them.
        values = re.split(r"""(?<=['"])\s*,\s*(?=['"])""", inner)
        if len(values) != 2:
            values = inner.split(",")
        # A single apostrophe at the end goes too, as nothing in the data ends in a possessive plural.
        values = [re.sub(r"""^['"]|['"]\Z""", "", value.strip()) for value in values]
    if not isinstance(values, list | tuple) or len(values) != 2:
        return None
    if not all(isinstance(value, str) and value.strip() for value in values):
        return None
    first, second = (value.strip() for value in values)
    return (first, second) if first.lower() != second.lower() else None


def _with_pairs(items: list[Item]) -> list[Item]:
    """Neighbours of type traditional and the same generator are pairs where they share enough words."""
    for index, (first, second) in enumerate(itertools.pairwise(list(items))):
        if items[index].pair is None and _is_pair(first, second):
            items[index : index + 2] = (dataclasses.replace(item, pair=first.id) for item in (first, second))
    return items


def _is_pair(first: Item, second: Item) -> bool:
    if not (first.type == second.type == "traditional" and first.generator == second.generator):
        return False
    words = first.statement.split(), second.statement.split()
    return difflib.SequenceMatcher(None, *words, autojunk=False).ratio() >= _PAIR_SIMILARITY


def _rows(path: pathlib.Path) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    reader = csv.reader(io.StringIO(_text(path), newline=""), strict=True)
    try:
        table = [row for row in reader if row]
    except csv.Error as error:
        raise InputError(
            f"line {reader.line_num} of {path} is not a row of a CSV table ({error}): save the table once more as CSV",
            code="damaged-table",
        ) from None
    header = tuple(name.strip() for name in table[0]) if table else ()
    lacking = [name for name in COLUMNS if name not in header]
    if lacking:
        raise InputError(
            f"{path} lacks the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}: a file of WSC+ has the columns"
            f" {', '.join(COLUMNS)}",
            code="missing-column",
        )
    for number, row in enumerate(table[1:], start=1):
        if len(row) != len(header):
            raise InputError(
                f"row {number} of {path} has {len(row)} cells, not {len(header)} as the header: restore the row",
                code="wrong-number-of-cells",
            )
    return header, [dict(zip(header, map(csv_cells.unescape_formula, row), strict=True)) for row in table[1:]]


def _text(path: pathlib.Path) -> str:
    try:
        content = files.content(path)
    except FileNotFoundError:
        raise InputError(f"the file {path} does not exist: name a CSV file of WSC+", code="no-such-file") from None
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{path} cannot be read ({reason}): name a CSV file of WSC+", code="cannot-read") from None
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return content.decode("utf-16")
        except UnicodeDecodeError:
            raise InputError(
                f"{path} is broken off in the middle of a character: get the file once more", code="incomplete-file"
            ) from None
    text = content.decode("utf-8-sig", "surrogateescape")
    # A byte that is not UTF-8 becomes the character of its number, which `repair` reads as Windows-1252.
    return re.sub("[\udc80-\udcff]", lambda match: chr(ord(match[0]) - 0xDC00), text)


def _item(row: Mapping[str, str], number: int, path: pathlib.Path, recorded: bool) -> Item:
    texts = {name: repair(row[name]) for name in _TEXT_COLUMNS}
    original = {name: row[name] for name in _TEXT_COLUMNS if row[name] != texts[name]}

    def wrong(column: str, problem: str) -> InputError:
        return InputError(f"{column!r} in row {number} of {path} {problem}", code="bad-cell")

    for name in ("statement", "pronoun", "snippet"):
        if not texts[name].strip():
            raise wrong(name, "is empty: fill it in or remove the row")
    options = parse_options(texts["options"])
    if options is None:
        raise wrong("options", f"is {row['options']!r}, not a list of two different texts like ['Paul', 'George']")
    if row["answer"].strip() not in ("0", "1", "2"):
        raise wrong("answer", f"is {row['answer']!r}: it is 0 or 1 for one of the options, or 2 for neither")
    type_ = row["type"].strip().lower()
    if type_ not in TYPES:
        if not recorded:
            raise wrong("type", f"is {row['type']!r}: the types are {', '.join(TYPES)}")
        type_, original["type"] = UNTYPED, row["type"]
    model = row["model"].strip()
    if not model:
        raise wrong("model", "is empty: name who wrote the sentence")
    content = [normalize(text) for text in texts.values()] + [row["answer"].strip()]
    return Item(
        id=hashlib.sha256("\n".join(content).encode()).hexdigest()[:12],
        statement=texts["statement"],
        pronoun=texts["pronoun"],
        snippet=texts["snippet"],
        options=options,
        answer=int(row["answer"]),
        reason=texts["reason"],
        generator=_GENERATOR_NAMES.get(re.sub("[^a-z0-9]", "", model.lower()), model),
        type=type_,
        options_text=texts["options"],
        row=number,
        original=original,
    )
