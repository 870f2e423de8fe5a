"""Tables of images: each row has a path, and a prompt or an id. CSV, TSV, JSON Lines, Parquet, or GenEval 2's JSON."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from winobench.base import files, json_files, options, parquet_files
from winobench.base.errors import InputError
from winobench.generation.image_layouts import FIELDS, FoundImage, check_inside
from winobench.prompts.prompt_files import Prompt, make_prompt, table_rows

TABLES = (".csv", ".tsv", ".jsonl", ".parquet", ".json")
"""Ends of the names of tables. The last is one object, prompt -> path, as GenEval 2's code reads it."""

_PATH = "path"
_PATHS = (_PATH, "file", "file_name", "filename", "image", "image_path")
_ADVICE = f"give each row a {_PATH}, and a prompt or an id"


def read(path: pathlib.Path, folder: pathlib.Path) -> list[FoundImage]:
    """The images of a table, whose paths are relative to a folder, and within it.

    Raises:
      InputError: the table or a row is not as described, or a file does not exist.
    """
    root, images = os.path.realpath(folder), []
    wheres: dict[str, str] = {}
    for where, row in _rows(path):
        if not (file := _text(row, _PATH, where)):
            raise InputError(f"{where} has no {_PATH}: {_ADVICE}", code="missing-field")
        place = folder / files.user_path(file)
        check_inside(place, root, file)
        if not os.path.isfile(place):
            raise InputError(
                f"{where} names {options.quote(file)}, which {folder} lacks: correct it", code="no-such-file"
            )
        if (other := wheres.setdefault(os.path.realpath(place), where)) != where:
            raise InputError(f"{where} names the file of {other}: each image is in one row", code="repeated-id")
        fields: dict[str, Any] = {name: _text(row, name, where) or None for name in FIELDS}
        fields |= {name: _number(fields[name], name, where) for name in ("number", "seed")}
        if all(fields[name] is None for name in ("id", "number", "prompt")):
            raise InputError(f"{where} names no prompt: {_ADVICE}", code="missing-field")
        images.append(
            FoundImage(place, os.path.relpath(os.path.abspath(place), os.path.abspath(folder)), where, **fields)
        )
    if not images:
        raise InputError(f"{path} has no row: {_ADVICE}", code="no-examples")
    return images


def own_prompts(images: Sequence[FoundImage], source: str | os.PathLike[str]) -> list[Prompt]:
    """The prompts of images that state them, by their ids where these are given, and by their texts elsewhere."""
    prompts: dict[str, Prompt] = {}
    for image in images:
        if image.prompt is None:
            raise InputError(
                f"{image.where} has no prompt: give each row one, or name the benchmark's with --prompts",
                code="missing-field",
            )
        key = image.prompt if image.id is None else image.id
        number = str(len(prompts)) if key not in prompts else prompts[key].id
        made = make_prompt(image.where, image.prompt, id=image.id or number, category=image.category or "")
        if prompts.setdefault(key, made) != made:
            raise InputError(
                f"{image.where} gives {options.quote(key)} another prompt or category than an earlier row of {source}:"
                " correct one of them",
                code="contradicting-rows",
            )
    return [*prompts.values()]


def _rows(path: pathlib.Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(in words where it is, column in small letters -> value) of each row."""
    ending = path.suffix.lower()
    if ending not in TABLES:
        raise InputError(f"{path} is not a table: name a file that ends with {', '.join(TABLES)}", code="bad-file-name")
    if ending in (".csv", ".tsv"):
        for number, cells in table_rows(path, [_PATHS], delimiter="," if ending == ".csv" else "\t"):
            yield f"line {number} of {path}", cells
        return
    rows: list[tuple[str, Any]]
    if ending == ".jsonl":
        rows = [(f"line {number} of {path}", row) for number, row in json_files.read_lines(path, _ADVICE)]
    elif ending == ".json":
        texts = json_files.read_object(path, "name an object of prompts and their files")
        rows = [(f"{options.quote(text)} in {path}", {_PATH: file, "prompt": text}) for text, file in texts.items()]
    else:
        rows = [(f"row {number} of {path}", row) for number, row in enumerate(_parquet(path), 1)]
    for where, row in rows:
        if not isinstance(row, dict):
            raise InputError(f"{where} is not an object: {_ADVICE}", code="not-an-object")
        cells = {str(name).casefold(): value for name, value in row.items()}
        paths = [name for name in _PATHS if cells.get(name) is not None]
        yield where, {**cells, _PATH: cells[paths[0]] if len(paths) == 1 else None}


def _parquet(path: pathlib.Path) -> list[dict[str, Any]]:
    try:
        names = parquet_files.metadata(path).schema.to_arrow_schema().names
        return parquet_files.read(path, [n for n in names if n.casefold() in (*FIELDS, *_PATHS)]).to_pylist()
    except (OSError, pa.ArrowException, parquet_files.DamagedError) as error:
        raise InputError(
            f"{path} cannot be read ({' '.join(str(error).split())}): restore it", code="cannot-read"
        ) from None


def _text(row: Mapping[str, Any], name: str, where: str) -> str:
    """A cell as a text, empty where it is missing."""
    value = row.get(name)
    if not isinstance(value, str | int | None) or isinstance(value, bool):
        raise InputError(
            f"{where} has the {name} {options.quote(value)}, not a text or a whole number: {_ADVICE}", code="wrong-type"
        )
    return "" if value is None else str(value).strip()


def _number(text: str | None, name: str, where: str) -> int | None:
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", text):
        raise InputError(f"{where} has the {name} {options.quote(text)}, not a whole number", code="wrong-type")
    return int(text)
