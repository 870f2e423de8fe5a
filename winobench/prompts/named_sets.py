"""Reads sets of prompts: a user's ``.txt``, ``.csv`` or ``.tsv`` file, or a published set by its name and file.

Published files are read as they are: a text that is in one twice gives two images, of different noise.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.base import extensions, files, json_files, options
from winobench.base.errors import InputError
from winobench.prompts import genai_bench as genai_files
from winobench.prompts import geneval2 as geneval2_files
from winobench.prompts import grammar
from winobench.prompts.prompt_files import NamedSet, Prompt, existing_file, make_prompt, table_rows, text_lines

DRAWBENCH_CATEGORIES = ("Colors", "Conflicting", "Counting", "DALL-E", "Gary Marcus et al.", "Positional")
"""The six of DrawBench's eleven categories that DiffusionITM compares models on (Krojer et al. 2023, App. B, Table 4).
They have 104 of its 200 prompts."""

_DELIMITERS = {".txt": None, ".csv": ",", ".tsv": "\t"}
_TEXT_COLUMNS = ("prompt", "prompts")  # in user's tables and in those that are published


def geneval(file: str) -> list[Prompt]:
    """GenEval's 553 prompts (Ghosh et al. 2023), from its ``evaluation_metadata.jsonl``.

    The category is the row's ``tag``, and the content the rest of the row: ``include`` and ``exclude`` say of which
    classes how many objects must and must not be there, in which colours and places.
    """
    path = existing_file("geneval", file)
    prompts: list[Prompt] = []
    for number, row in json_files.read_lines(path, "name GenEval's evaluation_metadata.jsonl"):
        where = f"line {number} of {path}"
        if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in ("tag", "prompt")):
            raise InputError(f"{where} has no tag and prompt: name GenEval's evaluation_metadata.jsonl")
        text = row.pop("prompt")
        prompts.append(make_prompt(where, text, id=f"{len(prompts):05d}", category=row["tag"], content=row))
    return prompts


def geneval2(file: str) -> list[Prompt]:
    """GenEval 2's 800 prompts, from its ``geneval2_data.jsonl``. See `winobench.prompts.geneval2`."""
    return geneval2_files.read(existing_file("geneval2", file))


def partiprompts(file: str) -> list[Prompt]:
    """PartiPrompts' 1,632 prompts (Yu et al. 2022), from ``PartiPrompts.tsv``. Challenge and note are the content."""
    path = existing_file("partiprompts", file)
    prompts: list[Prompt] = []
    for number, row in table_rows(path, [("prompt",), ("category",), ("challenge",)], delimiter="\t"):
        content = {"challenge": row["challenge"].strip(), "note": row.get("note", "").strip()}
        # Some cells are quoted, as a table's with commas would be.
        text = re.sub(r'^"(.*)"$', r"\1", row["prompt"].strip()).replace('""', '"')
        fields: dict[str, Any] = {"id": f"{len(prompts):05d}", "category": row["category"], "content": content}
        prompts.append(make_prompt(f"line {number} of {path}", text, **fields))
    return prompts


def drawbench(file: str) -> list[Prompt]:
    """DrawBench's prompts (Saharia et al. 2022) of the six categories of `DRAWBENCH_CATEGORIES`, from its CSV file.

    All 200 are read by the file's name alone, without ``drawbench:``.
    """
    path = existing_file("drawbench", file)
    wanted = {category.casefold(): category for category in DRAWBENCH_CATEGORIES} | {"colours": "Colors"}
    prompts: list[Prompt] = []
    for number, row in table_rows(path, [_TEXT_COLUMNS, ("category",)], delimiter=","):
        category = wanted.get(row["category"].strip().casefold())
        if category is not None:
            prompts.append(make_prompt(f"line {number} of {path}", row["prompt"], id=str(number), category=category))
    if not prompts:
        raise InputError(f"{path} has no prompt of the categories {', '.join(DRAWBENCH_CATEGORIES)}: name DrawBench's")
    return prompts


def genai_bench(source: str) -> list[Prompt]:
    """GenAI-Bench's prompts, from its ``genai_image.json`` or its folder. See `winobench.prompts.genai_bench`."""
    path = pathlib.Path(files.user_path(source or "."))
    return genai_files.read(path / genai_files.PROMPTS if path.is_dir() else existing_file("genai_bench", source))


def winoground_t2i(file: str) -> list[Prompt]:
    """Winoground-T2I's 11,479 pairs of prompts (Zhu et al. 2023), from ``dataset.txt``: two prompts a line.

    The ids are the line's, with -0 and -1. The content names the pair and has the other prompt as ``contrast``.
    """
    path = existing_file("winoground_t2i", file)
    prompts: list[Prompt] = []
    seen: dict[str, int] = {}
    for number, line in text_lines(path):
        where, cells = f"line {number} of {path}", line.split("\t")
        if len(cells) != 3:
            problem = f"has {len(cells)} cells, not an id and two texts"
            raise InputError(f"{where} {problem}: name Winoground-T2I's dataset.txt")
        pair, *texts = (cell.strip() for cell in cells)
        if pair in seen:
            raise InputError(f"{where} has the id {pair!r} of line {seen[pair]}: restore the published file")
        seen[pair] = number
        for side, text in enumerate(texts):
            content = {"pair": pair, "contrast": texts[1 - side]}
            prompts.append(make_prompt(where, text, id=f"{pair}-{side}", content=content))
    return prompts


def clevr(count: str) -> list[Prompt]:
    """Our own grammar. See `winobench.prompts.grammar`."""
    if not count:
        return grammar.make_prompts()
    number = int(count) if re.fullmatch(r"[0-9]{1,9}", count) else count
    return grammar.make_prompts(options.whole(1, grammar.MOST).check("the number in clevr:N", number))


_OWN = {
    "clevr": NamedSet(clevr, "[:N]", "our own grammar of CLEVR scenes, and what each image must show"),
    "geneval": NamedSet(geneval, ":FILE", "GenEval, evaluation_metadata.jsonl"),
    "geneval2": NamedSet(geneval2, ":FILE", "GenEval 2, geneval2_data.jsonl"),
    "partiprompts": NamedSet(partiprompts, ":FILE", "PartiPrompts, PartiPrompts.tsv"),
    "drawbench": NamedSet(drawbench, ":FILE", "the 104 prompts of DrawBench that DiffusionITM takes, CSV"),
    "genai_bench": NamedSet(genai_bench, ":FILE_OR_FOLDER", "GenAI-Bench, genai_image.json and genai_skills.json"),
    "winoground_t2i": NamedSet(winoground_t2i, ":FILE", "Winoground-T2I, dataset.txt: two prompts a line"),
}
_ADDED = [each for sets in extensions.loaded(extensions.PROMPTS).values() for each in sets.items()]

NAMED_SETS: Mapping[str, NamedSet] = {**_OWN, **{name: named for name, named in _ADDED if name not in _OWN}}
"""Name -> set. Sets of other packages are last."""


def read_prompts(
    source: str, *, limit: int | None = None, categories: Sequence[str] = (), shown: str | None = None
) -> list[Prompt]:
    """The prompts of a source.

    Empty lines are skipped, and blanks at both ends are taken away.

    Args:
      source: a ``.txt``, ``.csv`` or ``.tsv`` file, or a named set such as ``geneval:evaluation_metadata.jsonl``.
      limit: take so many at most, from the beginning; None for all.
      categories: only these categories. All if missing.
      shown: a ``.csv`` or ``.tsv`` file with the columns prompt and shown: the text that models are given for each
        prompt.

    Raises:
      InputError: the source does not exist, it holds no prompt, or something in it cannot be one. Names file and line.
    """
    source = options.text().check("a source of prompts", source)
    limit = options.LIMIT.check("the limit of prompts", limit)
    categories = options.names().check("categories", categories or ())
    name, _, rest = source.partition(":")
    prompts = NAMED_SETS[name].read(rest) if name in NAMED_SETS else _of_file(pathlib.Path(files.user_path(source)))
    if not prompts:
        raise InputError(f"{source} holds no prompt: write one a line")
    known = list(dict.fromkeys(prompt.category for prompt in prompts))
    for category in categories:
        if category not in known:
            named = ", ".join(map(repr, filter(None, known))) or "none"
            raise InputError(f"{source} has no prompt of the category {category!r}: its categories are {named}")
    chosen = [prompt for prompt in prompts if not categories or prompt.category in categories]
    return chosen[:limit] if shown is None else _with_shown(chosen[:limit], pathlib.Path(files.user_path(shown)))


def _with_shown(prompts: Sequence[Prompt], path: pathlib.Path) -> list[Prompt]:
    """Prompts with the texts that a table has for them. Each must have one."""
    if (delimiter := _DELIMITERS.get(path.suffix.lower())) is None:
        raise InputError(f"{path} is not a table of rewritten prompts: name a .csv or .tsv file", code="bad-file-name")
    texts: dict[str, str] = {}
    for line, row in table_rows(path, [_TEXT_COLUMNS, ("shown",)], delimiter=delimiter):
        prompt = make_prompt(f"line {line} of {path}", row["prompt"], id=str(line), shown=row["shown"])
        if texts.setdefault(prompt.text, prompt.given) != prompt.given:
            raise InputError(f"line {line} of {path} has another text for {options.quote(prompt.text)}: take one away")
    rewritten = []
    for prompt in prompts:
        if prompt.text not in texts:
            raise InputError(f"{path} has no row of the prompt {options.quote(prompt.text)}: add one", code="no-text")
        given = texts[prompt.text]
        rewritten.append(dataclasses.replace(prompt, shown=given if given != prompt.text else None))
    return rewritten


def check_source(source: str) -> None:
    """Raises InputError unless a source has a known form. Reads nothing."""
    name = source.partition(":")[0]
    if name not in NAMED_SETS and pathlib.Path(source).suffix.lower() not in _DELIMITERS:
        raise _unknown(source)


def _of_file(path: pathlib.Path) -> list[Prompt]:
    """The prompts of a user's file, in which each text and each id stands once."""
    if path.suffix.lower() not in _DELIMITERS:
        raise _unknown(str(path))
    lines: dict[tuple[str, str], int] = {}
    prompts: list[Prompt] = []
    for line, prompt in _read_rows(path, _DELIMITERS[path.suffix.lower()]):
        for key, label in ((("text", prompt.text), "the prompt"), (("id", prompt.id), f"the id {prompt.id!r}")):
            if key in lines:
                raise InputError(
                    f"line {line} of {path} repeats {label} of line {lines[key]}: take one of them away (seeds generate"
                    " a prompt several times)"
                )
            lines[key] = line
        prompts.append(prompt)
    return prompts


def _unknown(source: str) -> InputError:
    is_path = os.path.exists(source) or re.fullmatch(r"\.\w+", pathlib.Path(source).suffix)
    if " " in source.partition(":")[0].strip() and not is_path:
        return InputError(
            f"{options.quote(source)} is a prompt itself, and not a file of prompts: write it into a .txt file, a line"
            " for each prompt, and name this file (--prompts=FILE.txt)"
        )
    sets = ", ".join(f"{name}{named_set.wanted}" for name, named_set in NAMED_SETS.items())
    return InputError(
        f"{options.quote(source)} is not a source of prompts: write prompts into a .txt file, one a line, or name a"
        f" .csv or .tsv file with the column prompt, or one of {sets}"
    )


def _read_rows(path: pathlib.Path, delimiter: str | None) -> Iterator[tuple[int, Prompt]]:
    rows: Iterator[tuple[int, dict[str, str]]] = ((number, {"prompt": line}) for number, line in text_lines(path))
    if delimiter:
        rows = table_rows(path, [_TEXT_COLUMNS], delimiter=delimiter)
    for number, row in rows:
        rest = {name: row[name] for name in ("category", "shown") if name in row}
        yield number, make_prompt(f"line {number} of {path}", row["prompt"], id=row.get("id", str(number)), **rest)
