"""Generated items: sentences in the layout of the published data, and the pairs or questions that they make up."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Iterable, Mapping
from typing import Any

from winobench.base import files, json_files
from winobench.base.errors import InputError
from winobench.data import wscplus

TYPES = TRADITIONAL, AMBIGUOUS, OFFENSIVE = wscplus.TYPES
NEITHER = wscplus.NEITHER

_WORD = re.compile(r"\w+(?:['’]\w+)*")


@dataclasses.dataclass(frozen=True)
class Sentence:
    """One question."""

    statement: str  # one sentence or several
    pronoun: str
    snippet: str  # the part of the statement that holds the pronoun
    options: tuple[str, str]  # the candidates that it may refer to
    answer: int  # 0 or 1 for a candidate, NEITHER where it remains open
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Origin:
    """The prompt, model and answer of an item."""

    model: str
    type: str  # of TYPES
    template: str  # cot, tot, coe or toe
    query: str  # wdq, wiq, ambiguous or offensive-<domain>
    batch: int  # pairs, or offensive questions, that the request asked for
    sample: int  # number of the request among its equals


@dataclasses.dataclass(frozen=True)
class Item:
    """A pair of sentences, or one offensive question, which is judged as a whole (paper, footnote 2)."""

    sentences: tuple[Sentence, ...]
    origin: Origin

    @property
    def id(self) -> str:
        """16 hexadecimal digits that depend on the item's text and origin alone, so that labels outlive a rerun."""
        content = json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:16]


def to_json(item: Item) -> dict[str, Any]:
    """The item as JSON values, with its ``id``."""
    return {
        "id": item.id,
        **dataclasses.asdict(item.origin),
        "sentences": [{**dataclasses.asdict(one), "options": list(one.options)} for one in item.sentences],
    }


def from_json(record: Mapping[str, Any]) -> Item:
    """The item in what ``to_json`` has made."""
    fields = [field.name for field in dataclasses.fields(Origin)]
    sentences = tuple(Sentence(**{**one, "options": tuple(one["options"])}) for one in record["sentences"])
    return Item(sentences, Origin(**{name: record[name] for name in fields}))


def to_rows(item: Item) -> list[wscplus.Item]:
    """The item's sentences as `winobench.data.wscplus` writes and reads them."""
    fields = ("statement", "pronoun", "snippet", "options", "answer", "reason")
    return [
        wscplus.Item(
            f"{item.id}-{number}", *(getattr(one, field) for field in fields), item.origin.model, item.origin.type
        )
        for number, one in enumerate(item.sentences)
    ]


def write_lines(path: pathlib.Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Writes a JSONL file, whole or not at all."""
    files.write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


def read_lines(path: pathlib.Path) -> list[dict[str, Any]]:
    """Reads a JSONL file."""
    rows = []
    for number, row in json_files.read_lines(path, "give the same command again, which writes it"):
        if not isinstance(row, dict):
            raise InputError(
                f"{path}, line {number} is not an object: give the same command again, which writes it.",
                code="not-an-object",
            )
        rows.append(row)
    return rows


def words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation. Apostrophes inside a word stay."""
    return [word.replace("’", "'") for word in _WORD.findall(text.lower())]


def normalised(text: str) -> str:
    """The words with single spaces: texts that are equal this way are duplicates."""
    return " ".join(words(text))
