"""OneIG-Bench's prompts: questions on alignment, texts to show, right answers (Chang et al. 2025, arXiv:2506.07977).

In English, 695 of 1,120 have questions: anime, portraits and objects. In Chinese, 895 of 1,320, with multilingualism.
In each language, 114 of these have a style, 200 others texts, and 225 others right answers. The data set's page on the
Hugging Face hub states CC BY-NC 4.0. The repository OneIG-Bench/OneIG-Benchmark 41b4983 has no licence.
"""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.contrib.benchmarks.prompts import question_graphs
from winobench.prompts.prompt_files import Prompt, make_prompt, table_rows

CATEGORIES = {"anime": "Anime_Stylization", "human": "Portrait", "object": "General_Object"}
"""Name of the file with a category's questions -> category in the table."""

TABLE, QUESTIONS = "OneIG-Bench.csv", pathlib.Path("scripts", "alignment", "Q_D")
TEXT, TEXTS = "text", pathlib.Path("scripts", "text")
_TEXT_CATEGORY = "Text_Rendering"
_REASONING, _ANSWERS, _REASONING_CATEGORY = "reasoning", pathlib.Path("scripts", "reasoning"), "Knowledge_Reasoning"
_ANIME = "anime"
_LABELS = {"type": ("T, P", "NP"), "prompt_length": ("short", "middle", "long")}


class _Language(NamedTuple):
    table: str
    column: str  # of the prompts
    end: str  # of names of other files
    categories: Mapping[str, str]
    labels: Mapping[str, tuple[str, ...]]  # columns of the table, and their values

    @property
    def advice(self) -> str:
        return f"name OneIG-Bench's folder with {self.table} and {QUESTIONS}"


_LANGUAGES = {
    "en": _Language(TABLE, "prompt_en", "", CATEGORIES, _LABELS),
    "zh": _Language("OneIG-Bench-ZH.csv", "prompt_cn", "_zh", {**CATEGORIES, "multilingualism": "Multilingualism"}, {}),
}


def read(folder: pathlib.Path, language: str = "en") -> list[Prompt]:
    """The prompts with questions, and those with texts and with right answers where the folder has the files of these.

    The content has the table's type and length in English, the language in Chinese, and the questions, the text or the
    answer. It also has the style of an anime prompt with one, and the subject of an answer.
    """
    chosen = _LANGUAGES[language]
    entries: dict[str, tuple[pathlib.Path, Mapping[str, Any]]] = {}
    for name in chosen.categories:
        path = folder / QUESTIONS / f"{name}{chosen.end}.json"
        entries[name] = path, json_files.read_object(path, chosen.advice)
    texts = folder / TEXTS / f"text_content{chosen.end}.csv"
    categories = dict(chosen.categories)
    if texts.is_file():
        categories[TEXT] = _TEXT_CATEGORY
        entries[TEXT] = texts, _texts(texts)
    answers = folder / _ANSWERS / f"gt_answer{chosen.end}.json"
    if answers.is_file():
        categories[_REASONING] = _REASONING_CATEGORY
        entries[_REASONING] = answers, json_files.read_object(answers, chosen.advice)
    rows = _rows(folder / chosen.table, chosen, [*categories.values()])
    prompts = []
    for name, category in categories.items():
        path, contents = entries[name]
        if unpaired := sorted(contents.keys() ^ rows[category].keys()):
            has, lacks = (path, chosen.table) if unpaired[0] in contents else (folder / chosen.table, path.name)
            raise InputError(f"{has} has the id {unpaired[0]!r} of {category}, which {lacks} lacks: {chosen.advice}")
        for key, (where, row) in rows[category].items():
            content: dict[str, Any] = {label: row[label] for label in chosen.labels} or {"language": language}
            if name == _ANIME and row.get("class", "").strip():
                content["style"] = row["class"].strip()
            if name == TEXT:
                content["text"] = contents[key]
            elif name == _REASONING:
                content |= {"answer": contents[key], "subject": row.get("class", "").strip()}
                if not has_text(content, "answer") or not content["subject"]:
                    raise InputError(f"{key!r} has no answer in {path}, or no class in {where}: {chosen.advice}")
            else:
                content["questions"] = _questions(contents[key], f"{key!r} in {path}", chosen.advice)
            fields: dict[str, Any] = {"id": f"{name}_{key}", "category": category, "content": content}
            prompts.append(make_prompt(where, row[chosen.column], **fields))
    return prompts


def has_questions(content: Any) -> bool:
    """Whether a prompt's content is OneIG-Bench's, with questions."""
    return _language(content) is not None and question_graphs.are_whole(content)


def text_language(content: Any) -> str | None:
    """The language of a prompt's content that is OneIG-Bench's, with a text. None for any other content."""
    language = _language(content)
    return language if language and isinstance(content.get("text"), str) else None


def is_one(content: Any) -> bool:
    """Whether a prompt's content is OneIG-Bench's."""
    return has_questions(content) or has_text(content, "text") or has_text(content, "answer")


def has_text(content: Any, name: str) -> bool:
    """Whether a prompt's content is OneIG-Bench's, with a text of this name, such as the right ``answer``."""
    return _language(content) is not None and isinstance(content.get(name), str) and bool(content[name].strip())


def labels(content: Mapping[str, Any]) -> list[str]:
    """The length and type of a prompt. None in Chinese."""
    return [content[name] for name in ("prompt_length", "type") if name in content]


def _language(content: Any) -> str | None:
    if not isinstance(content, dict):
        return None
    if all(content.get(name) in values for name, values in _LABELS.items()):
        return "en"
    return "zh" if content.get("language") == "zh" else None


def _rows(
    table: pathlib.Path, chosen: _Language, categories: list[str]
) -> dict[str, dict[str, tuple[str, dict[str, str]]]]:
    """Category -> id -> place in words and row of the table."""
    rows: dict[str, dict[str, tuple[str, dict[str, str]]]] = {category: {} for category in categories}
    columns = [(name,) for name in ("category", "id", chosen.column, *chosen.labels)]
    for number, row in table_rows(table, columns, delimiter=","):
        where, of_category = f"line {number} of {table}", rows.get(row["category"])
        if of_category is None:
            continue
        if row["id"] in of_category:
            raise InputError(f"{where} repeats the id {row['id']!r} of {row['category']}: {chosen.advice}")
        for label, values in chosen.labels.items():
            if row[label] not in values:
                raise InputError(
                    f"{where} has the {label} {row[label]!r}, none of {'; '.join(values)}: {chosen.advice}"
                )
        of_category[row["id"]] = where, row
    return rows


def _texts(path: pathlib.Path) -> dict[str, str]:
    """Id -> the texts that an image must show, as the cell of the table has them."""
    texts: dict[str, str] = {}
    for number, row in table_rows(path, [("id",), ("text_content",)], delimiter=","):
        if row["id"] in texts or not row["text_content"].strip():
            problem = f"repeats the id {row['id']!r}" if row["id"] in texts else "has no text_content"
            raise InputError(f"line {number} of {path} {problem}: take the published file")
        texts[row["id"]] = row["text_content"]
    return texts


def _questions(entry: Any, where: str, advice: str) -> list[dict[str, Any]]:
    """The questions of an entry, which has them and their dependencies as texts in JSON."""
    texts, dependency = (_numbered(entry, name, where, advice) for name in ("question", "dependency"))
    if not texts or list(texts) != [str(number) for number in range(1, len(texts) + 1)]:
        raise InputError(f"{where} does not number its questions from 1 on: {advice}")
    if texts.keys() != dependency.keys():
        raise InputError(f"{where} has other numbers in question than in dependency: {advice}")
    questions = [
        {"id": int(number), "question": text, "dependency": dependency[number]} for number, text in texts.items()
    ]
    for question in questions:
        if problem := question_graphs.problem(question):
            raise InputError(f"question {question['id']} of {where} {problem}: {advice}")
    if not question_graphs.are_whole({"questions": questions}):
        raise InputError(f"{where} has a question that depends on one that is missing: {advice}")
    return questions


def _numbered(entry: Any, name: str, where: str, advice: str) -> dict[str, Any]:
    text = entry.get(name) if isinstance(entry, dict) else None
    try:
        value = json_files.parse(text) if isinstance(text, str) else None
    except json_files.NotJSON as error:
        raise InputError(f"{name!r} in {where} is not JSON ({error}): {advice}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where} has no {name!r}, a text with a JSON object: {advice}")
    return value
