"""Checks that need no person: annotators do not see items that break a visible rule, or that exist already.

The rules come from the paper's queries (Table 8) and section 2. They refuse 6.5% of the 2,069 published pairs and
questions, most of them because the sentences of a pair differ by more words than "one or two". Near-duplicates are 8%.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Sequence

from rapidfuzz import fuzz, process

from winobench.contrib.people.wscplus_items.items import NEITHER, TRADITIONAL, Item, Sentence, normalised, words

NOT_A_PRONOUN = "not a pronoun"
NO_PRONOUN = "pronoun not in the sentence"
SAME_CANDIDATES = "candidates are the same"
NO_CANDIDATE = "candidate not named"
SAME_SENTENCES = "sentences are the same"
DIFFERENT_PRONOUNS = "pronouns differ"
DIFFERENT_CANDIDATES = "candidates differ"
TOO_DIFFERENT = "sentences differ by too many words"
NO_FLIP = "answers are the same"
NEITHER_ANSWER = "answer is neither"
DECIDED = "answer is a candidate"
DUPLICATE = "duplicate"
NEAR_DUPLICATE = "near-duplicate"

MAX_CHANGED_WORDS = 5  # 89% of the published pairs differ in so many words or fewer
SIMILARITY = 90.0  # percent of two sentences' letters that are the same in near-duplicates

# fmt: off
PRONOUNS = frozenset({
    "he", "him", "his", "himself", "she", "her", "hers", "herself", "it", "its", "itself", "they", "them", "their",
    "theirs", "themselves", "who", "whom", "whose", "one of them", "the other", "each other",
})

# Words of a candidate that a sentence need not repeat.
_SMALL_WORDS = frozenset({
    "the", "a", "an", "his", "her", "their", "its", "my", "our", "your", "of", "in", "on", "at", "from", "with", "by",
    "to", "for", "and", "who", "is", "was", "are", "were", "that",
})
# fmt: on
# "Joan's idol" is named by "her idol", and "two cats" by "one cat": beginnings of words decide.
_STEM_LETTERS = 4


@dataclasses.dataclass(frozen=True)
class Rejection:
    """Why an item is refused."""

    reason: str  # one of this module's, to be counted
    detail: str  # the part that breaks the rule


def check(
    items: Iterable[Item],
    known: Iterable[str],
    *,
    max_changed_words: int = MAX_CHANGED_WORDS,
    similarity: float = SIMILARITY,
) -> list[Rejection | None]:
    """Checks items one by one and against each other. The first of several that are alike stays."""
    existing = Known(known, similarity)
    verdicts = []
    for item in items:
        verdict = check_item(item, max_changed_words) or existing.check(item)
        if verdict is None:
            existing.add(item)
        verdicts.append(verdict)
    return verdicts


def check_item(item: Item, max_changed_words: int = MAX_CHANGED_WORDS) -> Rejection | None:
    """The first rule that an item breaks by itself, or None."""
    for sentence in item.sentences:
        rejection = _check_sentence(sentence)
        if rejection is not None:
            return rejection
        if item.origin.type == TRADITIONAL and sentence.answer == NEITHER:
            return Rejection(NEITHER_ANSWER, sentence.statement)
        if item.origin.type != TRADITIONAL and sentence.answer != NEITHER:
            return Rejection(DECIDED, f"{sentence.options[sentence.answer]}: {sentence.statement}")
    return _check_pair(*item.sentences, max_changed_words) if len(item.sentences) == 2 else None


def _check_sentence(sentence: Sentence) -> Rejection | None:
    pronoun = normalised(sentence.pronoun)
    if pronoun not in PRONOUNS:
        return Rejection(NOT_A_PRONOUN, sentence.pronoun)
    statement = f" {normalised(sentence.statement)} "
    # As its own word: "he" is not in "the"; "he's" holds it.
    if not re.search(rf" {pronoun}(?:'\w+)? ", statement):
        return Rejection(NO_PRONOUN, f"{sentence.pronoun}: {sentence.statement}")
    if _name(sentence.options[0]) == _name(sentence.options[1]):
        return Rejection(SAME_CANDIDATES, " / ".join(sentence.options))
    statement_words = words(sentence.statement)
    contents = [_content(option) for option in sentence.options]
    for number, option in enumerate(sentence.options):
        # "Asian man" is not named by the "man" that it shares with "French man".
        own = [word for word in contents[number] if word not in contents[1 - number]] or contents[number]
        if 2 * sum(_occurs(word, statement_words) for word in own) < len(own):
            return Rejection(NO_CANDIDATE, f"{option}: {sentence.statement}")
    return None


def _check_pair(first: Sentence, second: Sentence, max_changed_words: int) -> Rejection | None:
    shown = f"{first.statement} / {second.statement}"
    if normalised(first.pronoun) != normalised(second.pronoun):
        return Rejection(DIFFERENT_PRONOUNS, f"{first.pronoun} / {second.pronoun}")
    if {*map(_name, first.options)} != {*map(_name, second.options)}:
        return Rejection(DIFFERENT_CANDIDATES, f"{' / '.join(first.options)}; {' / '.join(second.options)}")
    changed = changed_words(first.statement, second.statement)
    if not changed:
        return Rejection(SAME_SENTENCES, shown)
    if changed > max_changed_words:
        return Rejection(TOO_DIFFERENT, f"{changed} words: {shown}")
    if first.answer != NEITHER and _name(first.options[first.answer]) == _name(second.options[second.answer]):
        return Rejection(NO_FLIP, f"{first.options[first.answer]}: {shown}")
    return None


def changed_words(one: str, other: str) -> int:
    """The number of words of a sentence that differ from the other's. The larger of both sides."""
    first, second = words(one), words(other)
    codes = difflib.SequenceMatcher(None, first, second, autojunk=False).get_opcodes()
    parts = [code for code in codes if code[0] != "equal"]
    return max(sum(end - start for _, start, end, _, _ in parts), sum(end - start for _, _, _, start, end in parts))


def _name(option: str) -> str:
    """A candidate without articles: "the nurse" and "Nurse" are one."""
    return " ".join(word for word in words(option) if word not in ("the", "a", "an"))


def _content(option: str) -> list[str]:
    """The words that name a candidate: not articles, nor whose it is, if that is not all there is."""
    found = [word for word in words(option) if word not in _SMALL_WORDS]
    return [word.removesuffix("'s") for word in found if not word.endswith("'s")] or found or words(option)


def _occurs(word: str, there: Sequence[str]) -> bool:
    if len(word) < _STEM_LETTERS:
        return any(other in (word, f"{word}'s", f"{word}s", f"{word}es") or f"{other}s" == word for other in there)
    stem = word[: max(_STEM_LETTERS, len(word) - 2)]
    return any(other.startswith(stem) for other in there)


class Known:
    """Statements that exist already.

    From ``similarity`` percent on two statements are near-duplicates (rapidfuzz's ratio: 100 x (1 - insertions and
    deletions / letters of both), on words in lower case without punctuation).
    """

    def __init__(self, statements: Iterable[str] = (), similarity: float = SIMILARITY):
        self._similarity = similarity
        self._texts = list(dict.fromkeys(filter(None, map(normalised, statements))))
        self._exact = set(self._texts)

    def add(self, item: Item) -> None:
        """Adds an item's statements."""
        for sentence in item.sentences:
            text = normalised(sentence.statement)
            self._texts.append(text)
            self._exact.add(text)

    def check(self, item: Item) -> Rejection | None:
        """Refuses an item with a known statement, or one much like it."""
        texts = [normalised(sentence.statement) for sentence in item.sentences]
        for text, sentence in zip(texts, item.sentences, strict=True):
            if text in self._exact:
                return Rejection(DUPLICATE, sentence.statement)
        for text, sentence in zip(texts, item.sentences, strict=True):
            match = process.extractOne(text, self._texts, scorer=fuzz.ratio, score_cutoff=self._similarity)
            if match is not None:
                return Rejection(NEAR_DUPLICATE, f"{sentence.statement} / {match[0]} ({match[1]:.0f}%)")
        return None
