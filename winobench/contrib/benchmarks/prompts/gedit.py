"""GEdit-Bench's edits of images in 11 types, with English and Chinese instructions (Liu et al. 2025, arXiv:2504.17761).

The data set stepfun-ai/GEdit-Bench on the hub (MIT licence) has a row for each instruction, in Arrow files. Of its two
sizes of an image, ``input_image`` is the one that the published judge sees.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

import pyarrow as pa

from winobench.base import files, options, parquet_files
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts.edits import INSTRUCTION, make_edit
from winobench.prompts.prompt_files import SOURCE_IMAGE, Prompt

TYPES = (
    *("background_change", "color_alter", "material_alter", "motion_change", "ps_human", "style_change"),
    *("subject-add", "subject-remove", "subject-replace", "text_change", "tone_transfer"),
)
"""Kinds of edits, in the order of calculate_statistics.py."""

LANGUAGES = ("en", "cn")
SOURCE_END = "_SRCIMG"
"""End of the names of the images to edit, which the published scripts write next to the results."""

_IMAGE = "input_image"
_TEXTS = ("key", "task_type", "instruction", "instruction_language")
_INTERSECTION = "Intersection_exist"
_FILES = tuple(f"{folder}*.{end}" for end in ("arrow", "parquet") for folder in ("", "data/", "train/"))
_ADVICE = "name the folder of stepfun-ai/GEdit-Bench with its Arrow or Parquet files"


def read(folder: pathlib.Path, language: str | None = None) -> list[Prompt]:
    """The prompts of one language or of both, with the kind of edit as category."""
    paths = sorted(path for pattern in _FILES for path in folder.glob(pattern))
    if not paths:
        raise InputError(f"{folder} has no Arrow or Parquet file: {_ADVICE}")
    prompts: dict[str, Prompt] = {}
    for path in paths:
        for number, row in enumerate(_rows(path)):
            where = f"row {number + 1} of {path}"
            _check(row, where)
            if language not in (None, row["instruction_language"]):
                continue
            prompt = _prompt(row, where, functools.partial(_image, path, number))
            if prompt.id in prompts:
                raise InputError(f"{where} repeats the key {row['key']} of its type and language: {_ADVICE}")
            prompts[prompt.id] = prompt
    return list(prompts.values())


def is_edit(prompt: Prompt) -> bool:
    """Whether a prompt is GEdit-Bench's."""
    content = prompt.content if isinstance(prompt.content, dict) else {}
    known = (content.get("gedit") in TYPES, content.get("language") in LANGUAGES)
    whole = isinstance(content.get("intersection"), bool) and isinstance(content.get(INSTRUCTION), str)
    return all(known) and whole and prompt.source_sha256 is not None


def _rows(path: pathlib.Path) -> list[dict[str, Any]]:
    return _table(path, [*_TEXTS, _INTERSECTION]).to_pylist()


def _table(path: pathlib.Path, columns: list[str]) -> pa.Table:
    files.refuse_pointer(path)
    try:
        return parquet_files.read(path, columns) if path.suffix == ".parquet" else _arrow(path, columns)
    except KeyError as error:
        raise InputError(f"{path} has no column {error.args[0]}: {_ADVICE}") from None
    except (OSError, pa.ArrowException, parquet_files.DamagedError) as error:
        raise InputError(f"{path} cannot be read as a table ({error}): get it again") from None


def _arrow(path: pathlib.Path, columns: list[str]) -> pa.Table:
    """A table as datasets.save_to_disk writes it: a stream of batches. Its bytes stay in the file."""
    files.check_regular(path)
    table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
    if missing := [name for name in columns if name not in table.column_names]:
        raise KeyError(missing[0])
    table = table.select(columns)
    table.validate(full=True)
    return table


@functools.lru_cache(maxsize=1)  # rows follow each other
def _images(path: pathlib.Path, changed: int) -> pa.ChunkedArray:
    return _table(path, [_IMAGE])[_IMAGE]


def _image(path: pathlib.Path, number: int) -> bytes:
    """The file of a row's image. Raises ValueError without one."""
    image = _images(path, path.stat().st_mtime_ns)[number].as_py()
    if not isinstance(image, dict) or not isinstance(image.get("bytes"), bytes):
        raise ValueError
    return image["bytes"]


def _check(row: dict[str, Any], where: str) -> None:
    for name in _TEXTS:
        if not isinstance(row[name], str) or not row[name].strip():
            raise InputError(f"{where} has no {name}: {_ADVICE}")
    for name, known in (("task_type", TYPES), ("instruction_language", LANGUAGES)):
        if row[name] not in known:
            raise InputError(f"{where} has the {name} {options.quote(row[name])}, not {', '.join(known)}: {_ADVICE}")
    if not isinstance(row[_INTERSECTION], bool):
        raise InputError(f"{where} has no {_INTERSECTION}: {_ADVICE}")


def _prompt(row: dict[str, Any], where: str, source: functools.partial[bytes]) -> Prompt:
    kind, language, key = row["task_type"], row["instruction_language"], row["key"]
    fields = {"gedit": kind, "language": language, "intersection": row[_INTERSECTION], INSTRUCTION: row["instruction"]}
    fields[SOURCE_IMAGE] = f"fullset/{kind}/{language}/{key}{SOURCE_END}.png"
    return make_edit(where, f"{kind}-{language}-{key}", kind, fields, source)
