"""GenEval 2's prompts with their questions (Kamath et al. 2025, arXiv:2512.16853). The data are CC BY-NC 4.0."""

from __future__ import annotations

import pathlib
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, make_prompt

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
"""The answers to questions about numbers, from 1 on."""

SKILLS = ("object", "attribute", "count", "position", "verb")
_COUNTS, _YES = "How many", "Yes"
_ADVICE = "name GenEval 2's geneval2_data.jsonl"


def asks_number(question: str) -> bool:
    """Whether the answer to a question is a number. Otherwise it is yes."""
    return question.startswith(_COUNTS)


def read(path: pathlib.Path) -> list[Prompt]:
    """The prompts, which have their number of atoms as category, and atoms, questions and skills as content."""
    prompts: list[Prompt] = []
    for number, row in json_files.read_lines(path, _ADVICE):
        where = f"line {number} of {path}"
        if not isinstance(row, dict) or not isinstance(row.get("prompt"), str):
            raise InputError(f"{where} has no prompt: {_ADVICE}")
        text = row.pop("prompt")
        if problem := _problem(row):
            raise InputError(f"{where} {problem}: {_ADVICE}")
        category = f"{row['atom_count']} atoms"
        prompts.append(make_prompt(where, text, id=f"{len(prompts):05d}", category=category, content=row))
    return prompts


def has_questions(content: Any) -> bool:
    """Whether a prompt's content is a row of GenEval 2."""
    return isinstance(content, dict) and _problem(content) is None


def _problem(row: dict[str, Any]) -> str | None:
    """The fault of a row's questions. None for a row without any."""
    atoms, questions, skills = (row.get(name) for name in ("atom_count", "vqa_list", "skills"))
    if not isinstance(atoms, int) or isinstance(atoms, bool) or not isinstance(questions, list) or not questions:
        return "lacks atom_count or vqa_list"
    if not isinstance(skills, list) or len(skills) != len(questions):
        return "has another number of skills than of questions"
    for pair, skill in zip(questions, skills, strict=True):
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            return f"has {options.quote(pair)}, not a question with its answer"
        if skill not in SKILLS:
            return f"has the skill {options.quote(skill)}, not one of {', '.join(SKILLS)}"
        question, answer = pair
        if answer not in (NUMBERS if asks_number(question) else (_YES,)):
            wanted = "a number from one to ten" if asks_number(question) else _YES
            return f"answers {options.quote(question)} with {options.quote(answer)}, not with {wanted}"
    return None
