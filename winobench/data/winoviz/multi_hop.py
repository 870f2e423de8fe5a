"""Multi-hop items, built of single-hop ones: another object takes the attribute's place (appendix A.2)."""

from __future__ import annotations

import collections
import dataclasses
import os
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.data.winoviz.files import read_text
from winobench.data.winoviz.items import ASSETS, Item, derived_id
from winobench.data.winoviz.rules import stems


class Prototypes(NamedTuple):
    """Objects that have an attribute typically."""

    phrases: Mapping[str, str]  # attribute kind -> the phrase that replaces the attribute, ``{}`` for the object
    table: Mapping[str, Mapping[str, Sequence[str]]]  # attribute kind -> attribute -> objects with article


def read_prototypes(path: str | os.PathLike = ASSETS / "prototypes.json") -> Prototypes:
    """A table of prototypical objects: ``{"phrases": {kind: phrase}, "table": {kind: {attribute: [object, ...]}}}``."""
    path = pathlib.Path(path)
    try:
        content = json_files.parse(read_text(path))
    except json_files.NotJSON as error:
        raise InputError(f"{path} is not JSON ({error}): mend it", code=error.code) from None
    if not isinstance(content, dict) or not all(isinstance(content.get(key), dict) for key in ("phrases", "table")):
        raise InputError(f"{path} has no objects 'phrases' and 'table': mend it", code="not-an-object")
    for kind, attributes in content["table"].items():
        phrase = content["phrases"].get(kind)
        if not isinstance(phrase, str) or phrase.count("{}") != 1:
            raise InputError(
                f"'phrases' in {path} has no text with one {{}} for the kind {kind!r}: add it", code="missing-field"
            )
        for attribute, objects in attributes.items() if isinstance(attributes, dict) else [("", None)]:
            if not isinstance(objects, list) or not objects or not all(isinstance(x, str) and x for x in objects):
                raise InputError(
                    f"{attribute!r} of {kind!r} in {path} is not a list of objects: mend it", code="not-an-object"
                )
    return Prototypes(content["phrases"], content["table"])


class MultiHop(NamedTuple):
    """The multi-hop items, and the ids of the single-hop items of which none can be made, with the reason."""

    items: list[Item]
    left_out: list[tuple[str, str]]


def build_multi_hop(items: Iterable[Item], prototypes: Prototypes | None = None) -> MultiHop:
    """Replaces the attributes in the hypotheses of single-hop items by objects that typically have them.

    "The tomato was red." becomes "The tomato was the color of a fire engine.", "made of glass" becomes "made of the
    same material as a window pane". The least used object of an attribute is taken, the
    first in the table among equals, but never one that the item itself mentions. Items of other versions are passed
    over.

    Source: appendix A.2, which prints the phrase for colors ("The banana is the color of an egg yolk"). The phrases for
    shapes and materials are ours.
    """
    prototypes = read_prototypes() if prototypes is None else prototypes
    used: collections.Counter[str] = collections.Counter()
    built, left_out = [], []
    for item in items:
        if item.version != "single":
            continue
        try:
            chosen = _choose_prototypes(item, prototypes, used)
            phrase = prototypes.phrases[item.attribute_kind]
            first, second = (_replace_attribute(item, number, phrase.format(chosen[number])) for number in (0, 1))
        except LookupError as error:
            left_out.append((item.id, str(error.args[0])))
            continue
        used.update(chosen)
        built.append(
            dataclasses.replace(
                item,
                id=derived_id(item.id, "multi"),
                version="multi",
                hypotheses=(first, second),
                prototypes=chosen,
                source=item.id,
            )
        )
    return MultiHop(built, left_out)


def _choose_prototypes(item: Item, prototypes: Prototypes, used: Mapping[str, int]) -> tuple[str, str]:
    if item.attributes is None:
        raise LookupError("the item states no attributes")
    if item.attribute_kind not in prototypes.table:
        raise LookupError(f"the table has no attributes of the kind {item.attribute_kind!r}")
    texts = [item.object, *item.premises, *(item.properties or ()), *item.hypotheses]
    mentioned = set().union(*(stems(text) for text in texts))
    chosen: list[str] = []
    for attribute in item.attributes:
        objects = prototypes.table[item.attribute_kind].get(attribute)
        if objects is None:
            raise LookupError(f"the table has no objects for {attribute!r} ({item.attribute_kind})")
        allowed = [name for name in objects if name not in chosen and not stems(name) & mentioned]
        if not allowed:
            raise LookupError(f"the item mentions every object that the table has for {attribute!r}")
        chosen.append(min(allowed, key=lambda name: used.get(name, 0)))
    return chosen[0], chosen[1]


def _replace_attribute(item: Item, number: int, phrase: str) -> str:
    """Raises LookupError where the hypothesis does not have the attribute as one phrase."""
    hypothesis, attribute = item.hypotheses[number], (item.attributes or ())[number]
    if item.attribute_kind == "material" and "made of" not in hypothesis:
        phrase = f"made of {phrase}"
    replaced, count = re.subn(rf"(?<![\w-]){re.escape(attribute)}(?![\w-])", lambda _: phrase, hypothesis)
    if count != 1:
        raise LookupError(f"the hypothesis {hypothesis!r} does not have {attribute!r} as one phrase")
    return replaced
