"""One person's page of WSC+ items, which are valid, semi-valid or invalid (paper, section 2.2).

Neither generator, template nor anybody else's label is shown. The order is mixed, and the same for everyone at every
start. `winobench.contrib.people.judging` serves the page and keeps the labels.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import os
from collections.abc import Sequence
from typing import Any

from winobench import web
from winobench.contrib.people import judging
from winobench.contrib.people.wscplus_items.items import Item

LABELS = VALID, SEMI_VALID, INVALID = "valid", "semi-valid", "invalid"
"""Labels of an item, from best to worst."""

_CHOICES = (
    judging.Choice(VALID, "Valid", "blue"),
    judging.Choice(SEMI_VALID, "Semi-valid", "amber"),
    judging.Choice(INVALID, "Invalid", "red"),
)


def annotations(folder: str | os.PathLike, name: str) -> judging.Labels:
    """One person's labels of items, to be opened."""
    return judging.Labels(folder, name, LABELS)


def read_annotations(folder: str | os.PathLike) -> dict[str, dict[str, str]]:
    """Annotator -> item's id -> label, of all files in a folder."""
    return judging.read_labels(folder, LABELS)


def in_order(items: Sequence[Item]) -> list[Item]:
    """The items in the order in which they are shown: mixed, so that no generator or template is seen in a row."""
    return sorted(items, key=lambda item: hashlib.sha256(item.id.encode()).digest())


def serve(
    items: Sequence[Item], labels: judging.Labels, port: int | None = None
) -> contextlib.AbstractContextManager[web.Server]:
    """A running server for the page of one person."""
    return judging.serve(judging.Page(page(labels.name), [_shown(item) for item in in_order(items)], labels), port)


def page(annotator: str) -> str:
    """The page's HTML, which loads nothing but its own server's items."""
    return judging.render(
        __package__, "annotate.html.jinja", title="Is it valid?", person=f"annotator {annotator}", choices=_CHOICES
    )


def _shown(item: Item) -> dict[str, Any]:
    return {
        "id": item.id,
        "type": item.origin.type,
        "sentences": [dataclasses.asdict(one) for one in item.sentences],
    }
