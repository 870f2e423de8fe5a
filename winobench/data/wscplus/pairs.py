"""Which neighbours in the file are the two sentences of a traditional pair."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Sequence

from winobench.data.wscplus.items import Item

# Of two neighbours, the share of words (as difflib counts it) from which on they are a pair. The least of the published
# pairs is 0.35.
_PAIR_SIMILARITY = 0.3


def with_pairs(items: Sequence[Item]) -> list[Item]:
    """Neighbours of type traditional and the same generator are pairs where they share enough words."""
    items = list(items)
    index = 0
    while index + 1 < len(items):
        first, second = items[index], items[index + 1]
        if _is_pair(first, second):
            items[index : index + 2] = (dataclasses.replace(item, pair=first.id) for item in (first, second))
            index += 2
        else:
            index += 1
    return items


def _is_pair(first: Item, second: Item) -> bool:
    if not (first.type == second.type == "traditional" and first.generator == second.generator):
        return False
    words = first.statement.split(), second.statement.split()
    return difflib.SequenceMatcher(None, *words, autojunk=False).ratio() >= _PAIR_SIMILARITY
