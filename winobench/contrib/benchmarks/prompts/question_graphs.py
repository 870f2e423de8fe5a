"""Yes/no questions about an image that depend on each other, as DPG-Bench and OneIG-Bench ask them.

Each is an object of a prompt's content: ``id`` (from 1 on), ``question``, ``dependency`` (ids; 0 for none).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from winobench.base import options

Question = Mapping[str, Any]


def parents(questions: Sequence[Question]) -> dict[int, tuple[int, ...]]:
    """The id of each question -> the ids of those that it depends on."""
    return {question["id"]: tuple(parent for parent in question["dependency"] if parent) for question in questions}


def are_whole(content: Any, fields: Collection[str] = ()) -> bool:
    """Whether a prompt's content has questions with these fields of text, and all those that they depend on."""
    questions = content.get("questions") if isinstance(content, Mapping) else None
    if not isinstance(questions, list) or not questions or any(problem(question, fields) for question in questions):
        return False
    known = parents(questions)
    return len(known) == len(questions) and all(parent in known for needed in known.values() for parent in needed)


def problem(question: Any, fields: Collection[str] = ()) -> str | None:
    """The fault of a question. None for one without any."""
    if not isinstance(question, Mapping):
        return f"is {options.quote(question)}, not a question"
    for name in ("question", *fields):
        if not isinstance(question.get(name), str) or not question[name].strip():
            return f"has no {name}"
    if not _is_number(question.get("id")) or not question["id"]:
        return f"has the number {options.quote(question.get('id'))}, not one from 1 on"
    dependency = question.get("dependency")
    if not isinstance(dependency, list) or not dependency or not all(map(_is_number, dependency)):
        return f"depends on {options.quote(dependency)}, not on numbers of questions"
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
