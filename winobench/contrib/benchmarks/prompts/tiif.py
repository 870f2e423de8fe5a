"""TIIF-Bench's prompts, each short and long, with their questions (Wei et al. 2025, arXiv:2506.02161).

The published files of A113N-W3I/TIIF-Bench 3aae750 have 39 types: 2,538 pairs of prompts in test_prompts with 12,160
questions, and 277 pairs in testmini_prompts with 1,446. The repository states no licence. The questions on comparison
in that test_prompts belong to other prompts. Its authors mended them in d875cd8.
"""

from __future__ import annotations

import pathlib
import re
import warnings
from collections.abc import Sequence
from typing import Any

from winobench.base import files, json_files, options
from winobench.base.errors import InputError
from winobench.prompts.prompt_files import Prompt, make_prompt

LENGTHS = ("short", "long")
_PROMPTS, _QUESTIONS = "_prompts", "_eval_prompts"  # ends of names of files and of folders
# The prompts and questions on comparison in test_prompts of 3aae750: 40 of the 75 pairs have another pair's questions.
_SHIFTED = "3a20c1823e0198c29c323c3fbad27fe3a72e942bc814d667149d72175be71def"
_COMMON_WORDS = frozenset(("and", "any", "are", "does", "for", "from", "has", "have", "image", "into", "more", "than"))
_COMMON_WORDS |= {"that", "the", "there", "this", "with"}
# Of the other 77 published files, one has a line whose questions share no word with its prompts. Moved by a line, 60 of
# all have more such lines than these.
_MOST_STRANGERS, _MOST_OF_LINES = 1, 1 / 10
_ADVICE = "name TIIF-Bench's data/test_prompts or data/testmini_prompts, next to test_eval_prompts and so on"


def read(folder: pathlib.Path) -> list[Prompt]:
    """The prompts, with their type as category. The content is type, length, questions and answers."""
    paths = sorted(folder.glob(f"*{_PROMPTS}.jsonl"))
    if not paths or not folder.name.endswith(_PROMPTS) or folder.name.endswith(_QUESTIONS):
        raise InputError(f"{folder} has no files <type>{_PROMPTS}.jsonl: {_ADVICE}")
    prompts = []
    for path in paths:
        kind = path.stem.removesuffix(_PROMPTS)
        other = folder.with_name(folder.name.removesuffix(_PROMPTS) + _QUESTIONS) / f"{kind}{_QUESTIONS}.jsonl"
        rows, entries = _rows(path, kind), _rows(other, kind)
        if len(rows) != len(entries):
            raise InputError(f"{path} has {len(rows):,} prompts, but {other} {len(entries):,} lines: {_ADVICE}")
        _check_belonging(path, other, [row for _, row in rows], [entry for _, entry in entries])
        for index, ((where, row), (place_of_entry, entry)) in enumerate(zip(rows, entries, strict=True)):
            questions = {"questions": entry.get("yn_question_list"), "answers": entry.get("yn_answer_list")}
            if problem := _problem(questions):
                raise InputError(f"{place_of_entry} {problem}: {_ADVICE}")
            for length in LENGTHS:
                text = row.get(f"{length}_description")
                if not isinstance(text, str):
                    raise InputError(f"{where} has no {length}_description: {_ADVICE}")
                content = {"type": kind, "length": length, **questions}
                prompts.append(make_prompt(where, text, id=f"{kind}-{index}-{length}", category=kind, content=content))
    return prompts


def has_questions(content: Any) -> bool:
    """Whether a prompt's content is TIIF-Bench's."""
    if not isinstance(content, dict) or not isinstance(content.get("type"), str):
        return False
    return content.get("length") in LENGTHS and _problem(content) is None


def _rows(path: pathlib.Path, kind: str) -> list[tuple[str, dict[str, Any]]]:
    """The objects of a file's lines, with their places in words."""
    rows = []
    for number, row in json_files.read_lines(path, _ADVICE):
        where = f"line {number} of {path}"
        if not isinstance(row, dict) or row.get("type") != kind:
            raise InputError(f"{where} is not of the type {kind}, as the file's name says: {_ADVICE}")
        rows.append((where, row))
    return rows


def _check_belonging(path: pathlib.Path, other: pathlib.Path, rows: Sequence[Any], entries: Sequence[Any]) -> None:
    """Refuses published files whose questions belong to other prompts. Warns where other files may be mixed up."""
    prompts = [[row.get(f"{length}_description") for length in LENGTHS] for row in rows]
    questions = [entry.get("yn_question_list") for entry in entries]
    if files.digest([prompts, questions]) == _SHIFTED:
        raise InputError(
            f"the questions in {other} belong to other prompts than those in {path}, as in commit 3aae750 of"
            " TIIF-Bench: take both files from commit d875cd8, in which its authors mended them",
            code="mismatched-parts",
        )
    words = [(_words(*texts), _words(questions)) for texts, questions in zip(prompts, questions, strict=True)]
    strangers = sum(
        bool(of_prompt and of_questions) and not of_prompt & of_questions for of_prompt, of_questions in words
    )
    if strangers > max(_MOST_STRANGERS, _MOST_OF_LINES * len(rows)):
        warnings.warn(
            f"{strangers:,} of the {len(rows):,} lines of {other} ask about nothing that the same line of {path} names:"
            " compare the two files, and take both from one commit of TIIF-Bench",
            stacklevel=2,
        )


def _words(*values: Any) -> set[str]:
    """The English words of texts and lists of texts, without endings and without those that any sentence may have."""
    return {word[:4] for word in re.findall("[a-z]{3,}", str(values).lower()) if word not in _COMMON_WORDS}


def _problem(content: dict[str, Any]) -> str | None:
    """The fault of questions and answers. None without any."""
    questions, answers = content.get("questions"), content.get("answers")
    if not isinstance(questions, list) or not questions or not isinstance(answers, list):
        return "has no yn_question_list and yn_answer_list"
    for question in questions:
        if not isinstance(question, str) or not question.strip():
            return f"has the question {options.quote(question)}, not a text"
    if len(questions) != len(answers):
        return f"has {len(questions)} questions, but {len(answers)} answers"
    for answer in answers:
        if not isinstance(answer, str) or answer.strip().lower() not in ("yes", "no"):
            return f"has the answer {options.quote(answer)}, not yes or no"
    return None
