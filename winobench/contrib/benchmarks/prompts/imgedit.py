"""ImgEdit's 737 single edits of nine types (Ye et al. 2025, arXiv:2505.20275).

Benchmark/singleturn of the data set sysuyy/ImgEdit on the hub has singleturn.json and the images. The file equals
Benchmark/Basic/basic_edit.json of PKU-YuanGroup/ImgEdit 547185d. The repository states no licence. People judge its
edits of several turns, and its question about hard edits states no form of an answer: neither is read here.
"""

from __future__ import annotations

import functools
import pathlib
from typing import Any

from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts.edits import INSTRUCTION, make_edit
from winobench.prompts.prompt_files import SOURCE_IMAGE, Prompt

TYPES = ("add", "adjust", "extract", "replace", "remove", "background", "style", "compose", "action")
"""Kinds of edits."""

_FILES = ("singleturn.json", "basic_edit.json")
_ADVICE = f"name ImgEdit's folder Benchmark/singleturn, with {_FILES[0]} and its images"


def read(folder: pathlib.Path) -> list[Prompt]:
    """The prompts, with the kind of edit as category."""
    path = next((folder / name for name in _FILES if (folder / name).is_file()), None)
    if path is None:
        raise InputError(f"{folder} has no file {' or '.join(_FILES)}: {_ADVICE}")
    edits = json_files.read_object(path, _ADVICE)
    return [_prompt(folder, f"the edit {options.quote(key)} of {path}", key, edit) for key, edit in edits.items()]


def is_edit(prompt: Prompt) -> bool:
    """Whether a prompt is ImgEdit's."""
    content = prompt.content if isinstance(prompt.content, dict) else {}
    is_whole = content.get("imgedit") in TYPES and isinstance(content.get(INSTRUCTION), str)
    return is_whole and prompt.source_sha256 is not None


def _prompt(folder: pathlib.Path, where: str, key: str, edit: Any) -> Prompt:
    fields = edit if isinstance(edit, dict) else {}
    for name in ("id", "prompt", "edit_type"):
        if not isinstance(fields.get(name), str) or not fields[name].strip():
            raise InputError(f"{where} has no {name}: {_ADVICE}")
    kind, image = fields["edit_type"], pathlib.PurePosixPath(fields["id"])
    if kind not in TYPES:
        raise InputError(f"{where} has the edit_type {options.quote(kind)}, not {', '.join(TYPES)}: {_ADVICE}")
    if image.is_absolute() or ".." in image.parts:
        raise InputError(f"{where} names the image {options.quote(str(image))} outside of {folder}: {_ADVICE}")
    content = {"imgedit": kind, INSTRUCTION: fields["prompt"], SOURCE_IMAGE: str(image)}
    return make_edit(where, key, kind, content, functools.partial(files.content, folder / image))
