"""Questions about images: the votes on each image, and the decision of the majority."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report.cards import picture_address
from winobench.report.sections.questions import text_of
from winobench.report.sections.shared import Details, PicturedQuestion, ReportData, Section, Vote, most_first
from winobench.report.wording import DASH
from winobench.runs.examples import Questions
from winobench.runs.labels import shortened, task_label

_SIDE = 128  # pixels
_LETTERS = 160
_Place = tuple[int, Questions, int]  # number of a run, its questions, and the row of one of them


def pictured_section(report_data: ReportData) -> Section | None:
    """Some questions with their images, captions and votes, and a row an image and run in a CSV file."""
    section = Section(
        "pictured",
        "What was seen in images",
        [
            "Images were generated of a sentence, and each was asked about by itself. The option that most of them are "
            "for is the answer. Below each image stands its vote, with the caption that was read or what was written "
            f"about it; {DASH} is a vote that could not be read, or a tie. Shown are questions that most runs have "
            "wrong, and after them others, of those that runs keep small images of. All are in the file next to this "
            "page."
        ],
    )
    lines: list[dict[str, Any]] = []
    for task in report_data.tasks:
        asked = _asked(report_data, task)
        if not asked:
            continue
        lines += [line for places in asked.values() for line in _lines(report_data, task, places)]
        if not report_data.examples:
            continue
        pictures = report_data.pictures(task)
        shown = _chosen(list(asked.values()), pictures, report_data)
        cards = [_card(places, pictures) for places in shown]
        title = f"{task_label(task)} ({len(cards)} of {len(asked):,} questions)"
        section.folds.append(Details(title, questions=cards, is_open=not section.folds))
    if not lines:
        return None
    section.records["pictures.csv"] = lines
    return section


def _asked(report_data: ReportData, task: str) -> dict[tuple, list[_Place]]:
    """Key of a question -> the places where runs have answered it about images."""
    found: dict[tuple, list[_Place]] = {}
    for number, record in enumerate(report_data.records(task)):
        some = None if record is None else record.examples
        if isinstance(some, Questions):
            for row, pictures in enumerate(some.pictures):
                if pictures:
                    found.setdefault(some.key(row), []).append((number, some, row))
    return found


def _chosen(
    asked: Sequence[list[_Place]], pictures: Mapping[str, bytes], report_data: ReportData
) -> list[list[_Place]]:
    kept = [places for places in asked if any(sha in pictures for _, some, row in places for sha in some.pictures[row])]
    kept = kept or list(asked)
    wrong = np.array([sum(not some.correct[row] for _, some, row in places) for places in kept])
    return [kept[place] for place in most_first(wrong, report_data.seed)[: report_data.examples]]


def _card(places: Sequence[_Place], pictures: Mapping[str, bytes]) -> PicturedQuestion:
    _, first, row = places[0]
    seen = list(dict.fromkeys(sha for _, some, row in places for sha in some.pictures[row]))
    votes: dict[str, list[Vote]] = {sha: [] for sha in seen}
    for number, some, each in places:
        for place, sha in enumerate(some.pictures[each]):
            votes[sha].append(_vote(number, some, each, place))
    answers = []
    for number, some, each in places:
        choice = some.choices[each]
        count = sum(one == choice for one in some.orders[each])
        said = "" if choice is None else f"with {count} of {len(some.pictures[each])} images"
        text = "no answer" if choice is None else some.options[each][choice]
        answers.append(Vote(number, text, bool(some.correct[each]), said))
    return PicturedQuestion(
        id=first.ids[row],
        text=text_of(first.named[row]),
        options=first.options[row],
        right=first.targets[row],
        pictures=[(picture_address(pictures[sha], _SIDE) if sha in pictures else None, votes[sha]) for sha in seen],
        answers=answers,
        is_correct=all(answer.is_right for answer in answers),
    )


def _vote(number: int, some: Questions, row: int, place: int) -> Vote:
    choice, said = _choice(some, row, place), _said(some, row, place)
    text = DASH if choice is None else str(choice + 1)
    return Vote(number, text, choice == some.targets[row], shortened(said, _LETTERS))


def _choice(some: Questions, row: int, place: int) -> int | None:
    return some.orders[row][place] if place < len(some.orders[row]) else None


def _said(some: Questions, row: int, place: int) -> str:
    """The caption that was read, or else the text about the image."""
    said = some.captions[row] or some.responses[row]
    return " ".join((said[place] or "").split()) if place < len(said) else ""


def _lines(report_data: ReportData, task: str, places: Sequence[_Place]) -> Iterator[dict[str, Any]]:
    for number, some, row in places:
        for place, sha in enumerate(some.pictures[row]):
            choice, captions, responses = _choice(some, row, place), some.captions[row], some.responses[row]
            yield {
                "run": report_data.runs[number].label,
                "task": task,
                "id": some.ids[row],
                "picture": sha,
                "caption": captions[place] if captions else "",
                "response": (responses[place] or "") if place < len(responses) else "",
                "vote": "" if choice is None else some.options[row][choice],
                "right": some.options[row][some.targets[row]],
                "correct": bool(some.correct[row]),
            }
