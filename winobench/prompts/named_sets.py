"""Sets of prompts that are known by a name, each read from the file in which it is published.

Published files are taken as they are: a text that stands in one twice is drawn twice, with another noise.
"""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Mapping

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.prompts import grammar
from winobench.prompts.prompt_files import NamedSet, Prompt, make_prompt, table_rows, text_lines

DRAWBENCH_CATEGORIES = ("Colors", "Conflicting", "Counting", "DALL-E", "Gary Marcus et al.", "Positional")
"""The six of DrawBench's eleven categories that DiffusionITM compares models on (Krojer et al. 2023, App. B, Table 4).
They have 104 of its 200 prompts."""

_SPELLINGS = {"colours": "Colors"}
_COMPBENCH_SUFFIX = "_val"


def geneval(file: str) -> list[Prompt]:
    """GenEval's 553 prompts (Ghosh et al. 2023), from its ``evaluation_metadata.jsonl``.

    The category is the row's ``tag``, and the content the whole row but for its prompt: ``include`` and ``exclude`` say
    of which classes how many objects must and must not be there, in which colours and places.
    """
    path = _file("geneval", file)
    prompts = []
    for number, row in json_files.read_lines(path, "name GenEval's evaluation_metadata.jsonl"):
        where = f"line {number} of {path}"
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("tag", "prompt")):
            raise InputError(f"{where} has no tag and prompt: name GenEval's evaluation_metadata.jsonl")
        content = {name: value for name, value in row.items() if name != "prompt"}
        prompts.append(
            make_prompt(where, row["prompt"], id=f"{len(prompts):05d}", category=row["tag"], content=content)
        )
    return prompts


def partiprompts(file: str) -> list[Prompt]:
    """PartiPrompts' 1,632 prompts (Yu et al. 2022), from ``PartiPrompts.tsv``; challenge and note are the content."""
    path = _file("partiprompts", file)
    prompts = []
    for number, row in table_rows(path, [("prompt",), ("category",), ("challenge",)], delimiter="\t"):
        content = {"challenge": row["challenge"].strip(), "note": row.get("note", "").strip()}
        prompts.append(
            make_prompt(
                f"line {number} of {path}",
                # Some cells are quoted, as a table's with commas would be.
                re.sub(r'^"(.*)"$', r"\1", row["prompt"].strip()).replace('""', '"'),
                id=f"{len(prompts):05d}",
                category=row["category"],
                content=content,
            )
        )
    return prompts


def drawbench(file: str) -> list[Prompt]:
    """DrawBench's prompts (Saharia et al. 2022) of the six categories of `DRAWBENCH_CATEGORIES`, from its CSV file.

    All 200 are read by the file's name alone, without ``drawbench:``.
    """
    path = _file("drawbench", file)
    wanted = {category.casefold(): category for category in DRAWBENCH_CATEGORIES}
    wanted |= _SPELLINGS
    prompts = []
    for number, row in table_rows(path, [("prompt", "prompts"), ("category",)], delimiter=","):
        category = wanted.get(row["category"].strip().casefold())
        if category is not None:
            prompts.append(make_prompt(f"line {number} of {path}", row["prompt"], id=str(number), category=category))
    if not prompts:
        raise InputError(f"{path} has no prompt of the categories {', '.join(DRAWBENCH_CATEGORIES)}: name DrawBench's")
    return prompts


def t2i_compbench(place: str) -> list[Prompt]:
    """T2I-CompBench's validation prompts (Huang et al. 2023), from a ``<category>_val.txt`` or all of a folder."""
    path = pathlib.Path(user_path(place or "."))
    found = sorted(path.glob(f"*{_COMPBENCH_SUFFIX}.txt")) if path.is_dir() else [_file("t2i_compbench", place)]
    if not found:
        raise InputError(f"{path} has no file {'<category>' + _COMPBENCH_SUFFIX}.txt: name T2I-CompBench's folder")
    prompts = []
    for file in found:
        category = file.stem.removesuffix(_COMPBENCH_SUFFIX)
        for number, line in text_lines(file):
            prompts.append(make_prompt(f"line {number} of {file}", line, id=f"{category}-{number}", category=category))
    return prompts


def clevr(count: str) -> list[Prompt]:
    """Our own grammar; see `winobench.prompts.grammar`."""
    if not count:
        return grammar.make_prompts()
    number = int(count) if re.fullmatch(r"[0-9]{1,9}", count) else count
    return grammar.make_prompts(options.whole(1, grammar.MOST).check("the number in clevr:N", number))


NAMED_SETS: Mapping[str, NamedSet] = {
    "clevr": NamedSet(clevr, "[:N]", "our own grammar of CLEVR scenes, and what each picture must show"),
    "geneval": NamedSet(geneval, ":FILE", "GenEval, evaluation_metadata.jsonl"),
    "partiprompts": NamedSet(partiprompts, ":FILE", "PartiPrompts, PartiPrompts.tsv"),
    "drawbench": NamedSet(drawbench, ":FILE", "the 104 prompts of DrawBench that DiffusionITM takes, CSV"),
    "t2i_compbench": NamedSet(t2i_compbench, ":FILE_OR_FOLDER", "T2I-CompBench, *_val.txt"),
}
"""Name -> set."""


def _file(name: str, file: str) -> pathlib.Path:
    if not file:
        raise InputError(f"the prompts {name!r} are read from their published file: write {name}:FILE")
    path = pathlib.Path(user_path(file))
    # os.path, unlike pathlib, takes a name that is too long for a path as one that is not there.
    if not os.path.isfile(path):
        raise InputError(
            f"there is no file {options.shown(str(path))} for the prompts {name!r}: name the published one"
        )
    return path
