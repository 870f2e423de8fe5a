"""Questions with answers to choose from, for a model that writes, and which one it has chosen.

Log-probabilities come from the most likely first tokens, or are logarithms of shares of votes at temperature 1. They
are shares of all that the model may answer, so that a refusal leaves nothing for the options.
"""

from __future__ import annotations

import itertools
import math
import re
import string
from collections.abc import Sequence

from winobench.base import answer_texts
from winobench.base.errors import InputError
from winobench.runs.requests import ImageOptions

CAPTION = "Describe this image in one short sentence."
"""The question for a request without one."""

LEAST = math.log(1e-9)
"""Log-probability of an answer that no vote was for, or that no listed token begins."""
Place = tuple[str, Sequence[tuple[str, float]]]
"""A token of an answer, and the likeliest ones in its place with their log-probabilities."""


def put(request: ImageOptions) -> tuple[str, tuple[str, ...]]:
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
    """The common beginning of all marks, in which no token distinguishes them."""
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*map(_normal, marks), strict=False))
    return "".join(letters[0] for letters in alike)


def from_tokens(tokens: Sequence[Place], marks: Sequence[str]) -> tuple[tuple[float, ...], float]:
    """Log-probabilities of answers: `from_likely` of the first token that follows the marks' common beginning."""
    written = ""
    for token, likely in tokens:
        here = [(written + other, value) for other, value in likely]
        if not beginning(marks) or any(_begun(text, marks) is not None for text, _ in here):
            return from_likely(here, marks)
        written += token
    return (LEAST,) * len(marks), 0.0


def from_likely(likely: Sequence[tuple[str, float]], marks: Sequence[str]) -> tuple[tuple[float, ...], float]:
    """Log-probabilities of answers among all, and the share of unknown answers.

    The probabilities of all tokens that begin one answer alone are added up. Shares of tokens that are
    not listed, and of text after signs and white space, are unknown.
    """
    listed = [(token, math.exp(min(0.0, value))) for token, value in likely]
    shares, unknown = [0.0] * len(marks), max(0.0, 1.0 - math.fsum(share for _, share in listed))
    for token, share in listed:
        number = _begun(token, marks)
        if number is not None:
            shares[number] += share
        elif not re.search(r"\w", token):
            unknown += share
    return tuple(_log(min(share, 1.0)) for share in shares), min(unknown, 1.0)


def from_starts(tokens: Sequence[Place], starts: Sequence[str]) -> tuple[float, float]:
    """Log-probability that an answer starts like a spelling, and the share of unknown answers.

    A token counts that is a spelling, or the beginning of a word. A tokenizer may cut 10 into digits.
    """
    spelled = {start.strip() for start in starts}
    total, unknown = 0.0, 1.0
    (first, likely), *others = tokens
    listed = [(token.strip(), math.exp(min(0.0, value))) for token, value in likely]
    for token, share in listed:
        begins = len(token) > 1 and token.isalpha() and any(word.startswith(token) for word in spelled)
        more = [word[len(token) :] for word in spelled if token.isdigit() and word != token and word.startswith(token)]
        if token in spelled or begins:
            total += share
        elif more and first.strip() == token and others:
            total += share * math.fsum(math.exp(value) for digit, value in others[0][1] if digit in more)
        elif more:
            continue
        unknown -= share
    return _log(min(total, 1.0)), min(max(unknown, 0.0), 1.0)


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
    return max(math.log(share), LEAST) if share > 0 else LEAST
