"""TIIF-Bench's written words: how far they are from those that a judge reads (GNED), and how many are found (recall).

Compared with A113N-W3I/TIIF-Bench 3aae750 (no licence there), eval/cal_gned_and_recall_models.py:

- The wanted words are in the questions of the type text, "Is the text '...' in the image?". For all published prompts
  they are the quoted words of the short prompt. All words are in small letters.
- The lines that are read split at each blank. An image without words has one empty word.
- ``gned`` pairs wanted words and those that are read so that the sum of their normalised edit distances is least. Each
  word more on one side adds 1. The sum is divided by the larger number of words. Lower is better.
- ``recall`` is the share of wanted words for which a word that is left has a distance of at most 0.3, in order.
- The published judge is an OCR engine. Another judge reads our question, and its answers are read in all forms.
  ``unread`` has the share of answers that are empty or refuse. They count as images without words.
- Images that are missing count nowhere. Short and long prompts have no common number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from winobench.contrib.benchmarks.prompts import tiif
from winobench.contrib.benchmarks.rubrics import words
from winobench.prompts.prompt_files import Prompt
from winobench.rubrics.base import Rubric, Score, named, unread
from winobench.runs.requests import ImageText, InputImage, Request, Response

_TYPE = "text"
_QUESTION = re.compile(r"Is the text '(.+)' in the image\?")
_NEAR = 0.3
_MAX_TOKENS = 512


def _wanted(prompt: Prompt) -> list[str]:
    """The wanted words. Empty where a question is about something else."""
    content = prompt.content
    if not tiif.has_questions(content) or content["type"] != _TYPE:
        return []
    matches = [_QUESTION.fullmatch(question.strip()) for question in content["questions"]]
    return [match[1].lower() for match in matches if match] if all(matches) else []


def _requests(prompt: Prompt, image: InputImage, kind: str) -> Iterator[Request]:
    yield ImageText(image, words.COPY_LINES, max_tokens=_MAX_TOKENS)


def _scores(prompt: Prompt, responses: Sequence[Response], kind: str, published: bool = True) -> Iterator[Score]:
    wanted, length = _wanted(prompt), prompt.content["length"]
    text, is_answer = words.read(responses[0], " ".join(wanted), published)
    lines = [line for line in text.lower().splitlines() if line] or [""]
    distances = _distances(wanted, [word for line in lines for word in line.split(" ")])
    yield Score("gned", length, _group_distance(distances))
    yield Score("recall", length, _recall(distances))
    yield from unread([is_answer or None], responses)


def _distances(wanted: Sequence[str], others: Sequence[str]) -> np.ndarray:
    """[wanted, others]: edit distances, each divided by the longer word's length."""
    known = {pair: _distance(*pair) for pair in {(word, other) for word in wanted for other in others}}
    return np.array([[known[word, other] for other in others] for word in wanted])


def _distance(word: str, other: str) -> float:
    return words.edit_distance(word, other) / max(len(word), len(other), 1)


def _group_distance(distances: np.ndarray) -> float:
    import scipy.optimize  # late: listings and help need none of it

    number_wanted, number_read = distances.shape
    matched = distances.T[scipy.optimize.linear_sum_assignment(distances.T)].sum()
    return float(matched + abs(number_read - number_wanted)) / max(distances.shape)


def _recall(distances: np.ndarray) -> float:
    left = np.ones(distances.shape[1], bool)
    for row in distances:
        near = np.flatnonzero(left & (row <= _NEAR))
        left[near[:1]] = False
    return float(np.sum(~left)) / len(distances)


RUBRICS = (
    Rubric(
        name="tiif_text",
        version=1,
        description="TIIF-Bench's written words: GNED and recall, by length",
        source="Wei et al. 2025, arXiv:2506.02161, code github.com/A113N-W3I/TIIF-Bench 3aae750",
        judge=words.OCR_ENGINE,
        is_published=named(words.OCR_ENGINE.lower()),
        kinds=(ImageText.kind,),
        wordings={ImageText.kind: (words.COPY_LINES,)},
        fits=lambda prompt: bool(_wanted(prompt)),
        requests=_requests,
        scores=_scores,
    ),
)
