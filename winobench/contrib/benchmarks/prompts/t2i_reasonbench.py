"""T2I-ReasonBench's 800 prompts in four groups, with their questions (Sun et al. 2025, arXiv:2508.17472).

KaiyueSun98/T2I-ReasonBench efc1d20: prompts and deepseek_evaluation_qs. The repository states no licence.
"""

from __future__ import annotations

import pathlib
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, make_prompt

_DETAILED = {"other_details_evaluation": 0.3}
PARTS = {
    "idiom_interpretation": ("evaluation_idiom", {"reason_evaluation": 1.0}),
    "textual_image_design": ("evaluation_textual_image", {"reason_evaluation": 1.0}),
    "entity_reasoning": ("evaluation_entity", {"entity_evaluation": 0.7, **_DETAILED}),
    "scientific_reasoning": ("evaluation_scientific", {"scientific_evaluation": 0.7, **_DETAILED}),
}
"""Group, the name of its file of prompts -> file of questions, and which of its parts make the accuracy, by weight."""

QUALITY = "quality_evaluation"
_FOLDERS = ("prompts", "deepseek_evaluation_qs")
_ADVICE = f"name T2I-ReasonBench's folder with {' and '.join(_FOLDERS)}"


def read(folder: pathlib.Path) -> list[Prompt]:
    """The prompts, with their group as category. The content is the objects of questions and criteria as published."""
    prompts = []
    for group, (name, weights) in PARTS.items():
        paths = [folder / part / f"{file}.json" for part, file in zip(_FOLDERS, (group, name), strict=True)]
        rows, questions = (_entries(path) for path in paths)
        if unpaired := sorted(rows.keys() ^ questions.keys()):
            has, lacks = paths if unpaired[0] in rows else reversed(paths)
            raise InputError(f"{has} has the id {unpaired[0]}, which {lacks} lacks: {_ADVICE}")
        for number, row in rows.items():
            where = f"the id {number} of {paths[0]}"
            content = {"t2i_reasonbench": group, **{part: questions[number].get(part) for part in (*weights, QUALITY)}}
            if not isinstance(row.get("prompt"), str) or not has_questions(content):
                raise InputError(f"{where} has no prompt with questions in {paths[1]}: {_ADVICE}")
            fields: dict[str, Any] = {"id": f"{group}-{number:04d}", "category": group, "content": content}
            prompts.append(make_prompt(where, row["prompt"], **fields))
    return prompts


def has_questions(content: Any) -> bool:
    """Whether a prompt's content is T2I-ReasonBench's."""
    group = content.get("t2i_reasonbench") if isinstance(content, dict) else None
    if not isinstance(group, str) or group not in PARTS:
        return False
    return all(isinstance(content.get(part), dict) and content[part] for part in (*PARTS[group][1], QUALITY))


def _entries(path: pathlib.Path) -> dict[int, dict[str, Any]]:
    """The objects of a file by their ids."""
    entries: dict[int, dict[str, Any]] = {}
    values = json_files.read(path, _ADVICE)
    for place, value in enumerate(values if isinstance(values, list) else [None], 1):
        number = value.get("id") if isinstance(value, dict) else None
        if type(number) is not int or number < 1:
            raise InputError(f"entry {place} of {path} has no id from 1 on: {_ADVICE}")
        if number in entries:
            raise InputError(f"entry {place} of {path} repeats the id {number}: {_ADVICE}")
        entries[number] = value
    return entries
