"""Recorded rows and their items, and the validation questions as the published result files have them."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import os
import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from winobench.base.errors import InputError
from winobench.data.wscplus.files import parse_options, read, read_rows
from winobench.data.wscplus.items import UNTYPED, Item, validation_ids
from winobench.data.wscplus.text import normalize, repair

# Of an edited row and the row it was: the published ones are all above 0.88, and no other row is above 0.91 of them.
_EDIT_SIMILARITY = 0.8
_QUERY_COLUMN = "query"
_QUERY = re.compile(
    r'What does "(?P<pronoun>.*?)" refer to in "(?P<snippet>.*)" from "(?P<statement>.*)"\?'
    r" Options: (?P<options_text>.*)\.",
    re.DOTALL,
)


def validation(path: str | os.PathLike, results: str | os.PathLike | None = None) -> tuple[Item, ...]:
    """The validation items, in the order of the published result files.

    With such a file (``results``) they are its 700 questions as they were asked, with the ids and pairs of the rows of
    the data. Without it they are the data's rows. A row of unknown type gets the type of the same sentence in the data,
    and is otherwise left ``UNTYPED``. ``original["type"]`` is the file's.
    """
    items = read(path)
    if results is None:
        by_id = {item.id: item for item in items}
        return tuple(by_id[id] for id in validation_ids() if id in by_id)
    rows = read(results)
    items_of_file = []
    joined = join(rows, items)
    edited = frozenset(joined.edited)
    for index, (row, cells, item) in enumerate(zip(rows, read_rows(results), joined.items, strict=True)):
        if _QUERY_COLUMN not in cells:
            raise InputError(
                f"{results} lacks the column {_QUERY_COLUMN}: name a file of recorded answers of WSC+",
                code="missing-column",
            )
        # Some rows were edited after they had been asked.
        query = _QUERY.fullmatch(repair(cells[_QUERY_COLUMN]).strip())
        changes: dict[str, Any] = {} if query is None else query.groupdict()
        options = parse_options(changes.get("options_text", row.options_text))
        changes["options"] = row.options if options is None else options
        if item is not None:
            changes |= {"id": item.id, "pair": item.pair}
            # The nearest of other sentences may be of another type.
            if row.type == UNTYPED and index not in edited:
                changes["type"] = item.type
        items_of_file.append(dataclasses.replace(row, **changes))
    return tuple(items_of_file)


class Joined(NamedTuple):
    """The item of each recorded row."""

    items: tuple[Item | None, ...]
    edited: tuple[int, ...]  # indices of the rows that were joined by the nearest text, since none is equal
    missing: tuple[int, ...]  # indices of the rows without an item


def join(recorded: Sequence[Item], items: Sequence[Item]) -> Joined:
    """Finds the item of each recorded row.

    Rows and items meet where statement and pronoun are equal after `normalize`. Items of the same generator, reason and
    snippet come first, and no item is given twice. A row whose sentence was edited gets the nearest of the remaining
    items of its type (if it has one) and generator, if that is near enough. (Of the published GPT-4 answers 688 are
    joined by equality, 11 by nearness, and 1 is missing, as another row has its item.)
    """
    by_text: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        by_text.setdefault(_key(item), []).append(item)
    used: set[str] = set()
    matches: list[Item | None] = []
    for row in recorded:
        free = [item for item in by_text.get(_key(row), ()) if item.id not in used]
        matches.append(max(free, key=functools.partial(_likeness, row), default=None))
        if matches[-1] is not None:
            used.add(matches[-1].id)
    edited, missing = [], []
    for index in [index for index, item in enumerate(matches) if item is None]:
        nearest = matches[index] = _nearest(recorded[index], [item for item in items if item.id not in used])
        if nearest is None:
            missing.append(index)
        else:
            edited.append(index)
            used.add(nearest.id)
    return Joined(tuple(matches), tuple(edited), tuple(missing))


def _key(item: Item) -> tuple[str, str]:
    return normalize(item.statement), normalize(item.pronoun)


def _likeness(row: Item, item: Item) -> tuple[bool, ...]:
    return (
        item.generator == row.generator,
        normalize(item.reason) == normalize(row.reason),
        normalize(item.snippet) == normalize(row.snippet),
        item.answer == row.answer,
    )


def _nearest(row: Item, items: Iterable[Item]) -> Item | None:
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(normalize(row.statement))
    best, best_ratio = None, _EDIT_SIMILARITY
    for item in items:
        if row.type not in (item.type, UNTYPED) or item.generator != row.generator:
            continue
        matcher.set_seq1(normalize(item.statement))
        if matcher.real_quick_ratio() < best_ratio or matcher.quick_ratio() < best_ratio:
            continue
        ratio = matcher.ratio()
        if ratio > best_ratio:
            best, best_ratio = item, ratio
    return best
