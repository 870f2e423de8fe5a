"""Judgements on answers: right or wrong, whole pairs, and one answer of several."""

from __future__ import annotations

import collections
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from winobench.metrics.intervals import Interval
from winobench.runs.requests import ANSWERED, FAILED, UNPARSABLE, Response
from winobench.tasks.questions import Answer, TextQuestion

Asked = tuple[TextQuestion, Answer]


def is_right(question: TextQuestion, answer: Answer) -> bool:
    """True for a right answer. A tie is wrong, as is an answer that cannot be read."""
    return answer.status == ANSWERED and answer.choice == question.answer and not answer.tie


def counted(questions: Sequence[TextQuestion], answers: Sequence[Answer]) -> list[Asked]:
    """The questions whose calls have not failed, with their answers."""
    return [both for both in zip(questions, answers, strict=True) if both[1].status != FAILED]


def whole_pairs(judged: Iterable[Asked]) -> list[list[Asked]]:
    """The pairs that are there with both questions."""
    members: dict[str, list[Asked]] = {}
    for question, answer in judged:
        if question.pair is not None:
            members.setdefault(question.pair, []).append((question, answer))
    return [pair for pair in members.values() if len(pair) == 2]


def entry(
    interval: Interval, chance: float | None, n: int, ties: int = 0, *, clusters: Iterable[Hashable] = ()
) -> dict[str, Any]:
    """A row of a task's metrics. Equal ``clusters`` mark the questions that depend on each other."""
    independent = {"independent": number} if (number := len(set(clusters))) else {}
    ends = {key: float(value) for key, value in interval._asdict().items()}
    return {**ends, "chance": chance, "n": n, **independent, "ties": ties}


def best(response: Response) -> Answer:
    """The option with the highest score, the first of several. A tie where there are several."""
    scores = response.scores
    if scores is None:  # an incomplete answer
        return Answer(UNPARSABLE)
    choice = scores.index(max(scores))
    return Answer(ANSWERED, choice, scores=scores, tie=scores.count(scores[choice]) > 1)


def majority(votes: Sequence[Answer]) -> Answer:
    """The answer that most votes are for.

    A vote that is a tie, or from which no choice could be read, abstains. Where two options have equally many votes,
    the one with the higher mean score over all votes is chosen. Without scores, or with equal ones, it is a tie.
    """
    if any(vote.status == FAILED for vote in votes):
        return Answer(FAILED)
    choices = tuple(vote.choice if vote.status == ANSWERED and not vote.tie else None for vote in votes)
    of_votes = [vote.scores for vote in votes if vote.scores is not None]
    scores = tuple(np.mean(of_votes, axis=0).tolist()) if len(of_votes) == len(votes) else None
    counts = collections.Counter(choice for choice in choices if choice is not None)
    if not counts and scores is None:
        return Answer(UNPARSABLE, choices=choices)
    leading = sorted(option for option, count in counts.items() if count == max(counts.values()))
    if not leading and scores is not None:
        leading = list(range(len(scores)))
    if len(leading) > 1 and scores is not None:
        leading = [option for option in leading if scores[option] == max(scores[other] for other in leading)]
    return Answer(ANSWERED, leading[0], choices, scores, tie=len(leading) > 1)
