"""One answer of several: the option that most of them choose."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np

from winobench.runs.requests import ANSWERED, FAILED, UNPARSABLE, Response
from winobench.tasks.questions import Answer


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
    scores = None
    if all(vote.scores is not None for vote in votes):
        scores = tuple(np.mean([vote.scores for vote in votes], axis=0).tolist())
    counts = collections.Counter(choice for choice in choices if choice is not None)
    if not counts and scores is None:
        return Answer(UNPARSABLE, choices=choices)
    leading = sorted(option for option, count in counts.items() if count == max(counts.values()))
    leading = leading or list(range(len(scores)))
    if len(leading) > 1 and scores is not None:
        leading = [option for option in leading if scores[option] == max(scores[each] for each in leading)]
    return Answer(ANSWERED, leading[0], choices, scores, tie=len(leading) > 1)
