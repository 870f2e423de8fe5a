"""Words that a judge reads in an image: the questions, the readings, and how near a reading is to the right words.

A vision-language model answers a question. So does an OCR model behind a server, which may ignore it.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Iterator, Sequence

import numpy as np

from winobench.base import answer_texts
from winobench.rubrics.base import Score
from winobench.runs.requests import Response

COPY = """Recognize the text in the image, only reply with the text content, but avoid repeating previously mentioned \
content. If no text is recognized, please reply with 'No text recognized'."""
"""The question of LongText-Bench and OneIG-Bench."""

COPY_LINES = """Copy all text in this image as it is written, one line for each line of text, and write nothing else. \
If it has no text, write 'No text recognized'."""
"""Our question where the published judge is an OCR engine, which reads none."""

OCR_ENGINE = "PaddleOCR"

_ACCENTS = "àâäéèêëîïôöùûüç"
_NO_LETTERS = re.compile(rf"[^\u4e00-\u9fa5a-zA-Z0-9\s{_ACCENTS}{_ACCENTS.upper()}]")
_CHINESE = re.compile("[\u4e00-\u9fff]")
_TOKENS = re.compile(r"[\u4e00-\u9fff]|[^\W\u4e00-\u9fff]+")


def has_chinese(text: str) -> bool:
    """Whether a text has a Chinese character."""
    return _CHINESE.search(text) is not None


def letters(text: str) -> str:
    """A text without all but Chinese characters, Latin letters with French accents, digits and blanks."""
    return _NO_LETTERS.sub("", text)


def read(response: Response, wanted: str, published: bool) -> tuple[str, bool]:
    """The words in a response, and whether it is an answer: neither empty nor a refusal.

    The published judge is read as it stands. A refusal of another judge has no words. A text whose words are mostly
    wanted is not a refusal.
    """
    text = response.text or ""
    tokens, known = (_TOKENS.findall(some.casefold()) for some in (text, wanted))
    refused = answer_texts.refuses(text) and 2 * sum(map(set(known).__contains__, tokens)) <= len(tokens)
    is_answer = bool(text.strip()) and not refused
    if published:
        return text, is_answer
    return ("" if refused else answer_texts.copied(text)), is_answer


def without(text: str, phrases: Sequence[str]) -> str:
    """A text without phrases that judges write about an image without text."""
    for phrase in phrases:
        for written in (phrase, f"\n{phrase}", f"{phrase}\n"):
            text = text.replace(written, "")
    return text


def shared(wanted: Sequence[str], words: Sequence[str]) -> int:
    """How many of the wanted words are among others, of which each counts once."""
    return (collections.Counter(wanted) & collections.Counter(words)).total()


def shares(metric: str, groups: Sequence[str], right: int, number: int) -> Iterator[Score]:
    """A score for each of some words, so that the mean over images is a share of all words."""
    for group in groups:
        for place in range(number):
            yield Score(metric, group, float(place < right))


def edit_distance(first: str, second: str) -> int:
    """The least number of letters to add, remove or replace, so that one text becomes the other (Levenshtein 1966)."""
    shorter, longer = sorted((first, second), key=len)
    codes, steps = np.array([*map(ord, longer)], np.int64), np.arange(len(longer) + 1)
    row = steps
    for number, letter in enumerate(shorter, 1):
        replaced = row[:-1] + (codes != ord(letter))
        best = np.concatenate(([number], np.minimum(replaced, row[1:] + 1)))
        row = np.minimum.accumulate(best - steps) + steps  # letters that are added
    return int(row[-1])
