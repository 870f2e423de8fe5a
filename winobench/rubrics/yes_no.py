"""Yes/no questions about an image, answered by a judge in text or by probabilities."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from winobench.runs.requests import Response

WORDING = "{} Please answer yes or no."
"""For judges that would write something else when they read the question alone."""

_FIRST_WORD = re.compile(r"\W*(\w+)")


def read(text: str | None) -> bool | None:
    """Whether an answer begins with yes (True) or no (False). None for any other answer."""
    found = _FIRST_WORD.match(text or "")
    return {"yes": True, "no": False}.get(found[1].lower()) if found else None


def with_parents(
    answers: Mapping[int, bool], parents: Mapping[int, Sequence[int]], *, cascading: bool
) -> dict[int, bool]:
    """Answers, in which a question is wrong where one that it depends on is. 0 is not a question.

    With ``cascading``, questions that were made wrong make those after them wrong.
    """
    found = dict(answers)
    for number, needed in parents.items():
        known = found if cascading else answers
        if any(parent and not known[parent] for parent in needed):
            found[number] = False
    return found


def is_yes(response: Response) -> bool:
    """Whether a response is yes: by its text, or as the likelier of the two options yes and no."""
    if response.scores is not None:
        return response.scores[0] > response.scores[1]
    return read(response.text) is True


def share_of_yes(response: Response) -> float:
    """P(yes) / (P(yes) + P(no)) of a response to the options yes and no, in this order."""
    yes, no = response.scores
    return 1 / (1 + math.exp(min(no - yes, 700)))
