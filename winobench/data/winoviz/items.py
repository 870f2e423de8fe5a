"""WinoViz items: pairs of questions that share their hypotheses."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

VERSIONS = ("single", "multi", "pragmatic", "visual")

ATTRIBUTE_KINDS = ("color", "shape", "material", "size", "texture", "pattern", "transparency", "other")
"""What an attribute is about. The paper's multi-hop items have the first three."""

ASSETS = pathlib.Path(__file__).resolve().parents[2] / "assets" / "winoviz"
"""The folder of our own set (``items.jsonl``), the prompts, the prototypes and the published numbers."""

PAIRS = ("premises", "hypotheses", "properties", "attributes", "prototypes")
"""The fields that hold two texts, one for each premise."""


@dataclasses.dataclass(frozen=True)
class Item:
    """A pair of questions that share their hypotheses.

    Attributes:
      id: unique in its file.
      object: what both premises and both hypotheses are about, e.g. ``"tomato"``.
      version: one of ``VERSIONS``.
      premises: two sentences.
      hypotheses: two sentences. Each is right for the premise in the same place.
      properties: of each premise, e.g. ``("unripe", "ripe")``; None where the file does not say.
      attributes: of each premise, e.g. ``("green", "red")``; None where the file does not say.
      attribute_kind: one of ``ATTRIBUTE_KINDS``.
      source: id of the single-hop item that this one was made of.
      prototypes: the objects that a multi-hop item names, e.g. ``("a cucumber", "a fire engine")``.
    """

    id: str
    object: str
    version: str
    premises: tuple[str, str]
    hypotheses: tuple[str, str]
    properties: tuple[str, str] | None = None
    attributes: tuple[str, str] | None = None
    attribute_kind: str = "other"
    source: str | None = None
    prototypes: tuple[str, str] | None = None

    def to_json(self) -> dict[str, Any]:
        """As an object of a JSONL file. What is not known is left out."""
        values = dataclasses.asdict(self)
        return {key: list(value) if key in PAIRS else value for key, value in values.items() if value is not None}


def derived_id(source: str, version: str) -> str:
    """The id of the item of another version that is made of the single-hop item ``source``."""
    return f"{version}/{source.removeprefix('single/')}"
