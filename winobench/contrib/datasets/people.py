"""Parts that tasks on people's ratings share.

The score that is ranked is, for a diffusion model, minus the error under the prompt less the error under the empty
text: an estimate of their pointwise mutual information up to a factor (Krojer et al. 2023, Eq. 5). The error alone
would rank images by how plain they are. Some prompts help more than others with any images: measures
``within_prompt_*`` do not depend on it, and ``normalize=gray_image`` removes it. Other scores are ranked as they are.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Collection
from typing import Any

from winobench.tasks.annotations import Entry


def answer(entry: Entry, low: int, high: int) -> int:
    """A whole number on a scale, also one that a table states as text, as ``4`` or ``4.0``."""
    value: Any = entry.value
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.0*)?", value.strip()):
        value = int(float(value))
    if isinstance(value, bool) or not isinstance(value, int):
        raise entry.wrong("is not a whole number", "not-a-number")
    if not low <= value <= high:
        raise entry.wrong(f"is {value}, which is not from {low} to {high}", "out-of-range")
    return value


def mean_answer(answers: Entry, low: int, high: int, *, misprints: Collection[int] = ()) -> float:
    """The mean of a list of answers, which are of several people, without misprints that were published."""
    given = [answer(row, low, high) for row in answers.rows() if row.value not in misprints]
    if not given:
        raise answers.wrong("has no answer by people", "missing-answer")
    return float(statistics.mean(given))
