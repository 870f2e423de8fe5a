"""Questions about images: the votes on each image, and the decision of the majority."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report.cards import image_address
from winobench.report.sections.questions import text_of
from winobench.report.sections.shared import Details, IllustratedQuestion, ReportData, Section, Vote, most_first
from winobench.report.wording import DASH
from winobench.runs.examples import Questions
from winobench.runs.labels import shortened, task_label

_SIDE = 128  # pixels
_LETTERS = 160
_Answered = tuple[int, Questions, int]  # number of a run, its questions, and the row of one of them


def illustrated_section(report_data: ReportData) -> Section | None:
    """Some questions with their images, captions and votes, and a row an image and run in a CSV file."""
    section = Section(
        "pictured",
        "What was seen in images",
        [
            "Images were generated for a sentence. The model answered a question about each image, and the option with "
            "most votes is its answer. Below each image is its vote, with the caption that the model read or its words "
            f"on the image. {DASH} is a tie, or a vote that could not be read. The questions that most runs have wrong "
            "come first, then others. All have small images. The file next to this page has all questions."
        ],
    )
    lines: list[dict[str, Any]] = []
    for task in report_data.tasks:
        questions = _asked(report_data, task)
        if not questions:
            continue
        lines += [line for rows in questions.values() for line in _lines(report_data, task, rows)]
        if not report_data.examples:
            continue
        images = report_data.images(task)
        shown = _chosen(list(questions.values()), images, report_data)
        cards = [_card(rows, images) for rows in shown]
        title = f"{task_label(task)} ({len(cards)} of {len(questions):,} questions)"
        section.folds.append(Details(title, questions=cards, is_open=not section.folds))
    if not lines:
        return None
    section.records["pictures.csv"] = lines
    return section


def _asked(report_data: ReportData, task: str) -> dict[tuple, list[_Answered]]:
    """Key of a question -> where runs have answered it about images."""
    by_key: dict[tuple, list[_Answered]] = {}
    for number, record in enumerate(report_data.records(task)):
        questions = None if record is None else record.examples
        if isinstance(questions, Questions):
            for row, images in enumerate(questions.question_images):
                if images:
                    by_key.setdefault(questions.key(row), []).append((number, questions, row))
    return by_key


def _chosen(
    questions: Sequence[list[_Answered]], images: Mapping[str, bytes], report_data: ReportData
) -> list[list[_Answered]]:
    kept = [
        rows
        for rows in questions
        if any(sha in images for _, record, row in rows for sha in record.question_images[row])
    ]
    kept = kept or list(questions)
    wrong = np.array([sum(not record.correct[row] for _, record, row in rows) for rows in kept])
    return [kept[index] for index in most_first(wrong, report_data.seed)[: report_data.examples]]


def _card(rows: Sequence[_Answered], images: Mapping[str, bytes]) -> IllustratedQuestion:
    _, first, row = rows[0]
    seen = list(dict.fromkeys(sha for _, questions, row in rows for sha in questions.question_images[row]))
    votes: dict[str, list[Vote]] = {sha: [] for sha in seen}
    for number, questions, question in rows:
        for index, sha in enumerate(questions.question_images[question]):
            votes[sha].append(_vote(number, questions, question, index))
    answers = []
    for number, questions, question in rows:
        choice = questions.choices[question]
        count = sum(order == choice for order in questions.orders[question])
        support = "" if choice is None else f"with {count} of {len(questions.question_images[question])} images"
        text = "no answer" if choice is None else questions.options[question][choice]
        answers.append(Vote(number, text, bool(questions.correct[question]), support))
    return IllustratedQuestion(
        id=first.ids[row],
        text=text_of(first.named[row]),
        options=first.options[row],
        right=first.targets[row],
        images=[(image_address(images[sha], _SIDE) if sha in images else None, votes[sha]) for sha in seen],
        answers=answers,
        is_correct=all(answer.is_right for answer in answers),
    )


def _vote(number: int, questions: Questions, row: int, index: int) -> Vote:
    choice, words = _choice(questions, row, index), _said(questions, row, index)
    text = DASH if choice is None else str(choice + 1)
    return Vote(number, text, choice == questions.targets[row], shortened(words, _LETTERS))


def _choice(questions: Questions, row: int, index: int) -> int | None:
    return questions.orders[row][index] if index < len(questions.orders[row]) else None


def _said(questions: Questions, row: int, index: int) -> str:
    """The caption that was read, or else the text about the image."""
    texts = questions.captions[row] or questions.responses[row]
    return " ".join((texts[index] or "").split()) if index < len(texts) else ""


def _lines(report_data: ReportData, task: str, rows: Sequence[_Answered]) -> Iterator[dict[str, Any]]:
    for number, questions, row in rows:
        for index, sha in enumerate(questions.question_images[row]):
            choice = _choice(questions, row, index)
            captions, responses = questions.captions[row], questions.responses[row]
            yield {
                "run": report_data.runs[number].label,
                "task": task,
                "id": questions.ids[row],
                "picture": sha,
                "caption": captions[index] if captions else "",
                "response": (responses[index] or "") if index < len(responses) else "",
                "vote": "" if choice is None else questions.options[row][choice],
                "right": questions.right(row),
                "correct": bool(questions.correct[row]),
            }
