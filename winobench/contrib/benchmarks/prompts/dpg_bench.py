"""DPG-Bench's 1,065 long prompts with their questions (Hu et al. 2024, arXiv:2403.05135; Apache-2.0).

The readers follow compute_dpg_bench.py of TencentQQGYLab/ELLA 3c228f1. It skips the first question of the table, which
is one about partiprompts97 (issue 61 there). Where others depend on it, the published code leaves the images out.
"""

from __future__ import annotations

import pathlib
import re
from typing import Any

from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import question_graphs
from winobench.prompts.prompt_files import Prompt, make_prompt, table_rows, text_lines

TABLE, TEXTS = "dpg_bench.csv", "prompts"
_COLUMNS = ("item_id", "text", "proposition_id", "dependency", "tuple", "question_natural_language")
_ADVICE = f"name DPG-Bench's {TABLE}, or its folder with {TABLE} and {TEXTS}"
_NUMBERS = re.compile(r"\s*\d{1,9}\s*(,\s*\d{1,9}\s*)*")


def read(path: pathlib.Path) -> list[Prompt]:
    """The prompts in the table's order. A folder's ``prompts/<id>.txt`` give their texts."""
    table = path / TABLE if path.is_dir() else path
    texts: dict[str, str] = {}
    questions: dict[str, dict[int, dict[str, Any]]] = {}
    before = None
    for index, (number, row) in enumerate(table_rows(table, [(name,) for name in _COLUMNS], delimiter=",")):
        where, item = f"line {number} of {table}", row["item_id"].strip()
        if not item:
            raise InputError(f"{where} has no item_id: {_ADVICE}")
        texts.setdefault(item, row["text"])
        # As published: a prompt that begins again, or a number that is there again, replaces the earlier one.
        if item != before:
            questions[item] = {}
        if index:
            question = _question(row, where)
            questions[item][question["id"]] = question
        before = item
    if path.is_dir():
        texts = _published_texts(path, texts)
    return [
        make_prompt(f"the prompt {item!r} of {path}", text, id=item, content={"questions": [*questions[item].values()]})
        for item, text in texts.items()
    ]


def has_questions(content: Any) -> bool:
    """Whether a prompt's content is DPG-Bench's, with all questions that others depend on."""
    return question_graphs.are_whole(content, ("tuple",))


def _question(row: dict[str, str], where: str) -> dict[str, Any]:
    for name in ("proposition_id", "dependency"):
        if not _NUMBERS.fullmatch(row[name]):
            raise InputError(f"{where} has the {name} {row[name]!r}, not numbers of questions: {_ADVICE}")
    question = {
        "id": int(row["proposition_id"].partition(",")[0]),
        "question": row["question_natural_language"],
        "dependency": [int(number) for number in row["dependency"].split(",")],
        "tuple": row["tuple"],
    }
    if problem := question_graphs.problem(question, ("tuple",)):
        raise InputError(f"{where} {problem}: {_ADVICE}")
    return question


def _published_texts(folder: pathlib.Path, items: dict[str, str]) -> dict[str, str]:
    """The texts of the folder's files, one for each prompt of the table."""
    files_of_items = {path.stem: path for path in sorted((folder / TEXTS).glob("*.txt"))}
    for names, others, problem in (
        (items, files_of_items, f"{folder / TEXTS} lacks {{}}.txt, a prompt of {TABLE}"),
        (files_of_items, items, f"{folder / TABLE} has no question about {{}}, a prompt of {TEXTS}"),
    ):
        if missing := next((name for name in names if name not in others), None):
            raise InputError(f"{problem.format(missing)}: {_ADVICE}")
    return {item: " ".join(line for _, line in text_lines(files_of_items[item])) for item in items}
