"""One person's items. They are checked and on disk before the page shows the next object."""

from __future__ import annotations

import os
import pathlib
import re
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.base import files
from winobench.base.errors import InputError
from winobench.contrib.people import judging
from winobench.data import winoviz
from winobench.data.winoviz import Item

_PAIRS = ("premises", "hypotheses", "properties", "attributes")
STATEMENTS = 6
"""A writer's confirmations: for each of the two pairs, that it fits, is visual, and that neither names the other."""


class Written:
    """A person's items and the objects that they skipped: ``<name>.jsonl`` and ``<name>.skipped.txt`` in a folder.

    A context manager: while it is open, no other process can write for the same person.
    """

    def __init__(self, folder: str | os.PathLike, name: str, objects: Sequence[str]):
        judging.check_name(name)
        self.name, self.objects = name, tuple(objects)
        self._folder = pathlib.Path(files.user_path(folder))
        self.path = self._folder / f"{name}.jsonl"
        self._skipped_path = self._folder / f"{name}.skipped.txt"
        self._ids = {self._id(thing): thing for thing in self.objects}
        if len(self._ids) < len(self.objects):
            raise InputError("two objects differ in capitals or signs alone: keep one of them", code="repeated-id")
        self.items: dict[str, Item] = {}  # by id
        self.skipped: list[str] = []
        self._descriptor: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Written:
        try:
            with files.writing(self._folder):
                self._folder.mkdir(parents=True, exist_ok=True)
                self._descriptor = os.open(self._folder / f".{self.name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
            if not files.lock(self._descriptor):
                raise InputError(f"the page of {self.name!r} is open already: use that one, or end it", code="in-use")
            if self.path.is_file():
                self.items = {item.id: item for item in winoviz.read_items(self.path)}
            if self._skipped_path.is_file():
                self.skipped = self._skipped_path.read_text(encoding="utf-8").splitlines()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def left(self) -> list[str]:
        """The objects that have neither an item nor been skipped."""
        return [one for id, one in self._ids.items() if id not in self.items and one not in self.skipped]

    def skip(self, object: str) -> None:
        """Leaves an object out, to which no contrasting pair belongs."""
        with self._lock:
            skipped = list(dict.fromkeys([*self.skipped, object]))
            files.write_text(self._skipped_path, "".join(f"{one}\n" for one in skipped))
            self.skipped = skipped

    def add(self, sent: Mapping[str, Any]) -> list[str]:
        """Stores an item, or returns its faults in sentences.

        ``anyway`` stores it though it breaks rules, which programs check by words alone.
        """
        object = sent.get("object")
        if object not in self.objects:
            return ["The object is not on the list."]
        values = {name: sent.get(name) for name in _PAIRS} | {"attribute_kind": sent.get("attribute_kind")}
        values |= {"id": self._id(object), "object": object, "version": "single"}
        try:
            item = winoviz.item_from_json(values, "this item")
        except InputError as error:
            return [f"{error}."]
        problems = []
        if sent.get("chosen") != [0, 1]:
            problems.append("The puzzle is not solved: choose the look that belongs to each property.")
        if sent.get("confirmed") != [True] * STATEMENTS:
            problems.append("Not every statement is confirmed.")
        if problems:
            return problems
        broken = winoviz.check_item(item)
        if broken and sent.get("anyway") is not True:
            return [f"{fault.message}. The rule: {winoviz.RULES[fault.rule]}." for fault in broken]
        with self._lock:
            items = {**self.items, item.id: item}
            text = "".join(f"{winoviz.json_line(item)}\n" for item in items.values())
            files.write_text(self.path, text)
            self.items = items
        return []

    def _id(self, object: str) -> str:
        return f"single/{re.sub(r'[^a-z0-9]+', '-', object.lower()).strip('-') or 'object'}-{self.name}"


def read_objects(path: str | os.PathLike) -> list[str]:
    """The objects of a text file, one a line. Blank lines and repetitions do not count."""
    place = pathlib.Path(files.user_path(path))
    lines = winoviz.read_text(place).splitlines()
    objects = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not objects:
        raise InputError(f"{place} has no objects: write one a line, such as banana", code="empty-file")
    return objects
