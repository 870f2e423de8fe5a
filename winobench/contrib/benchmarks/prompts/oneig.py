"""OneIG-Bench's English prompts that have questions on alignment (Chang et al. 2025, arXiv:2506.07977).

These are 695 of its 1,120: anime, portraits and objects. The data set's page on the Hugging Face hub states CC BY-NC
4.0. The repository OneIG-Bench/OneIG-Benchmark 41b4983 has no licence.
"""

from __future__ import annotations

import pathlib
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import question_graphs
from winobench.prompts.prompt_files import Prompt, make_prompt, table_rows

CATEGORIES = {"anime": "Anime_Stylization", "human": "Portrait", "object": "General_Object"}
"""Name of the file with a category's questions -> category in the table."""

TABLE, QUESTIONS = "OneIG-Bench.csv", pathlib.Path("scripts", "alignment", "Q_D")
_LABELS = {"type": ("T, P", "NP"), "prompt_length": ("short", "middle", "long")}
_ADVICE = f"name OneIG-Bench's folder with {TABLE} and {QUESTIONS}"


def read(folder: pathlib.Path) -> list[Prompt]:
    """The prompts. Type and length of the table and the questions are the content."""
    rows: dict[str, dict[str, tuple[str, dict[str, str]]]] = {category: {} for category in CATEGORIES.values()}
    columns = [(name,) for name in ("category", "id", "prompt_en", *_LABELS)]
    for number, row in table_rows(folder / TABLE, columns, delimiter=","):
        where, of_category = f"line {number} of {folder / TABLE}", rows.get(row["category"])
        if of_category is None:
            continue
        if row["id"] in of_category:
            raise InputError(f"{where} repeats the id {row['id']!r} of {row['category']}: {_ADVICE}")
        for label, values in _LABELS.items():
            if row[label] not in values:
                raise InputError(f"{where} has the {label} {row[label]!r}, none of {'; '.join(values)}: {_ADVICE}")
        of_category[row["id"]] = where, row
    prompts = []
    for name, category in CATEGORIES.items():
        path = folder / QUESTIONS / f"{name}.json"
        questions = json_files.read_object(path, _ADVICE)
        if unpaired := sorted(questions.keys() ^ rows[category].keys()):
            has, lacks = (path, TABLE) if unpaired[0] in questions else (folder / TABLE, path.name)
            raise InputError(f"{has} has the id {unpaired[0]!r} of {category}, which {lacks} lacks: {_ADVICE}")
        for key, (where, row) in rows[category].items():
            content: dict[str, Any] = {label: row[label] for label in _LABELS}
            content["questions"] = _questions(questions[key], f"{key!r} in {path}")
            fields: dict[str, Any] = {"id": f"{name}_{key}", "category": category, "content": content}
            prompts.append(make_prompt(where, row["prompt_en"], **fields))
    return prompts


def has_questions(content: Any) -> bool:
    """Whether a prompt's content is OneIG-Bench's."""
    labelled = isinstance(content, dict) and all(content.get(name) in values for name, values in _LABELS.items())
    return labelled and question_graphs.are_whole(content)


def _questions(entry: Any, where: str) -> list[dict[str, Any]]:
    """The questions of an entry, which has them and their dependencies as texts in JSON."""
    texts, dependency = (_numbered(entry, name, where) for name in ("question", "dependency"))
    if not texts or list(texts) != [str(number) for number in range(1, len(texts) + 1)]:
        raise InputError(f"{where} does not number its questions from 1 on: {_ADVICE}")
    if texts.keys() != dependency.keys():
        raise InputError(f"{where} has other numbers in question than in dependency: {_ADVICE}")
    questions = [
        {"id": int(number), "question": text, "dependency": dependency[number]} for number, text in texts.items()
    ]
    for question in questions:
        if problem := question_graphs.problem(question):
            raise InputError(f"question {question['id']} of {where} {problem}: {_ADVICE}")
    if not question_graphs.are_whole({"questions": questions}):
        raise InputError(f"{where} has a question that depends on one that is missing: {_ADVICE}")
    return questions


def _numbered(entry: Any, name: str, where: str) -> dict[str, Any]:
    text = entry.get(name) if isinstance(entry, dict) else None
    try:
        value = json_files.parse(text) if isinstance(text, str) else None
    except json_files.NotJSON as error:
        raise InputError(f"{name!r} in {where} is not JSON ({error}): {_ADVICE}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} has no {name!r}, a text with a JSON object: {_ADVICE}")
    return value
