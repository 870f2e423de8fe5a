"""Questions with answers to choose from, for a model that writes, and which one it has chosen.

Log-likelihoods come from the most likely first tokens, or are logarithms of shares of votes at temperature 1.
"""

from __future__ import annotations

import itertools
import math
import re
import string
from collections.abc import Sequence

from winobench.base import answer_texts
from winobench.base.errors import InputError
from winobench.runs.requests import PictureOptions

CAPTION = "Describe this image in one short sentence."
"""The question in place of an empty one."""

# Log-likelihood of what no vote was for, or is known to be less likely than anything: a finite number, near -20.7.
_LEAST = math.log(1e-9)


def put(request: PictureOptions) -> tuple[str, tuple[str, ...]]:
    """The question as it is sent, and the mark of each option in an answer.

    It is sent as it is where one of its sentences has all options behind "answer" or "output", or where it asks for the
    letter of options that are letters. Otherwise the options are named behind it, with letters where first words are
    the same.
    """
    options = request.options
    if not 2 <= len({_normal(option) for option in options} - {""}) == len(options) <= len(string.ascii_uppercase):
        raise InputError(
            f"a question has the options {', '.join(map(repr, options))[:200]}: give 2 to"
            f" {len(string.ascii_uppercase)} different ones",
            code="bad-options",
        )
    if _names(request.question, options):
        return request.question, options
    words = [_normal(option).split()[0] for option in options]
    if len(set(words)) < len(words):
        letters = tuple(string.ascii_uppercase[: len(options)])
        listed = "\n".join(f"{letter}) {option}" for letter, option in zip(letters, options, strict=True))
        return f"{request.question}\n{listed}\nAnswer with one letter and nothing else.", letters
    return f"{request.question}\nAnswer with one of these and nothing else: {'; '.join(options)}.", options


def _names(question: str, options: Sequence[str]) -> bool:
    """Whether a question says that one of the options is to be the answer."""
    if all(len(option) == 1 for option in options) and re.search(r"\bletter\b", question, re.IGNORECASE):
        return True
    for sentence in re.split(r"[.?!\n]", question):
        _, asks, behind = re.sub(r"\boutput\b", "answer", _normal(sentence)).partition("answer")
        if asks and all(re.search(rf"\b{re.escape(_normal(option))}\b", behind) for option in options):
            return True
    return False


def beginning(marks: Sequence[str]) -> str:
    """What all marks begin with, and what no token of an answer can distinguish."""
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*map(_normal, marks), strict=False))
    return "".join(letters[0] for letters in alike)


def from_tokens(tokens: Sequence[tuple[str, Sequence[tuple[str, float]]]], marks: Sequence[str]) -> tuple[float, ...]:
    """Log-likelihoods of answers: `from_likely` of the first token that follows the marks' common beginning."""
    written = ""
    for token, likely in tokens:
        here = [(written + other, value) for other, value in likely]
        if not beginning(marks) or any(_begun(text, marks) is not None for text, _ in here):
            return from_likely(here, marks)
        written += token
    return (_LEAST,) * len(marks)


def from_likely(likely: Sequence[tuple[str, float]], marks: Sequence[str]) -> tuple[float, ...]:
    """Log-likelihoods of answers, from the most likely tokens.

    The probabilities of all tokens that begin one answer alone are added up. An answer that none begins gets the most
    that it can have: the least listed probability, or what all of them leave, whichever is less.
    """
    listed = [(token, min(0.0, value)) for token, value in likely if value > -1000]  # -9999 means "less likely"
    found = [0.0] * len(marks)
    for token, value in listed:
        number = _begun(token, marks)
        if number is not None:
            found[number] += math.exp(value)
    left = max(1.0 - sum(math.exp(value) for _, value in listed), 0.0)
    most = min([left, *(math.exp(value) for _, value in listed)])
    return tuple(_log(min(share, 1.0) or most) for share in found)


def from_votes(texts: Sequence[str | None], marks: Sequence[str]) -> tuple[float, ...]:
    """Logarithms of the shares of votes. A text that gives no answer, such as a refusal, is a vote for none."""
    given = [answer_texts.mark(text, marks) for text in texts]
    return tuple(_log(given.count(number) / len(given)) for number in range(len(marks)))


def _begun(token: str, marks: Sequence[str]) -> int | None:
    """The number of the mark that a token is, or is the beginning of if no other mark begins so."""
    number = answer_texts.mark(token, marks)
    if number is not None:
        return number
    text = re.sub(r"^[\W_]+", "", _normal(token))
    begun = [number for number, mark in enumerate(marks) if text and _normal(mark).startswith(text)]
    return begun[0] if len(begun) == 1 else None


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())


def _log(share: float) -> float:
    return max(math.log(share), _LEAST) if share > 0 else _LEAST
