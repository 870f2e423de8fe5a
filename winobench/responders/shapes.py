"""Shapes that a language model's programs are compiled for, and requests on their way through them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

# The smallest widths of a batch's arrays. Others are powers of two, and from the second one on 1.5 times these.
_SMALLEST_WIDTH, _FINER_FROM = 16, 64


@dataclasses.dataclass(frozen=True)
class Job:
    """A request, tokenized.

    Attributes:
      prompt: the tokens before the answer, the shared prefix included.
      shared: how many of these other requests may begin with.
      options: the options' tokens. None for a text.
      limit: the most tokens of a text.
      key: of a text's random numbers, two words.
    """

    index: int
    prompt: tuple[int, ...]
    shared: int = 0
    options: tuple[tuple[int, ...], ...] = ()
    limit: int = 0
    temperature: float = 0.0
    key: tuple[int, int] = (0, 0)


@dataclasses.dataclass(frozen=True, order=True)
class Shape:
    """Widths of the prompts behind the prefix and of the longest answer, and number of options, 0 for texts."""

    prompt: int
    options: int
    answer: int
    sampled: bool


def table(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
    """int32 [number of rows, width], each at the left, and 0 behind it."""
    table = np.zeros((len(rows), width), np.int32)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def random_key(values: Any) -> tuple[int, int]:
    """The two words of random numbers that depend on these JSON values alone."""
    digest = hashlib.sha256(json.dumps(values).encode()).digest()
    return int.from_bytes(digest[:4], "little"), int.from_bytes(digest[4:8], "little")


def power_of_two(number: int) -> int:
    return 1 << max(0, number - 1).bit_length()


def round_up(number: int) -> int:
    """The next number of 1, 2, 3, 4, 6, 8, 12, 16, ..."""
    whole = power_of_two(number)
    return whole * 3 // 4 if number <= whole * 3 // 4 else whole


def width(length: int) -> int:
    """The smallest width of an array that a text of this length fits in."""
    return max(_SMALLEST_WIDTH, round_up(length) if length > _FINER_FROM else power_of_two(length))
