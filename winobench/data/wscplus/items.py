"""Items of WSC+: a sentence and the question about its pronoun."""

from __future__ import annotations

import collections
import dataclasses
import functools
import pathlib
from collections.abc import Iterable, Mapping

from winobench.base import json_files

TYPES = ("traditional", "ambiguous", "offensive")
UNTYPED = ""  # the type of a recorded answer's row that names none, and whose sentence the data do not have
GENERATORS = ("GPT4", "GPT3", "Claude2", "Human")
"""The generators of the published data. A file of other sentences may name others."""

WSC285_PRONOUNS = {"it": 88, "he": 79, "she": 40, "they": 34, "his": 20, "them": 10, "her": 10, "him": 4}
"""Pronoun -> its questions among the 285 of the original Winograd Schema Challenge.

Counted in WSCollection.xml of E. Davis, L. Morgenstern and C. Ortiz, which the paper calls WSC285 (Figure 4).
"""

SPLITS = ("validation", "test", "few_shot")
NEITHER = 2  # the answer of a question that its text does not decide
ASSETS = pathlib.Path(__file__).resolve().parents[2] / "assets" / "wscplus"
"""The folder of the validation set's identifiers, the prompts and the published numbers."""


@dataclasses.dataclass(frozen=True)
class Item:
    """One sentence and the question about its pronoun. All texts are repaired. White space is as in the file."""

    id: str  # unique within its file, of the row's content: it does not change with the row's place
    statement: str
    pronoun: str
    snippet: str  # the words around the pronoun that the question quotes
    options: tuple[str, str]  # the two candidates, stripped
    answer: int  # 0 or 1 for the candidate that the pronoun refers to, 2 for neither
    reason: str  # may be empty
    generator: str  # of GENERATORS, or what the file names
    type: str  # of TYPES. Of a recorded answer also UNTYPED
    split: str = "test"
    pair: str | None = None  # the id of the pair's first item, for both
    options_text: str = ""  # the list as the file writes it, which is how questions quote it
    row: int = 0  # from 1. The header does not count
    # Column -> what the file has, for the cells that `repair` changed, and for an unknown type.
    original: Mapping[str, str] = dataclasses.field(default_factory=dict, compare=False)

    def __post_init__(self):
        if not self.options_text:
            object.__setattr__(self, "options_text", repr(list(self.options)))


def composition(items: Iterable[Item]) -> dict[str, dict[str, int]]:
    """The numbers of items by type, by generating model and by split (Table 2).

    Items that people wrote, which are the examples for prompts, have no generating model.
    """
    items = list(items)
    counts = {
        name: collections.Counter(getattr(item, name) for item in items) for name in ("type", "generator", "split")
    }
    counts["generator"].pop("Human", None)
    return {name: dict(counter.most_common()) for name, counter in counts.items()}


def post_filtering(items: Iterable[Item]) -> dict[str, int]:
    """Type -> its items that language models wrote, and "total" with people's (Table 5, post-filtering).

    The table's types leave out the 26 few-shot items, and its total has them.
    """
    items = list(items)
    counts = collections.Counter(item.type for item in items if item.split != "few_shot")
    return {**{name: counts[name] for name in TYPES}, "total": len(items)}


def types_by_generator(items: Iterable[Item]) -> dict[str, dict[str, int]]:
    """Type -> generating model -> its items (Figure 10). People's items, which are few-shot examples, are left out."""
    counts = collections.Counter((item.type, item.generator) for item in items if item.generator != "Human")
    named = dict.fromkeys(generator for _, generator in counts)
    order = [*(name for name in GENERATORS if name in named), *(name for name in named if name not in GENERATORS)]
    return {name: {generator: counts[name, generator] for generator in order} for name in TYPES}


def pronoun_counts(pronouns: Iterable[str]) -> dict[str, int]:
    """Pronoun in lower case -> how often it occurs, the most frequent first (Figure 4)."""
    return dict(collections.Counter(pronoun.strip().lower() for pronoun in pronouns).most_common())


@functools.cache
def validation_ids() -> tuple[str, ...]:
    """Ids of the 699 rows of the validation questions, in the (shuffled) order of the published result files."""
    return tuple(json_files.read(ASSETS / "validation_ids.json")["ids"])
