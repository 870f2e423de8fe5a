"""The one reader of JSON: bounded in size and depth, and strict where JSON and Python are not.

Values from this module can always be written and read again. Answers of other programs (``foreign``) are read as far as
possible: lone surrogates become U+FFFD, long numbers infinite, and the last of two equal keys counts.
"""

from __future__ import annotations

import collections
import functools
import json
import math
import os
import re
from collections.abc import Callable, Iterator
from typing import Any

from winobench.base import files
from winobench.base.errors import InputError

LARGEST = 64 * 2**20
"""Bytes of a file unless its reader says otherwise: the index of a checkpoint with 100,000 tensors has 10 MB, a
tokenizer with 250,000 tokens 20 MB, the record of a run less than one."""

LARGEST_DATA = 2 * 2**30
"""Bytes of a file of data: the largest published annotation files have some hundred MB."""

DEEPEST = 100
"""Nested lists and objects: configs have 10, JSON that machines have written rarely 20. A stack takes about 1,000."""

LONGEST_NUMBER = 100
"""Digits of a whole number: 10**30 means "unlimited" in published files. A float holds no more than 308."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class NotJSON(InputError):
    """A text is not JSON that can be used. The message is the reason alone. ``cut_off``: more would have to come."""

    def __init__(self, reason: str, *, cut_off: bool = False, code: str = "not-json"):
        super().__init__(reason, code=code)
        self.cut_off = cut_off


Pairs = Callable[[list[tuple[str, Any]]], Any]


def parse(
    content: str | bytes,
    *,
    foreign: bool = False,
    constants: bool = False,
    pairs: Pairs | None = None,
    largest: int = LARGEST,
) -> Any:
    """The value of a JSON text of at most ``largest`` bytes or characters."""
    if len(content) > largest:
        raise NotJSON(f"it has more than {files.size_in_words(largest)}", code="too-large")
    try:
        if isinstance(content, bytes):
            content = content.decode("utf-8", "replace" if foreign else "strict").removeprefix("\ufeff")
        elif not foreign:
            content.encode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJSON(f"byte {error.start} is not UTF-8", code="not-utf8") from None
    except UnicodeEncodeError as error:
        raise NotJSON(
            f"character {error.start} is a lone surrogate, half of a character", code="lone-surrogate"
        ) from None
    decoder = _decoder(foreign, constants or foreign, pairs)
    try:
        value = decoder.decode(content)
    except json.JSONDecodeError as error:
        position = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        # Python's reader points at the beginning of a string that does not end.
        ends = error.msg.startswith("Unterminated string") or error.pos >= len(content.rstrip())
        raise NotJSON(f"{error.msg}, {position}", cut_off=ends) from None
    except RecursionError:
        raise NotJSON(_TOO_DEEP, code="too-deep") from None
    _check_depth(value, content)
    if _SURROGATE.search(content) or (foreign and well_formed(content) != content):
        value = _each_text(value, well_formed if foreign else _refuse_surrogates)
    return value


def parse_at(text: str, start: int) -> tuple[Any, int]:
    """The value at a position of a foreign text, and its end. Raises NotJSON."""
    try:
        value, end = _decoder(True, True, None).raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise NotJSON(error.msg) from None
    except RecursionError:
        raise NotJSON(_TOO_DEEP, code="too-deep") from None
    _check_depth(value, text[start:end])
    return _each_text(value, well_formed), end


def load(path: str | os.PathLike, *, largest: int = LARGEST, **options: Any) -> Any:
    """The value of a file. Raises OSError where it cannot be read or is not a file, and NotJSON."""
    with files.opened(path) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise NotJSON(f"it has more than {files.size_in_words(largest)}", code="too-large")
        return parse(file.read(largest + 1), largest=largest, **options)


def read(path: str | os.PathLike, advice: str = "restore it", **options: Any) -> Any:
    """The value of a file. Raises InputError, which names the file and its fault, and ends with advice."""
    try:
        return load(path, **options)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): {advice}", code="cannot-read") from error
    except NotJSON as error:
        raise InputError(f"{path} cannot be read as JSON ({error}): {advice}", code=error.code) from None


def read_object(path: str | os.PathLike, advice: str = "restore it", **options: Any) -> dict[str, Any]:
    value = read(path, advice, **options)
    if not isinstance(value, dict):
        raise InputError(
            f"{path} must hold a JSON object, but holds a {type(value).__name__}: {advice}", code="not-an-object"
        )
    return value


def read_lines(
    path: str | os.PathLike, advice: str = "restore it", *, largest_line: int = LARGEST, **options: Any
) -> Iterator[tuple[int, Any]]:
    """Yields (number from 1 on, value) of each line of a file of any size, without blank lines (see `read`)."""
    try:
        with files.opened(path) as file:
            for number, line in enumerate(iter(lambda: file.readline(largest_line + 1), b""), 1):
                if line.isspace():
                    continue
                try:
                    yield number, parse(line, largest=largest_line, **options)
                except NotJSON as error:
                    raise InputError(
                        f"line {number} of {path} cannot be read as JSON ({error}): {advice}", code=error.code
                    ) from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): {advice}", code="cannot-read") from error


def as_json(value: Any) -> Any:
    """A value as JSON has it: tuples become lists, keys become texts."""
    return json.loads(json.dumps(value))


def well_formed(text: str) -> str:
    """A text that UTF-8 can hold: two surrogates that belong together become their character, others U+FFFD."""
    try:
        text.encode("utf-8")
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


_TOO_DEEP = f"it nests lists or objects more than {DEEPEST} deep"


@functools.lru_cache(maxsize=16)  # making one takes longer than reading a line
def _decoder(foreign: bool, constants: bool, pairs: Pairs | None) -> json.JSONDecoder:
    return json.JSONDecoder(
        object_pairs_hook=pairs or (None if foreign else _no_repeats),
        parse_float=None if constants else _finite,
        parse_int=_float if foreign else _short_integer,
        parse_constant=None if constants else _no_constant,
        strict=not foreign,
    )


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        twice = next(key for key, count in collections.Counter(key for key, _ in pairs).items() if count > 1)
        raise NotJSON(f"an object has the key {twice[:80]!r} twice", code="repeated-key")
    return values


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise NotJSON(f"the number {text[:80]} is too large", code="number-too-large")
    return value


def _short_integer(text: str) -> int:
    if len(text.lstrip("-")) > LONGEST_NUMBER:
        raise NotJSON(f"it holds a number of {len(text):,} digits", code="number-too-large")
    return int(text)


def _float(text: str) -> int | float:
    return int(text) if len(text.lstrip("-")) <= LONGEST_NUMBER else float(text)


def _no_constant(name: str) -> float:
    raise NotJSON(f"it holds {name}, which is not a number in JSON", code="not-a-json-number")


def _check_depth(value: Any, content: str) -> None:
    if content.count("[") + content.count("{") <= DEEPEST:
        return
    level = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for outer in level
            if isinstance(outer, (dict, list))
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return
    raise NotJSON(_TOO_DEEP, code="too-deep")


def _each_text(value: Any, function: Callable[[str], str]) -> Any:
    """A value with the function applied to each of its texts and keys."""
    if isinstance(value, str):
        return function(value)
    if isinstance(value, list):
        return [_each_text(one, function) for one in value]
    if isinstance(value, dict):
        return {function(key): _each_text(one, function) for key, one in value.items()}
    return value


def _refuse_surrogates(text: str) -> str:
    if well_formed(text) != text:
        raise NotJSON("a text in it holds a lone surrogate, half of a character", code="lone-surrogate")
    return text
