"""The validation questions as they were asked, from the published result files."""

from __future__ import annotations

import dataclasses
import os
import re
from typing import Any

from winobench.base.errors import InputError
from winobench.data.wscplus.files import parse_options, read, read_rows
from winobench.data.wscplus.items import UNTYPED, Item, validation_ids
from winobench.data.wscplus.joining import join
from winobench.data.wscplus.text import repair

_QUERY_COLUMN = "query"
_QUERY = re.compile(
    r'What does "(?P<pronoun>.*?)" refer to in "(?P<snippet>.*)" from "(?P<statement>.*)"\?'
    r" Options: (?P<options_text>.*)\.",
    re.DOTALL,
)


def validation(path: str | os.PathLike, results: str | os.PathLike | None = None) -> tuple[Item, ...]:
    """The validation items, in the order of the published result files.

    With such a file (``results``) they are its 700 questions as they were asked, with the ids and pairs of the rows of
    the data. Without it they are those rows. A row of unknown type gets that of the same sentence in the data, and is
    otherwise left ``UNTYPED``; ``original["type"]`` is what the file has.
    """
    items = read(path)
    if results is None:
        by_id = {item.id: item for item in items}
        return tuple(by_id[id] for id in validation_ids() if id in by_id)
    rows = read(results)
    found = []
    joined = join(rows, items)
    edited = frozenset(joined.edited)
    for index, (row, cells, item) in enumerate(zip(rows, read_rows(results), joined.items, strict=True)):
        if _QUERY_COLUMN not in cells:
            raise InputError(
                f"{results} lacks the column {_QUERY_COLUMN}: name a file of recorded answers of WSC+",
                code="missing-column",
            )
        # Some rows were edited after they had been asked.
        asked = _QUERY.fullmatch(repair(cells[_QUERY_COLUMN]).strip())
        changes: dict[str, Any] = {} if asked is None else asked.groupdict()
        options = parse_options(changes.get("options_text", row.options_text))
        changes["options"] = row.options if options is None else options
        if item is not None:
            changes |= {"id": item.id, "pair": item.pair}
            # The nearest of other sentences may be of another type.
            if row.type == UNTYPED and index not in edited:
                changes["type"] = item.type
        found.append(dataclasses.replace(row, **changes))
    return tuple(found)
