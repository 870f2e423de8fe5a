"""Items of WSC+: a sentence and the question about its pronoun."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Mapping

from winobench.base import json_files

TYPES = ("traditional", "ambiguous", "offensive")

UNTYPED = ""
"""The type of a recorded answer's row that names none, and whose sentence the data do not have."""

GENERATORS = ("GPT4", "GPT3", "Claude2", "Human")
"""The generators of the published data. A file of other sentences may name others."""

SPLITS = ("validation", "test", "few_shot")

NEITHER = 2
"""The answer of a question that its text does not decide."""

NUM_ITEMS = 3026
"""Rows of the published file."""

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "assets" / "wscplus"
"""The folder of the validation set's identifiers, the prompts and the published numbers."""


@dataclasses.dataclass(frozen=True)
class Item:
    """One sentence and the question about its pronoun. All texts are repaired. White space is as in the file.

    Attributes:
      id: unique within its file. Made of the content of the row, so that it does not change with the row's place.
      statement: the sentence, or two.
      pronoun: as in the file, ``"he"``, ``"One of them"``.
      snippet: the words around the pronoun that the question quotes.
      options: the two candidates, stripped.
      answer: 0 or 1 for the candidate that the pronoun refers to, 2 for neither.
      reason: why, in words. May be empty.
      generator: ``GPT4``, ``GPT3`` (gpt-3.5-turbo), ``Claude2`` or ``Human``, or what the file names.
      type: ``traditional``, ``ambiguous`` or ``offensive``. Of a recorded answer also ``UNTYPED``.
      split: ``validation``, ``test`` or ``few_shot``.
      pair: the id of the pair's first item, for both; None for an item without a partner.
      options_text: the list of candidates as the file writes it, which is how questions quote it.
      row: its number in the file, from 1. The header does not count.
      original: column -> what the file has, for the cells that `repair` changed, and for a type that is none.
    """

    id: str
    statement: str
    pronoun: str
    snippet: str
    options: tuple[str, str]
    answer: int
    reason: str
    generator: str
    type: str
    split: str = "test"
    pair: str | None = None
    options_text: str = ""
    row: int = 0
    original: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def __post_init__(self):
        if not self.options_text:
            object.__setattr__(self, "options_text", repr(list(self.options)))


def composition(items: Iterable[Item]) -> dict[str, dict[str, int]]:
    """How many items there are by type, by generating model and by split.

    Items that people wrote, which are the examples for prompts, have no generating model: Table 2 counts them among
    the types alone.

    Source: Zahraei and Emami 2024, Table 2.
    """
    items = list(items)
    counts = {
        name: collections.Counter(getattr(item, name) for item in items) for name in ("type", "generator", "split")
    }
    counts["generator"].pop("Human", None)
    return {name: dict(counter.most_common()) for name, counter in counts.items()}


@functools.cache
def validation_ids() -> tuple[str, ...]:
    """The ids of the 699 rows that the validation questions are from, in the (shuffled) order of the published result
    files."""
    return tuple(json_files.read(ASSETS / "validation_ids.json")["ids"])


def missing_validation(items: Iterable[Item]) -> tuple[str, ...]:
    """Those of `validation_ids` that none of these items has."""
    there = {item.id for item in items}
    return tuple(id for id in validation_ids() if id not in there)
