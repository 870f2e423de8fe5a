"""Yes/no questions about an image, answered by a judge in text or by probabilities."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from winobench.base import answer_texts
from winobench.rubrics.base import scores_of
from winobench.runs.requests import Response

WORDING = "{} Please answer yes or no."
"""For judges that would write something else when they read the question alone."""


def with_parents(
    answers: Mapping[int, bool], parents: Mapping[int, Sequence[int]], *, cascading: bool
) -> dict[int, bool]:
    """Answers, in which a question is wrong where one that it depends on is. 0 is not a question.

    With ``cascading``, questions that were made wrong make those after them wrong.
    """
    combined = dict(answers)
    for number, needed in parents.items():
        known = combined if cascading else answers
        if any(parent and not known[parent] for parent in needed):
            combined[number] = False
    return combined


def read(response: Response) -> bool | None:
    """Whether a response is yes: by its text, or as the likelier of the options yes and no. None for neither."""
    if response.scores is None:
        return answer_texts.yes_no(response.text)
    return response.scores[0] > response.scores[1] if is_read(response) else None


def is_read(response: Response) -> bool:
    """Whether most of what a model may answer is one of the options. True where the scores do not tell."""
    return response.unlisted is None or math.fsum(map(math.exp, scores_of(response))) >= 0.5


def share_of_yes(response: Response) -> float:
    """P(yes) / (P(yes) + P(no)) of a response to the options yes and no. P(yes) where it is a share of all answers."""
    yes, no = scores_of(response)
    return 1 / (1 + math.exp(min(no - yes, 700))) if response.unlisted is None else math.exp(yes)
