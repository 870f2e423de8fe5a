"""Checks of texts for models and files: a length that can be read, and whole characters."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from winobench.base import json_files, options
from winobench.base.errors import InputError

_log = logging.getLogger(__name__)

LONGEST_CAPTION = 100_000
"""Characters of a text to be compared with an image, of which text encoders read 24 to 77 tokens. The tokenizers read
all of it before they leave out the rest: of 10 MB they take 50 seconds and 2.7 GB."""

LONGEST_PROMPT = 1_000_000
"""Characters of a language model's whole request: the longest contexts of today."""


LONGEST_ANSWER = 100_000
"""Characters of a model's answer that are read: 20,000 words. Models that go round in circles write longer ones."""

EMPTY_TEXT = ""
"""The text of the unconditional error."""

_BLANKS = re.compile(r"(\s{100})\s+")
_SAME = re.compile(r"(.)\1{99,}", re.DOTALL)


def text_hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def readable(text: str, longest: int = LONGEST_ANSWER) -> str:
    """An answer that takes no time to search: long runs of one letter and the middle of a very long text are cut."""
    text = _SAME.sub(lambda match: match[1] * 100, _BLANKS.sub(r"\1", text))
    return text if len(text) <= longest else f"{text[: longest // 4]}\n{text[-(3 * longest // 4) + 1 :]}"


def check_texts(texts: Iterable[Any], *, longest: int = LONGEST_CAPTION, together: bool = False) -> None:
    """Makes sure that texts can be tokenized, sent and written down."""
    length = 0
    for text in texts:
        if not isinstance(text, str):
            raise InputError(
                f"a text is given as {text!r:.80}, a {type(text).__name__}: give texts (str)", code="wrong-type"
            )
        length = len(text) + (length if together else 0)
        if length > longest:
            raise InputError(
                f"the text {text[:40]!r}... is too long: {length:,} characters{' with those before it' * together}, and"
                f" no model reads more than {longest:,}. Shorten it",
                code="text-too-long",
            )
        if json_files.well_formed(text) != text:
            raise InputError(
                f"the text {text[:80]!r} holds a lone surrogate, half of a character, which no file or model can hold:"
                " correct it",
                code="lone-surrogate",
            )


def checked_list(name: str, values: Any) -> list[Any]:
    """A list of at least one. Raises InputError, with the argument's name, for anything but a sequence."""
    is_one_image = getattr(values, "ndim", None) == 3
    if isinstance(values, str | bytes | os.PathLike | Mapping) or is_one_image or not isinstance(values, Iterable):
        raise InputError(
            f"{name} is a {type(values).__name__}, but it must be a list, even of one: put it in [ ]", code="wrong-type"
        )
    values = list(values)
    if not values:
        raise InputError(f"{name} is an empty list: give at least one", code="empty-list")
    return values


def checked_texts(texts: Any) -> list[str]:
    texts = checked_list("texts", texts)
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"texts[{number}] is a {type(text).__name__}, but it must be a string", code="wrong-type")
    return texts


def check_placeholder(name: str, template: Any) -> None:
    """Raises InputError unless an option has ``{}`` once, where a text comes."""
    if not isinstance(template, str) or template.count("{}") != 1:
        raise InputError(
            f"{name} is {options.quote(template)}, but it must have {{}} once, where the text comes",
            code="bad-template",
        )
    check_texts([template])


def count_truncated(encoded: Any) -> int:
    """Number of the texts that did not fit into the longest length of a fast tokenizer of transformers."""
    return sum(bool(encoding.overflowing) for encoding in encoded.encodings)


def log_truncated(truncated: int, total: int, longest: int, noun: str = "texts") -> None:
    """Logs how many texts were cut off at ``longest`` tokens, if any was."""
    if truncated:
        _log.warning("%d of %d %s are longer than %d tokens and were truncated.", truncated, total, noun, longest)
