"""Which words a text has, compared without their endings."""

from __future__ import annotations

import re

_ENDINGS = ("ish", "ing", "ed", "es", "en", "ly", "s", "e")


def words_of(text: str) -> list[str]:
    """In lower case, without a possessive s."""
    return re.findall(r"[^\W_]+", re.sub(r"[’']s\b", "", text.lower()))


SMALL_WORDS = frozenset(
    words_of(
        "a an and are as at be been being by can for from had has have he her him his in into is it its more most no"
        " not of off on onto or out over own she so than that the their them then there they this to too up very was"
        " were when with without"
    )
)
"""Words that say nothing about what a longer expression names."""


def stem(word: str) -> str:
    """The word without a common ending: enough to find "carved" in "carve", no linguistics."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] + "y" if word.endswith("i") else word


def stems(text: str) -> set[str]:
    """The words that count, without their endings."""
    return {stem(word) for word in words_of(text) if word not in SMALL_WORDS}
