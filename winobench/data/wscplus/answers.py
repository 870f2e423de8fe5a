"""Reads the option of a WSC+ question that an answer in free text states."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from winobench.base.texts import readable
from winobench.data import wscplus as data

_DIGIT = r"\W{0,6}(?:boxed\{\W*)?(?:(?:the\s+)?(?:index|number)\W+)?([012])\b(?!\.\d|\s*(?:or\b|/)\s*[012]\b)"
_IS = r"(?:\s+to\s+th(?:e|is)\s+question)?(?:\s+(?:is|was|would be|should be|must be))?"
_WORD = r"(?:answer|response|conclusion|decision|choice|result|assessment|verdict)"
_FINAL = re.compile(rf"\bfinal\s+{_WORD}{_IS}(?:{_DIGIT}|\W+(?P<words>[^\n]*))", re.I)
_MAJORITY = re.compile(rf"\bmajority(?:[\s\w]{{0,200}}?\bvote)?[^\n.;\d]{{0,60}}?{_DIGIT}", re.I)
_ANSWER = re.compile(rf"\b{_WORD}{_IS}{_DIGIT}", re.I)
_BOXED = re.compile(r"\\boxed\{\W*([012])\W*\}")
_LEADING = re.compile(
    r"\W*(?:A(?:nswer)?\s*:\W*)?([012])[*\])\"'`$]{0,3}\s*(?:[;,:]|\s[-\u2013\u2014]|\n|$|(?:because|since|as)\b)", re.I
)
_LEADING_DOT = re.compile(r"\W*(?:A(?:nswer)?\s*:\W*)?([012])[.)\]](?!\d)", re.I)
_LISTED = re.compile(r"^\W{0,100}\d[.)]\s", re.M)
# Models that were trained to continue texts continue with the next question, in the form of the prompts.
_NEXT_QUESTION = re.compile(r"(?<=\S)[^\S\n]*\n\s*Q\s*:")
_SEMICOLON = re.compile(r"(?:^|[\n.:])\W{0,4}([012])\s*;")
# What follows a name that is an answer by itself, and not the beginning of a sentence about it.
_NAME_END = re.compile(r"[\W_]*$|[\W_]*[.,;:!\n]|\s*[-\u2013\u2014(]|\s+(?:as|because|since)\b", re.I)
_UNDECIDED = re.compile(
    r"\b(?:neither|none of|ambig|unclear|undetermin|undecid|unsure|uncertain|insufficient|not enough"
    r"|(?:not|\w+n't)\s+(?:\w+\s+){0,2}(?:clear|sure|certain|know)"
    r"|(?:can\s?not|can't|could\s?not|couldn't|unable to|impossible to|not possible to|difficult to|no way to)"
    r"\s+(?:\w+\s+){0,4}?(?:determine|tell|know|say|decide|identify|specify|conclude|answer|choose|make|assist|help"
    r"|establish|infer|resolve|point)"
    r"|(?:could|may|might|can)\s+(?:\w+\s+){0,2}?refer to either|either (?:one|of them|option|could)"
    r"|refers? to both|both (?:of them|options|are possible))",
    re.I,
)


def parse_answer(text: str, options: Sequence[str], *, cut_off: bool = False) -> int | None:
    """The answer in a text: 0, 1 or 2, or None if missing.

    In this order: what the last ``Final Answer:`` names. The result of a majority vote. A boxed number. A number at the
    beginning (``0; ...``, ``A: 1``). The last ``answer is 1``. The last ``1;`` that begins a sentence. Without a
    number, words (behind ``Final Answer:``, or in the last line, or in the whole text): a candidate's name as an answer
    at the beginning. That nobody can tell (``neither``, ``ambiguous``, ``cannot be determined``, or a refusal, which
    the paper counts so). The one candidate that is named. Thoughts in ``<think>`` tags, and everything from a made-up
    next question on, are not part of the answer.
    """
    # Thoughts that were cut off hold no answer either.
    text = readable(text.rpartition("</think>")[2].partition("<think>")[0]).strip()
    text = _NEXT_QUESTION.split(text, maxsplit=1)[0]
    final = list(_FINAL.finditer(text))
    numbers = [match[1] for match in final if match[1] is not None]
    if numbers:
        return int(numbers[-1])
    if final and (choice := _in_words(final[-1]["words"], options)) is not None:
        return choice
    for find in (_last(_MAJORITY), _last(_BOXED), _at_start, _last(_ANSWER), _last(_SEMICOLON)):
        if (match := find(text)) is not None:
            return int(match[1])
    if cut_off:
        return None
    lines = [line for line in text.splitlines() if line.strip()]
    for part in (lines[-1], text) if lines else ():
        choice = _in_words(part, options)
        if choice is not None:
            return choice
    return None


def _last(pattern: re.Pattern[str]) -> Callable[[str], re.Match[str] | None]:
    def find(text: str) -> re.Match[str] | None:
        matches = list(pattern.finditer(text))
        return matches[-1] if matches else None

    return find


def _at_start(text: str) -> re.Match[str] | None:
    match = _LEADING.match(text)
    # A number with a full stop may begin a list of thoughts.
    return _LEADING_DOT.match(text) if match is None and len(_LISTED.findall(text)) < 2 else match


def _in_words(text: str, options: Sequence[str]) -> int | None:
    text = text.replace("\u2019", "'")
    patterns = []
    for option in options[:2]:
        name = re.sub(r"^(?:the|a|an)\s+", "", option.strip().lower())
        patterns.append(re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.I))
    # A name that is part of the other one must not be found in it.
    order = sorted((0, 1), key=lambda index: -len(options[index]))
    start = re.sub(r"^[\W_]*(?:A\s*:)?[\W_]*(?:(?:the|a|an)\s+)?", "", text, flags=re.I)
    for index in order:
        named_first = patterns[index].match(start)
        if named_first and _NAME_END.match(start, named_first.end()):
            return index
    if _UNDECIDED.search(text):
        return data.NEITHER
    named = set()
    for index in order:
        text, count = patterns[index].subn(" ", text)
        if count:
            named.add(index)
    return named.pop() if len(named) == 1 else None
