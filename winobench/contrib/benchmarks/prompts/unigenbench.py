"""UniGenBench++'s 600 prompts in English and in Chinese, short and long, each with points to test (CC BY 4.0).

Wang et al. 2025, arXiv:2510.18701: data/test_prompts_{en,zh}{,_long}.csv of CodeGoat24/UniGenBench 49d0bce. Prompt 509
of the long English ones lacks a comma, at which the published code ends. It is read as if the comma were there.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.contrib.benchmarks import wordings
from winobench.prompts.prompt_files import Prompt, make_prompt, table_rows

_POINTS = json_files.parse(wordings.read("unigenbench.json"))
EXPLANATIONS: dict[str, dict[str, str]] = {
    language: dict(point[language] for point in _POINTS) for language in ("en", "zh")
}
"""Language -> point -> its explanation, as the judge reads them."""
NAMES = {point[language][0]: point["en"][0] for language in EXPLANATIONS for point in _POINTS}
"""Point in either language -> its English name."""

_THEMES = {"en": "Primary Categories", "zh": "一级垂类"}
_KEYS = {"en": ("Testpoints", "Testpoint Description"), "zh": ("考点", "考点对应描述")}
_LACKS_COMMA = re.compile(r'"\s+"')
_ADVICE = "name one of UniGenBench's test_prompts_en.csv, _en_long, _zh and _zh_long"


def read(path: pathlib.Path) -> list[Prompt]:
    """The prompts of a file, with their theme as category. The content is language, points and their descriptions."""
    prompts: list[Prompt] = []
    lines: dict[str, int] = {}
    for number, row in table_rows(
        path, [("index",), ("prompt_en", "prompt_zh"), ("sub_dims_en", "sub_dims_zh")], delimiter=","
    ):
        where, index = f"line {number} of {path}", row["index"].strip()
        if index in lines:
            raise InputError(f"{where} has the index {index!r} of line {lines[index]}: {_ADVICE}")
        lines[index] = number
        fields = _fields(row["sub_dims_en"], where)
        language = next((name for name, key in _THEMES.items() if isinstance(fields.get(key), str)), "en")
        points, descriptions = (fields.get(key) for key in _KEYS[language])
        content = {"unigenbench": language, "points": points, "descriptions": descriptions}
        if not has_points(content):
            raise InputError(f"{where} has no known points with a description of each: {_ADVICE}")
        category = str(fields.get(_THEMES[language], ""))
        prompts.append(make_prompt(where, row["prompt_en"], id=index, category=category, content=content))
    return prompts


def has_points(content: Any) -> bool:
    """Whether a prompt's content is UniGenBench's."""
    if not isinstance(content, dict) or content.get("unigenbench") not in (*EXPLANATIONS,):
        return False
    points, descriptions = content.get("points"), content.get("descriptions")
    if not isinstance(points, list) or not isinstance(descriptions, list) or not 0 < len(points) == len(descriptions):
        return False
    known = EXPLANATIONS[content["unigenbench"]]
    return all(isinstance(text, str) for text in (*points, *descriptions)) and all(point in known for point in points)


def _fields(cell: str, where: str) -> dict[str, Any]:
    """The object in a cell, also where a comma between two texts is missing."""
    for text in (cell, _LACKS_COMMA.sub('", "', cell)):
        try:
            value = json_files.parse(text)
        except json_files.NotJSON as error:
            problem = f" ({error})"
            continue
        if isinstance(value, dict):
            return value
        problem = ""
    raise InputError(f"{where} has no JSON object in its column sub_dims{problem}: {_ADVICE}")
