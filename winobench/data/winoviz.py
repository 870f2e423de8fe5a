"""WinoViz items: their layout in files, the annotation rules, and how harder versions are made of single-hop items.

An item is a pair of questions. Each has its own premise and both choose between the same two hypotheses; the first
hypothesis is right for the first premise, the second for the second one.

**Versions.** Of one and the same pair of premises there can be

- ``single``: hypotheses that name a visual attribute ("The tomato was red.");
- ``multi``: hypotheses that name another object with that attribute ("The tomato was the color of a fire engine.");
- ``pragmatic``: the step from the premise to the property that it is about; the hypotheses are sentences that state
  the properties ("The tomato was ripe.");
- ``visual``: the step from the property to the attribute; the premises are the sentences that state the properties, and
  the hypotheses are those of the single-hop item.

**JSONL.** One object a line. Required: ``id`` (unique in the file), ``object``, ``version``, ``premises`` and
``hypotheses`` (two texts each). Optional: ``properties``, ``attributes`` and ``prototypes`` (two texts each, in the
order of the premises; prototypes are the objects that a multi-hop item names), ``attribute_kind`` (one of
``ATTRIBUTE_KINDS``, otherwise ``other``), ``source`` (id of the single-hop item that this one was made of; required
for ``pragmatic`` and ``visual``, so that all three are asked about the same subset). Other keys are errors.

**CSV.** The same with a header and the columns ``id``, ``object``, ``version``, ``premise_1``, ``premise_2``,
``hypothesis_1``, ``hypothesis_2``, and, where wanted, ``property_1``, ``property_2``, ``attribute_1``, ``attribute_2``,
``prototype_1``, ``prototype_2``, ``attribute_kind``, ``source``. An empty cell is a missing value.

Files are checked and multi-hop items are built from the command line, too::

    python -m winobench.data.winoviz check FILE            # lists what breaks an annotation rule
    python -m winobench.data.winoviz multi_hop FILE NEW    # writes the multi-hop items of a file's single-hop items

Source: Jin et al., "WinoViz: Probing Visual Properties of Objects Under Different States", appendices A.1, A.2 and A.5.
"""

from __future__ import annotations

import collections
import csv
import dataclasses
import io
import json
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import app

from winobench import csv_cells, json_files
from winobench.errors import InputError

VERSIONS = ("single", "multi", "pragmatic", "visual")

ATTRIBUTE_KINDS = ("color", "shape", "material", "size", "texture", "pattern", "transparency", "other")
"""What an attribute is about; the paper's multi-hop items have the first three."""

ASSETS = pathlib.Path(__file__).resolve().parents[1] / "assets" / "winoviz"
"""The folder of our own set (``items.jsonl``), the prompts, the prototypes and the published numbers."""

FILE_NAMES = ("items.jsonl", "items.csv")
"""What the file of a user's set is called, in the folder ``winoviz`` of the data folder."""

MIN_PREMISE_WORDS = 10

RULES: Mapping[str, str] = {
    "labels": "the item states properties and attributes, without which most rules cannot be checked",
    "premise_length": f"a premise has at least {MIN_PREMISE_WORDS} words (not in visual items, which simplify it)",
    "premise_object": "a premise names the object",
    "premise_property": "a premise names its property, by at least one word of it",
    "premise_attribute": "a premise does not name its attribute",
    "premise_prototype": "a premise does not name the object that stands for an attribute",
    "property_attribute": "a property does not mention its attribute",
    "hypothesis_object": "a hypothesis names the object",
    "hypothesis_attribute": "a hypothesis names its attribute (in a multi-hop item its prototype, and no attribute; in"
    " a pragmatic item its property, and no attribute)",
    "hypothesis_property": "a hypothesis does not mention its property (but in pragmatic items)",
    "hypotheses_equal": "the hypotheses differ in the attribute alone (but in pragmatic items)",
    "capital": "a sentence begins with a capital letter",
    "punctuation": "a sentence ends in a full stop, a question mark or an exclamation mark",
    "tense": "a hypothesis is in the tense of its premise (as far as auxiliaries and common verbs tell)",
}
"""The annotation rules of appendix A.5 that can be checked by rule, in the order in which they are reported."""

_PAIRS = ("premises", "hypotheses", "properties", "attributes", "prototypes")
_SINGULARS = {"premises": "premise", "hypotheses": "hypothesis", "properties": "property"}
_SINGULARS |= {"attributes": "attribute", "prototypes": "prototype"}
_REQUIRED = ("id", "object", "version", "premises", "hypotheses")


@dataclasses.dataclass(frozen=True)
class Item:
    """A pair of questions that share their hypotheses.

    Attributes:
      id: unique in its file.
      object: what both premises and both hypotheses are about, e.g. ``"tomato"``.
      version: one of ``VERSIONS``.
      premises: two sentences.
      hypotheses: two sentences; each is right for the premise in the same place.
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
        """As an object of a JSONL file; what is not known is left out."""
        values = dataclasses.asdict(self)
        return {key: list(value) if key in _PAIRS else value for key, value in values.items() if value is not None}


class RuleBreak(NamedTuple):
    """An annotation rule that an item breaks.

    Attributes:
      item: its id.
      rule: a name in ``RULES``.
      message: what breaks it, in words.
    """

    item: str
    rule: str
    message: str


def read_items(path: str | os.PathLike) -> list[Item]:
    """The items of a ``.jsonl`` or ``.csv`` file, in its order.

    The layout is checked strictly; the annotation rules are not, see `check_items`.

    Raises:
      InputError: the file is missing or of another kind, or one of its items is malformed, has an id twice, or names
        a source that is no single-hop item of the file; the message names file, line and field.
    """
    path = pathlib.Path(path)
    rows = {".jsonl": _json_rows, ".csv": _csv_rows}.get(path.suffix.lower())
    if rows is None:
        raise InputError(f"{path} is neither a .jsonl nor a .csv file: give WinoViz items in one of these layouts")
    items, lines = [], {}
    for line, values in rows(path):
        where = f"line {line} of {path}"
        item = _item(values, where)
        if item.id in lines:
            raise InputError(f"'id' in {where} is {item.id!r}, as in line {lines[item.id]}: give each item its own id")
        lines[item.id] = line
        items.append(item)
    if not items:
        raise InputError(f"{path} has no items: add one a line")
    _check_sources(items, lines, path)
    return items


def write_items(path: str | os.PathLike, items: Iterable[Item]) -> None:
    """Writes items as ``.jsonl`` or ``.csv``, by the file's name.

    Raises:
      InputError: the file is of another kind, or cannot be written.
    """
    path = pathlib.Path(path)
    if path.suffix.lower() == ".jsonl":
        text = "".join(json.dumps(item.to_json(), ensure_ascii=False) + "\n" for item in items)
    elif path.suffix.lower() == ".csv":
        rows = []
        for item in items:
            row = {}
            for key, value in item.to_json().items():
                row |= {f"{_SINGULARS[key]}_{n}": text for n, text in enumerate(value, 1)} if key in _PAIRS else {}
                row |= {} if key in _PAIRS else {key: value}
            rows.append(row)
        text = csv_cells.write_rows(_columns(), rows, line_end="\n")
    else:
        raise InputError(f"{path} is neither a .jsonl nor a .csv file: name one of these")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error}): name another file") from None


def check_item(item: Item) -> list[RuleBreak]:
    """The annotation rules that an item breaks, in the order of ``RULES``.

    Words are compared without their endings ("carved" names "carve"), and small words ("in", "the", "not") do not
    count. A property or an attribute is mentioned where any of its other words is; an object or a prototype where all
    are. Not all rules can be broken by all versions: see ``RULES``.

    Source: appendix A.5, parts 1 and 2 of Figure 7 and part 3 of Figures 6 and 8.
    """
    found: dict[str, list[str]] = {rule: [] for rule in RULES}
    object_words = _stems(item.object)
    if item.properties is None or item.attributes is None:
        missing = [name for name in ("properties", "attributes") if getattr(item, name) is None]
        found["labels"].append(f"the item states no {' and no '.join(missing)}")

    for number in (0, 1):
        premise, hypothesis = item.premises[number], item.hypotheses[number]
        of_premise, of_hypothesis = _stems(premise), _stems(hypothesis)
        named_property = _stems(item.properties[number]) - object_words if item.properties else None
        named_attribute = _stems(item.attributes[number]) - _KIND_WORDS if item.attributes else None

        for sentence in (premise, hypothesis):
            if not sentence.lstrip("\"'“‘(")[:1].isupper():
                found["capital"].append(f"{sentence!r} does not begin with a capital letter")
            if sentence.rstrip("\"'”’)")[-1:] not in (".", "!", "?"):
                found["punctuation"].append(f"{sentence!r} does not end in punctuation")
        if item.version != "visual" and len(premise.split()) < MIN_PREMISE_WORDS:
            found["premise_length"].append(f"{premise!r} has {len(premise.split())} words")
        if not object_words <= of_premise:
            found["premise_object"].append(f"{premise!r} does not name {item.object!r}")
        if not object_words <= of_hypothesis:
            found["hypothesis_object"].append(f"{hypothesis!r} does not name {item.object!r}")
        if named_property is not None:
            label = item.properties[number]
            if named_property and not named_property & of_premise:
                found["premise_property"].append(f"{premise!r} does not name {label!r}")
            if item.version == "pragmatic":
                if named_property and not named_property & of_hypothesis:
                    found["hypothesis_attribute"].append(f"{hypothesis!r} does not name {label!r}")
            elif (named_property - (named_attribute or set())) & of_hypothesis:
                found["hypothesis_property"].append(f"{hypothesis!r} mentions {label!r}")
        if named_attribute is not None:
            label = item.attributes[number]
            if named_attribute & of_premise:
                found["premise_attribute"].append(f"{premise!r} names {label!r}")
            if named_property is not None and named_attribute & named_property:
                found["property_attribute"].append(f"{item.properties[number]!r} mentions {label!r}")
            if item.version in ("single", "visual"):
                if not named_attribute <= of_hypothesis:
                    found["hypothesis_attribute"].append(f"{hypothesis!r} does not name {label!r}")
            elif named_attribute & of_hypothesis:
                found["hypothesis_attribute"].append(f"{hypothesis!r} names {label!r}")
        if item.prototypes is not None:
            prototype = item.prototypes[number]
            if not _stems(prototype) <= of_hypothesis:
                found["hypothesis_attribute"].append(f"{hypothesis!r} does not name {prototype!r}")
            if any(_stems(prototype) <= _stems(other) for other in item.premises):
                found["premise_prototype"].append(f"a premise names {prototype!r}")
        tenses = _tense_of_hypothesis(hypothesis), _tense_of_premise(premise)
        if None not in tenses and tenses[0] != tenses[1]:
            found["tense"].append(f"{hypothesis!r} is in the {tenses[0]} and {premise!r} in the {tenses[1]}")

    if item.version != "pragmatic":
        wanted = item.prototypes if item.version == "multi" and item.prototypes else item.attributes
        problem = _difference(item.hypotheses, wanted if item.version != "multi" or item.prototypes else None)
        if problem:
            found["hypotheses_equal"].append(problem)
    return [RuleBreak(item.id, rule, message) for rule, messages in found.items() for message in messages]


def check_items(items: Iterable[Item]) -> list[RuleBreak]:
    """The annotation rules that items break; see `check_item`."""
    return [problem for item in items for problem in check_item(item)]


class Prototypes(NamedTuple):
    """Objects that have an attribute typically.

    Attributes:
      phrases: attribute kind -> the phrase that replaces the attribute, ``{}`` for the object.
      table: attribute kind -> attribute -> objects with their article, at least one.
    """

    phrases: Mapping[str, str]
    table: Mapping[str, Mapping[str, Sequence[str]]]


def read_prototypes(path: str | os.PathLike = ASSETS / "prototypes.json") -> Prototypes:
    """A table of prototypical objects: ``{"phrases": {kind: phrase}, "table": {kind: {attribute: [object, ...]}}}``.

    Raises:
      InputError: the file is missing or malformed.
    """
    path = pathlib.Path(path)
    try:
        content = json_files.parse(_read(path))
    except ValueError as error:
        raise InputError(f"{path} is not JSON ({error}): mend it") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(key), dict) for key in ("phrases", "table")):
        raise InputError(f"{path} is no object with the objects 'phrases' and 'table': mend it")
    for kind, attributes in content["table"].items():
        phrase = content["phrases"].get(kind)
        if not isinstance(phrase, str) or phrase.count("{}") != 1:
            raise InputError(f"'phrases' in {path} has no text with one {{}} for the kind {kind!r}: add it")
        for attribute, objects in attributes.items() if isinstance(attributes, dict) else [("", None)]:
            if not isinstance(objects, list) or not objects or not all(isinstance(one, str) and one for one in objects):
                raise InputError(f"{attribute!r} of {kind!r} in {path} is no list of objects: mend it")
    return Prototypes(content["phrases"], content["table"])


class MultiHop(NamedTuple):
    """What `build_multi_hop` makes.

    Attributes:
      items: the multi-hop items.
      left_out: (id of a single-hop item, why no multi-hop item can be made of it).
    """

    items: list[Item]
    left_out: list[tuple[str, str]]


def build_multi_hop(items: Iterable[Item], prototypes: Prototypes | None = None) -> MultiHop:
    """Replaces the attributes in the hypotheses of single-hop items by objects that typically have them.

    "The tomato was red." becomes "The tomato was the color of a fire engine.", "made of glass" becomes "made of the
    same material as a window pane". Of the objects of an attribute, the one that has been used least is taken, the
    first in the table among equals; never one that the item itself mentions. Items of other versions are passed over.

    Args:
      items: any items.
      prototypes: None for our table.

    Source: appendix A.2, which prints the phrase for colors ("The banana is the color of an egg yolk"); those for
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
            hypotheses = tuple(
                _replace_attribute(item, number, prototypes.phrases[item.attribute_kind].format(chosen[number]))
                for number in (0, 1)
            )
        except LookupError as error:
            left_out.append((item.id, str(error.args[0])))
            continue
        used.update(chosen)
        built.append(
            dataclasses.replace(
                item,
                id=_derived_id(item.id, "multi"),
                version="multi",
                hypotheses=hypotheses,
                prototypes=chosen,
                source=item.id,
            )
        )
    return MultiHop(built, left_out)


def build_decoupled(item: Item, statements: tuple[str, str]) -> tuple[Item, Item]:
    """The two steps of a single-hop item, each by itself.

    Pragmatic reasoning finds in the premise what it means for the object; visual knowledge reasoning finds the
    attribute from that statement.

    Args:
      item: a single-hop item.
      statements: for each premise a simple sentence that states its property, e.g. "The tomato was ripe."

    Returns:
      The pragmatic item (premises of ``item``, statements as hypotheses) and the visual item (statements as premises,
      hypotheses of ``item``).

    Raises:
      ValueError: the item is no single-hop item.

    Source: appendix A.2, "Pragmatic Reasoning vs. Visual Knowledge Reasoning".
    """
    if item.version != "single":
        raise ValueError(f"{item.id} is a {item.version} item; decoupled items are made of single-hop ones.")
    pragmatic, visual = (
        dataclasses.replace(item, id=_derived_id(item.id, version), version=version, source=item.id)
        for version in ("pragmatic", "visual")
    )
    return dataclasses.replace(pragmatic, hypotheses=statements), dataclasses.replace(visual, premises=statements)


def _derived_id(source: str, version: str) -> str:
    return f"{version}/{source.removeprefix('single/')}"


def _choose_prototypes(item: Item, prototypes: Prototypes, used: Mapping[str, int]) -> tuple[str, str]:
    """Raises LookupError with the reason where there are none."""
    if item.attributes is None:
        raise LookupError("the item states no attributes")
    if item.attribute_kind not in prototypes.table:
        raise LookupError(f"the table has no attributes of the kind {item.attribute_kind!r}")
    texts = [item.object, *item.premises, *(item.properties or ()), *item.hypotheses]
    mentioned = set().union(*(_stems(text) for text in texts))
    chosen: list[str] = []
    for attribute in item.attributes:
        objects = prototypes.table[item.attribute_kind].get(attribute)
        if objects is None:
            raise LookupError(f"the table has no objects for {attribute!r} ({item.attribute_kind})")
        allowed = [one for one in objects if one not in chosen and not _stems(one) & mentioned]
        if not allowed:
            raise LookupError(f"the item mentions every object that the table has for {attribute!r}")
        chosen.append(min(allowed, key=lambda one: used.get(one, 0)))
    return chosen[0], chosen[1]


def _replace_attribute(item: Item, number: int, phrase: str) -> str:
    """Raises LookupError where the hypothesis does not have the attribute as one phrase."""
    hypothesis, attribute = item.hypotheses[number], item.attributes[number]
    if item.attribute_kind == "material" and "made of" not in hypothesis:
        phrase = f"made of {phrase}"
    replaced, count = re.subn(rf"(?<![\w-]){re.escape(attribute)}(?![\w-])", lambda _: phrase, hypothesis)
    if count != 1:
        raise LookupError(f"the hypothesis {hypothesis!r} does not have {attribute!r} as one phrase")
    return replaced


_ENDINGS = ("ish", "ing", "ed", "es", "en", "ly", "s", "e")


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", re.sub(r"[’']s\b", "", text.lower()))


# Words that say nothing about what a longer expression names.
_SMALL_WORDS = frozenset(
    _words(
        "a an and are as at be been being by can for from had has have he her him his in into is it its more most no"
        " not of off on onto or out over own she so than that the their them then there they this to too up very was"
        " were when with without"
    )
)


def _stem(word: str) -> str:
    """The word without a common ending: enough to find "carved" in "carve", no linguistics."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            break
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:-1] + "y" if word.endswith("i") else word


def _stems(text: str) -> set[str]:
    return {_stem(word) for word in _words(text) if word not in _SMALL_WORDS}


# "dome-shaped" is named by "dome", and "the shape of an igloo" does not name it.
_KIND_WORDS = _stems("shape color")


def _difference(hypotheses: tuple[str, str], labels: tuple[str, str] | None) -> str | None:
    """What is wrong with the difference between two hypotheses: more than ``labels`` name, or nothing in common."""
    first, second = _words(hypotheses[0]), _words(hypotheses[1])
    shortest = min(len(first), len(second))
    start = next((n for n in range(shortest) if first[n] != second[n]), shortest)
    rest = shortest - start
    end = next((n for n in range(rest) if first[-1 - n] != second[-1 - n]), rest)
    if start + end == 0:
        return "the hypotheses have neither beginning nor end in common"
    if labels is None:
        return None
    for words, label in zip((first, second), labels, strict=True):
        span = words[start : len(words) - end]
        extra = {word for word in span if word not in _SMALL_WORDS and _stem(word) not in _stems(label)}
        if extra:
            return f"the hypotheses differ in {' '.join(span)!r}, which is more than {label!r}"
    return None


_PRESENT = frozenset(_words("is are am has does do isn aren doesn don hasn"))
_PAST_AUXILIARIES = frozenset(_words("was were had did wasn weren didn hadn"))
# Past forms that are no participles and no other words, so that they tell the tense wherever they stand.
_PAST_VERBS = frozenset(
    _words(
        "went took gave came began knew grew flew drank sang swam ran wrote drove rode fell ate threw blew drew spoke"
        " stole woke tore froze chose hid shook sank sprang"
    )
)


def _tense_of_hypothesis(sentence: str) -> str | None:
    words = set(_words(sentence))
    if bool(words & _PRESENT) == bool(words & _PAST_AUXILIARIES):
        return None
    return "present" if words & _PRESENT else "past"


def _tense_of_premise(sentence: str) -> str | None:
    """None where it has both or neither: a participle proves nothing. Quotations have tenses of their own."""
    words = _words(re.sub('["“][^"”]*["”]', " ", sentence))
    present = any(word in _PRESENT for word in words)
    past = any(word in _PAST_AUXILIARIES or word in _PAST_VERBS for word in words)
    if present and not past:
        # "is" beside "opened" may be a past sentence with a general clause.
        return None if any(word.endswith("ed") for word in words) else "present"
    return "past" if past and not present else None


def _json_rows(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in enumerate(_read(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            values = json_files.parse(line)
        except ValueError as error:
            raise InputError(f"line {number} of {path} is not JSON ({error}): mend the line") from None
        if not isinstance(values, dict):
            raise InputError(f"line {number} of {path} is no object: write one item a line")
        yield number, values


def _csv_rows(path: pathlib.Path) -> Iterator[tuple[int, dict[str, Any]]]:
    reader = csv.DictReader(io.StringIO(_read(path), newline=""), strict=True)
    columns = reader.fieldnames or []
    needed = [column for column in _columns() if column.rsplit("_", 1)[0] in ("premise", "hypothesis")]
    for column in ("id", "object", "version", *needed):
        if column not in columns:
            raise InputError(f"{path} has no column {column!r}: add it")
    for column in columns:
        if column not in _columns() or columns.count(column) > 1:
            raise InputError(f"{path} has a column {column!r} too many: the columns are {', '.join(_columns())}")
    while True:
        # A quoted cell may go over several lines; the item is where it begins.
        line = reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise InputError(f"line {line} of {path} is no row of a table ({error}): mend the line") from None
        if row is None:
            return
        if None in row or None in row.values():
            raise InputError(f"line {line} of {path} has not {len(columns)} cells, as the header has: mend the line")
        row = {column: csv_cells.restored(cell) for column, cell in row.items()}
        values: dict[str, Any] = {}
        for field in _PAIRS:
            cells = [row.get(f"{_SINGULARS[field]}_{number}", "") for number in (1, 2)]
            if any(cells):
                values[field] = cells
        values |= {key: row[key] for key in ("id", "object", "version", "attribute_kind", "source") if row.get(key)}
        yield line, values


def _columns() -> tuple[str, ...]:
    pairs = [f"{_SINGULARS[field]}_{number}" for field in _PAIRS for number in (1, 2)]
    return ("id", "object", "version", *pairs, "attribute_kind", "source")


def _item(values: dict[str, Any], where: str) -> Item:
    known = [field.name for field in dataclasses.fields(Item)]
    for field in values:
        if field not in known:
            raise InputError(f"{where} has the unknown field {field!r}: the fields are {', '.join(known)}")
    for field in _REQUIRED:
        if field not in values:
            raise InputError(f"{where} has no {field!r}: add it")
    for field, value in values.items():
        if field in _PAIRS:
            if not isinstance(value, list) or len(value) != 2 or not all(_is_text(one) for one in value):
                raise InputError(f"{field!r} in {where} is no pair of texts: give two, in the order of the premises")
            if value[0].strip() == value[1].strip():
                raise InputError(f"{field!r} in {where} has the same text twice: a pair has two different ones")
        elif not _is_text(value):
            raise InputError(f"{field!r} in {where} is no text: mend it")
    version, kind = values["version"], values.get("attribute_kind", "other")
    if version not in VERSIONS:
        raise InputError(f"'version' in {where} is {version!r}: it is one of {', '.join(VERSIONS)}")
    if kind not in ATTRIBUTE_KINDS:
        raise InputError(f"'attribute_kind' in {where} is {kind!r}: it is one of {', '.join(ATTRIBUTE_KINDS)}")
    if version in ("pragmatic", "visual") and "source" not in values:
        raise InputError(f"{where} has no 'source': a {version} item names the single-hop item that it was made of")
    if version == "single" and "source" in values:
        raise InputError(f"'source' in {where} is given for a single-hop item: take it away or correct the version")
    texts = {field: tuple(one.strip() for one in values[field]) for field in _PAIRS if field in values}
    return Item(**{**values, **texts})


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_sources(items: Sequence[Item], lines: Mapping[str, int], path: pathlib.Path) -> None:
    singles = {item.id for item in items if item.version == "single"}
    made: dict[tuple[str, str], str] = {}
    for item in items:
        where = f"line {lines[item.id]} of {path}"
        if item.source is None:
            continue
        if item.source not in singles:
            raise InputError(
                f"'source' in {where} is {item.source!r}, which is no single-hop item of the file: correct it"
            )
        other = made.setdefault((item.source, item.version), item.id)
        if other != item.id and item.version != "multi":
            raise InputError(
                f"'source' in {where} is {item.source!r}, as in the {item.version} item {other!r}: keep one"
            )


def _read(path: pathlib.Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}: name an existing one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): it must be a UTF-8 text") from None


def _main(arguments: Sequence[str]) -> None:
    try:
        match list(arguments[1:]):
            case ["check", path]:
                items = read_items(path)
                problems = check_items(items)
                for problem in problems:
                    print(f"{problem.item}: {problem.rule}: {problem.message}")
                counts = collections.Counter(item.version for item in items)
                print(", ".join(f"{counts[version]} {version}" for version in VERSIONS), "items;", end=" ")
                print(f"{len(problems)} breaks of the annotation rules")
                sys.exit(1 if problems else 0)
            case ["multi_hop", path, new]:
                built = build_multi_hop(read_items(path))
                for name, reason in built.left_out:
                    print(f"{name}: left out: {reason}")
                # With their sources, so that the file can be read by itself.
                sources = {item.source for item in built.items}
                write_items(new, [*(one for one in read_items(path) if one.id in sources), *built.items])
                print(f"{new}: {len(built.items)} multi-hop items, with the single-hop items that they are made of")
            case _:
                raise InputError("say 'check FILE' or 'multi_hop FILE NEW_FILE', each file .jsonl or .csv")
    except InputError as error:
        print(error, file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    app.run(_main)
