"""GenAI-Bench's prompts and their skills (Li et al. 2024, arXiv:2406.13743), from its two JSON files.

``genai_image.json`` has a prompt for each number of five digits. ``genai_skills.json``, next to it, has the numbers of
each skill. BaiqiL/GenAI-Bench-1600 has 1,600 prompts, zhiqiulin/GenAI-Bench-527 the VQAScore paper's 527. Both are read
as in t2v_metrics 6ecb74f (dataset.py, genai_bench/evaluate.py).
"""

from __future__ import annotations

import pathlib
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, make_prompt

PROMPTS, SKILLS = "genai_image.json", "genai_skills.json"
BASIC, ADVANCED = "basic", "advanced"
"""The two skills that are names of groups of skills, too. They are the prompts' categories."""

_ADVICE = "get both files as they were published"


def read(path: pathlib.Path) -> list[Prompt]:
    """The prompts in the file's order. The content of each has its skills, in the order of the file of skills."""
    texts = _object(path)
    skills = _skills(path.parent / SKILLS, texts)
    prompts = []
    for number, entry in texts.items():
        where = f"{number!r} in {path}"
        if not isinstance(entry, dict) or not isinstance(entry.get("prompt"), str):
            raise InputError(f"{where} has no prompt: {_ADVICE}", code="missing-field")
        named = skills[number]
        category = next((name for name in (ADVANCED, BASIC) if name in named), "")
        prompts.append(make_prompt(where, entry["prompt"], id=number, category=category, content={"skills": named}))
    return prompts


def skills_of(content: Any) -> list[str] | None:
    """The skills in the content of a prompt of this set. None for another set's."""
    skills = content.get("skills") if isinstance(content, dict) and content.keys() == {"skills"} else None
    return skills if isinstance(skills, list) and all(isinstance(name, str) for name in skills) else None


def _skills(path: pathlib.Path, texts: dict[str, Any]) -> dict[str, list[str]]:
    skills_by_prompt: dict[str, list[str]] = {number: [] for number in texts}
    for skill, numbers in _object(path).items():
        if not isinstance(numbers, list) or not all(type(number) is int and number >= 0 for number in numbers):
            raise InputError(f"{skill!r} in {path} is not a list of numbers of prompts: {_ADVICE}", code="not-a-list")
        for number in numbers:
            names = skills_by_prompt.get(f"{number:05d}")
            if names is None:
                problem = f"names the prompt {number}, which {PROMPTS} does not have"
                raise InputError(f"{skill!r} in {path} {problem}: {_ADVICE}", code="unknown-name")
            if skill in names:
                raise InputError(f"{skill!r} in {path} names the prompt {number} twice: {_ADVICE}", code="repeated-id")
            names.append(skill)
    return skills_by_prompt


def _object(path: pathlib.Path) -> dict[str, Any]:
    return json_files.read_object(path, _ADVICE, largest=json_files.LARGEST_DATA)
