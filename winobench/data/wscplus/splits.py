"""Which rows of the published file are the validation set."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from winobench.base import json_files
from winobench.data.wscplus.items import ASSETS, Item


@functools.cache
def validation_ids() -> tuple[str, ...]:
    """The ids of the 699 rows that the validation questions are from, in the (shuffled) order of the published result
    files."""
    return tuple(json_files.read(ASSETS / "validation_ids.json")["ids"])


def missing_validation(items: Iterable[Item]) -> tuple[str, ...]:
    """Those of `validation_ids` that none of these items has."""
    there = {item.id for item in items}
    return tuple(id for id in validation_ids() if id not in there)
