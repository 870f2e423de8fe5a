"""WinoViz items: pairs of questions that share their hypotheses."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

VERSIONS = ("single", "multi", "pragmatic", "visual")

ATTRIBUTE_KINDS = ("color", "shape", "material", "size", "texture", "pattern", "transparency", "other")
"""Kinds of attributes. The paper's multi-hop items have the first three."""

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "assets" / "winoviz"
"""The folder of winobench's set (``items.jsonl``), the prompts, the prototypes and the published numbers."""

PAIRS = ("premises", "hypotheses", "properties", "attributes", "prototypes")
"""The fields that hold two texts, one for each premise."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A pair of questions that share their hypotheses."""

    id: str  # unique in its file
    object: str  # of both premises and both hypotheses, e.g. "tomato"
    version: str  # of VERSIONS
    premises: tuple[str, str]
    hypotheses: tuple[str, str]  # each is right for the premise in the same place
    properties: tuple[str, str] | None = None  # of each premise, e.g. ("unripe", "ripe")
    attributes: tuple[str, str] | None = None  # of each premise, e.g. ("green", "red")
    attribute_kind: str = "other"  # of ATTRIBUTE_KINDS
    source: str | None = None  # id of the single-hop item that this one was made of
    prototypes: tuple[str, str] | None = None  # that a multi-hop item names, e.g. ("a cucumber", "a fire engine")

    def to_json(self) -> dict[str, Any]:
        """The item as an object of a JSONL file, without unknown fields."""
        values = dataclasses.asdict(self)
        return {key: list(value) if key in PAIRS else value for key, value in values.items() if value is not None}


def derived_id(source: str, version: str) -> str:
    """The id of the item of another version that is made of the single-hop item ``source``."""
    return f"{version}/{source.removeprefix('single/')}"
