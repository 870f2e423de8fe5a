"""LongText-Bench's prompts with the texts that their images must show (Geng et al. 2025, arXiv:2507.22058; Apache-2.0).

The published files of X-Omni-Team/X-Omni 2b8237b, textbench/text_prompts.jsonl and text_prompts_zh.jsonl, have 160
prompts in English and in Chinese, of eight categories and two lengths.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, make_prompt

FILES = ("text_prompts.jsonl", "text_prompts_zh.jsonl")
_CHINESE = re.compile("[\u4e00-\u9fff]")
_ADVICE = f"name LongText-Bench's {' or '.join(FILES)}, or the folder that has them"


def read(path: pathlib.Path) -> list[Prompt]:
    """The prompts of a file, or of the files in a folder. Those of a folder have their language before their number."""
    if not path.is_dir():
        return [make_prompt(where, text, id=number, **fields) for number, where, text, fields in _read(path)[1]]
    paths = [path / name for name in FILES if (path / name).is_file()]
    if not paths:
        raise InputError(f"{path} has no {' or '.join(FILES)}: {_ADVICE}")
    of_files = dict(map(_read, paths))
    if len(of_files) < len(paths):
        raise InputError(f"{' and '.join(map(str, paths))} have prompts of one language: {_ADVICE}")
    return [
        make_prompt(where, text, id=f"{language}_{number}", **fields)
        for language, prompts in of_files.items()
        for number, where, text, fields in prompts
    ]


def has_text(content: Any) -> bool:
    """Whether a prompt's content is LongText-Bench's."""
    return (
        isinstance(content, dict)
        and content.get("language") in ("en", "zh")
        and isinstance(content.get("length"), str)
        and _are_texts(content.get("text"))
    )


def _read(path: pathlib.Path) -> tuple[str, list[tuple[str, str, str, dict[str, Any]]]]:
    """The language of a file, and of each prompt the number, place, text and other fields.

    The language is Chinese where most texts have a Chinese character.
    """
    rows: dict[str, tuple[str, dict[str, Any]]] = {}
    for line, row in json_files.read_lines(path, _ADVICE):
        where = f"line {line} of {path}"
        if problem := _problem(row):
            raise InputError(f"{where} {problem}: {_ADVICE}")
        number = str(row["prompt_id"])
        if number in rows:
            raise InputError(f"{where} repeats the prompt_id {number}: {_ADVICE}")
        rows[number] = where, row
    if not rows:
        raise InputError(f"{path} has no prompts: {_ADVICE}")
    num_chinese = sum(_CHINESE.search("".join(row["text"])) is not None for _, row in rows.values())
    language = "zh" if 2 * num_chinese > len(rows) else "en"
    prompts = []
    for number, (where, row) in rows.items():
        content = {"language": language, "length": row["length"], "text": row["text"]}
        prompts.append((number, where, row["prompt"], {"category": row["category"], "content": content}))
    return language, prompts


def _problem(row: Any) -> str | None:
    """The fault of a line. None without any."""
    if not isinstance(row, dict):
        return f"is {options.quote(row)}, not a prompt"
    if type(row.get("prompt_id")) is not int or row["prompt_id"] < 0:
        return f"has the prompt_id {options.quote(row.get('prompt_id'))}, not a number from 0 on"
    for name in ("prompt", "category", "length"):
        if not isinstance(row.get(name), str):
            return f"has no {name}"
    return (
        None if _are_texts(row.get("text")) else f"has the text {options.quote(row.get('text'))}, not a list of texts"
    )


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) and text.strip() for text in value)
