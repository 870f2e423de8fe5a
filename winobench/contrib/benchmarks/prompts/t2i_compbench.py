"""T2I-CompBench's noun phrases, the subjects of its judges' questions (Huang et al. 2023 and 2025).

The published code takes the noun chunks of spaCy's en_core_web_sm. Ours are read from the template that 240 of the 300
prompts on colours, shapes and textures have: "a green bench and a red car". The other 60 of each need a file with
spaCy's phrases. For 696 of the 720, both are the same (spaCy 3.8, model 3.8.0). In the other 24, spaCy misses or cuts a
phrase, or takes both for one.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError

SKIPPED = ("top", "the side", "the left", "the right")
"""Phrases that are not asked about (BLIPvqa_eval/BLIP_vqa.py of the published code, 1b70949)."""

ATTRIBUTES = ("color", "shape", "texture")
MOST = 8  # phrases for questions

_ADVICE = 'write {"prompt": ..., "phrases": [...]} for each prompt'
_ARTICLES = ("a", "an", "the")
_LONGEST = 5  # words of a phrase
# Words that no phrase of the template has.
_OTHERS = """
in on at with to by from near next above below under over behind beside inside against for that which who is are was
were has have
"""
_WORD = re.compile(r"[A-Za-z'-]+")


def phrases(content: Any, text: str) -> tuple[str, ...]:
    """The phrases for questions, from the file of phrases or the template. Empty where neither has any."""
    given = content.get("phrases") if isinstance(content, Mapping) else None
    candidates = tuple(given) if isinstance(given, list) and all(map(_is_text, given)) else read_template(text)
    return tuple(phrase for phrase in candidates if phrase not in SKIPPED)[:MOST]


def read_template(text: str) -> tuple[str, ...]:
    """The noun phrases of "<phrase> and <phrase>", in which "of" also begins one. Empty for another form."""
    sides = text.strip().removesuffix(".").rstrip().split(" and ")
    phrases_of_text = tuple(phrase for side in sides for phrase in side.split(" of "))
    return phrases_of_text if len(sides) == 2 and all(map(_is_phrase, phrases_of_text)) else ()


def _is_phrase(phrase: str) -> bool:
    words = phrase.lower().split()
    return (
        1 <= len(words) <= _LONGEST
        and all(map(_WORD.fullmatch, words))
        and not set(_OTHERS.split()).intersection(words)
        and not any(word in _ARTICLES for word in words[1:])
    )


def read_phrases(path: pathlib.Path, texts: set[str]) -> dict[str, list[str]]:
    """A file's phrases by prompt. Each prompt must be in the prompts' file. Empty without a file."""
    if not path.is_file():
        return {}
    by_text: dict[str, list[str]] = {}
    for number, row in json_files.read_lines(path, _ADVICE):
        where = f"line {number} of {path}"
        text, names = (row.get("prompt"), row.get("phrases")) if isinstance(row, dict) else (None, None)
        if not isinstance(text, str) or not isinstance(names, list) or not all(map(_is_text, names)):
            raise InputError(f"{where} has no prompt and phrases: {_ADVICE}", code="missing-field")
        if text not in texts:
            raise InputError(f"{where} has a prompt that is not in the file of prompts: {_ADVICE}", code="unknown-name")
        if by_text.setdefault(text, names) != names:
            raise InputError(
                f"{where} gives a prompt other phrases than an earlier line: {_ADVICE}", code="repeated-id"
            )
    if lacking := len(texts - by_text.keys()):
        raise InputError(f"{path} lacks {lacking:,} of {len(texts):,} prompts: {_ADVICE}", code="incomplete-row")
    return by_text


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
