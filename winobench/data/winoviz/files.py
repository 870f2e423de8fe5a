"""Files of WinoViz items.

**JSONL.** One object a line. Required: ``id`` (unique in the file), ``object``, ``version``, ``premises`` and
``hypotheses`` (two texts each). Optional: ``properties``, ``attributes`` and ``prototypes`` (two texts each, in the
order of the premises, prototypes are the objects that a multi-hop item names), ``attribute_kind`` (one of
``ATTRIBUTE_KINDS``, otherwise ``other``), ``source`` (id of the single-hop item that this one was made of, required
for ``pragmatic`` and ``visual``, so that all three have the same subset). Other keys are errors.

**CSV.** The same with a header and the columns ``id``, ``object``, ``version``, ``premise_1``, ``premise_2``,
``hypothesis_1``, ``hypothesis_2``, and, where wanted, ``property_1``, ``property_2``, ``attribute_1``, ``attribute_2``,
``prototype_1``, ``prototype_2``, ``attribute_kind``, ``source``. An empty cell is a missing value.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from winobench.base import csv_cells, files, json_files
from winobench.base.errors import InputError
from winobench.data.winoviz.items import ATTRIBUTE_KINDS, PAIRS, VERSIONS, Item

FILE_NAMES = ("items.jsonl", "items.csv")
"""Names of the file of a user's set, in the folder ``winoviz`` of the data folder."""

_SINGULARS = {"premises": "premise", "hypotheses": "hypothesis", "properties": "property"}
_SINGULARS |= {"attributes": "attribute", "prototypes": "prototype"}
_REQUIRED = ("id", "object", "version", "premises", "hypotheses")
_PAIR_COLUMNS = (f"{_SINGULARS[field]}_{number}" for field in PAIRS for number in (1, 2))
_COLUMNS = ("id", "object", "version", *_PAIR_COLUMNS, "attribute_kind", "source")


def read_items(path: str | os.PathLike) -> list[Item]:
    """The items of a ``.jsonl`` or ``.csv`` file, in its order.

    The layout is checked strictly. The annotation rules are not, see `check_items`.
    """
    path = pathlib.Path(path)
    rows = {".jsonl": _json_rows, ".csv": _csv_rows}.get(path.suffix.lower())
    if rows is None:
        raise _unknown_format(path)
    items: list[Item] = []
    lines: dict[str, int] = {}
    for line, values in rows(path):
        where = f"line {line} of {path}"
        item = item_from_json(values, where)
        if item.id in lines:
            raise InputError(
                f"'id' in {where} is {item.id!r}, as in line {lines[item.id]}: give each item its own id",
                code="repeated-id",
            )
        lines[item.id] = line
        items.append(item)
    if not items:
        raise InputError(f"{path} has no items: add one a line", code="empty-file")
    _check_sources(items, lines, path)
    return items


def write_items(path: str | os.PathLike, items: Iterable[Item]) -> None:
    """Writes items as ``.jsonl`` or ``.csv``, by the file's name."""
    path = pathlib.Path(path)
    if path.suffix.lower() == ".jsonl":
        text = "".join(f"{json_line(item)}\n" for item in items)
    elif path.suffix.lower() == ".csv":
        rows = []
        for item in items:
            row: dict[str, str] = {}
            for key, value in item.to_json().items():
                row |= {f"{_SINGULARS[key]}_{n}": text for n, text in enumerate(value, 1)} if key in PAIRS else {}
                row |= {} if key in PAIRS else {key: value}
            rows.append(row)
        text = csv_cells.write_rows(_COLUMNS, rows, line_end="\n")
    else:
        raise _unknown_format(path)
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}): name another file", code="cannot-write") from None


def json_line(item: Item) -> str:
    """An item as a line of a JSONL file, without its end."""
    return json.dumps(item.to_json(), ensure_ascii=False)


def _unknown_format(path: pathlib.Path) -> InputError:
    return InputError(f"{path} is neither a .jsonl nor a .csv file: name one of these", code="unsupported-file-format")


def _json_rows(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json_files.parse(line)
        except json_files.NotJSON as error:
            raise InputError(f"line {number} of {path} is not JSON ({error}): mend the line", code=error.code) from None
        if not isinstance(values, dict):
            raise InputError(f"line {number} of {path} is not an object: write one item a line", code="not-an-object")
        yield number, values


def _csv_rows(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(read_text(path), newline=""), strict=True)
    columns = reader.fieldnames or []
    needed = [column for column in _COLUMNS if column.rsplit("_", 1)[0] in ("premise", "hypothesis")]
    for column in ("id", "object", "version", *needed):
        if column not in columns:
            raise InputError(f"{path} has no column {column!r}: add it", code="missing-column")
    for column in columns:
        if column not in _COLUMNS or columns.count(column) > 1:
            raise InputError(
                f"{path} has a column {column!r} too many: the columns are {', '.join(_COLUMNS)}",
                code="unknown-column",
            )
    while True:
        # A quoted cell may go over several lines. The item is where it begins.
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(
                f"line {line} of {path} is not a row of a table ({error}): mend the line", code="damaged-table"
            ) from None
        if row is None:
            return
        if None in row or None in row.values():
            raise InputError(
                f"line {line} of {path} has not {len(columns)} cells, as the header has: mend the line",
                code="wrong-number-of-cells",
            )
        row = {column: csv_cells.unescape_formula(cell) for column, cell in row.items()}
        values: dict[str, Any] = {}
        for field in PAIRS:
            cells = [row.get(f"{_SINGULARS[field]}_{number}", "") for number in (1, 2)]
            if any(cells):
                values[field] = cells
        values |= {key: row[key] for key in ("id", "object", "version", "attribute_kind", "source") if row.get(key)}
        yield line, values


def item_from_json(values: dict[str, Any], where: str) -> Item:
    """The item of an object as a JSONL file holds it; ``where`` names the place in errors."""
    known = [field.name for field in dataclasses.fields(Item)]
    for field in values:
        if field not in known:
            raise InputError(
                f"{where} has the unknown field {field!r}: the fields are {', '.join(known)}", code="unknown-field"
            )
    for field in _REQUIRED:
        if field not in values:
            raise InputError(f"{where} has no {field!r}: add it", code="missing-field")
    for field, value in values.items():
        if field in PAIRS:
            if not isinstance(value, list) or len(value) != 2 or not all(_is_text(text) for text in value):
                raise InputError(
                    f"{field!r} in {where} is not a pair of texts: give two, in the order of the premises",
                    code="not-a-pair",
                )
            if value[0].strip() == value[1].strip():
                raise InputError(
                    f"{field!r} in {where} has the same text twice: a pair has two different ones", code="repeated-text"
                )
        elif not _is_text(value):
            raise InputError(f"{field!r} in {where} is not a text: mend it", code="not-a-text")
    version = values["version"]
    for field, value, words in (
        ("version", version, VERSIONS),
        ("attribute_kind", values.get("attribute_kind", "other"), ATTRIBUTE_KINDS),
    ):
        if value not in words:
            raise InputError(f"{field!r} in {where} is {value!r}: it is one of {', '.join(words)}", code="unknown-name")
    if version in ("pragmatic", "visual") and "source" not in values:
        raise InputError(
            f"{where} has no 'source': a {version} item names the single-hop item that it was made of",
            code="missing-field",
        )
    if version == "single" and "source" in values:
        raise InputError(
            f"'source' in {where} is given for a single-hop item: take it away or correct the version",
            code="field-not-allowed",
        )
    texts = {field: tuple(text.strip() for text in values[field]) for field in PAIRS if field in values}
    return Item(**{**values, **texts})


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_sources(items: Sequence[Item], lines: Mapping[str, int], path: pathlib.Path) -> None:
    singles = {item.id for item in items if item.version == "single"}
    made: dict[tuple[str, str], str] = {}
    for item in (item for item in items if item.source is not None):
        where = f"'source' in line {lines[item.id]} of {path} is {item.source!r}"
        if item.source not in singles:
            raise InputError(f"{where}, which is not a single-hop item of the file: correct it", code="unknown-source")
        other = made.setdefault((item.source, item.version), item.id)
        if other != item.id and item.version != "multi":
            raise InputError(f"{where}, as in the {item.version} item {other!r}: keep one", code="repeated-source")


def read_text(path: pathlib.Path) -> str:
    """The text of a file in UTF-8."""
    try:
        # As Python reads texts: an end of a line is one character, for any kind in the file.
        return io.TextIOWrapper(io.BytesIO(files.content(path)), encoding="utf-8-sig").read()
    except FileNotFoundError:
        raise InputError(f"the file {path} does not exist: name an existing one", code="no-such-file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): it must be a UTF-8 text", code="cannot-read") from None
