"""WinoViz items: files, annotation rules one by one, our own set, and the builders of harder versions."""

import collections
import csv
import dataclasses
import json

import pytest

from tests.expectations import raises
from winobench.data import winoviz
from winobench.data.winoviz import Item
from winobench.data.winoviz.__main__ import main

OUR_FILE = winoviz.ASSETS / "items.jsonl"

PREMISES = (
    "After the match Tom pumped the ball up again until it was firm.",
    "After the match Tom pulled the valve out of the ball and sat on it.",
)
ITEM = Item("single/leather-ball", "ball", "single", PREMISES, ("The ball was round.", "The ball was flat."))
ITEM = dataclasses.replace(
    ITEM, properties=("pumped up", "without a valve"), attributes=("round", "flat"), attribute_kind="shape"
)
MULTI = dataclasses.replace(
    ITEM,
    id="multi/leather-ball",
    version="multi",
    hypotheses=("The ball was the shape of a globe.", "The ball was the shape of a pancake."),
    prototypes=("a globe", "a pancake"),
    source=ITEM.id,
)
STATEMENTS = ("The ball was pumped up.", "The ball had lost its valve.")
PRAGMATIC, VISUAL = (
    dataclasses.replace(ITEM, id=f"{version}/leather-ball", version=version, source=ITEM.id, **{field: STATEMENTS})
    for version, field in (("pragmatic", "hypotheses"), ("visual", "premises"))
)


def changed(item=ITEM, **fields):
    return dataclasses.replace(item, **fields)


def broken(item):
    return [problem.rule for problem in winoviz.check_item(item)]


@pytest.mark.parametrize("item", [ITEM, MULTI, PRAGMATIC, VISUAL], ids=lambda item: item.version)
def test_a_good_item_breaks_no_rule(item):
    assert winoviz.check_item(item) == []


BAD_PREMISES = {
    "premise_length": "Tom pumped the ball up again.",
    "premise_object": "After the match Tom pumped the thing up again until it was firm.",
    "premise_property": "After the match Tom kicked the ball over the fence of the yard.",
    "premise_attribute": "After the match Tom pumped the ball up again until it was round.",
    "capital": "after the match Tom pumped the ball up again until it was firm.",
    "punctuation": "After the match Tom pumped the ball up again until it was firm",
    "tense": "Each Sunday after the match, Tom is the one who has to pump the ball.",
}


@pytest.mark.parametrize("rule", BAD_PREMISES)
def test_rules_about_premises(rule):
    (found,) = winoviz.check_item(changed(premises=(BAD_PREMISES[rule], ITEM.premises[1])))
    assert (found.item, found.rule) == (ITEM.id, rule)


BAD_HYPOTHESES = {
    "hypothesis_object": ("The thing was round.", "The ball was flat."),
    "hypothesis_attribute": ("The ball was big.", "The ball was flat."),
    "hypothesis_property": ("The pumped ball was round.", "The pumped ball was flat."),
    "hypotheses_equal": ("The ball was round.", "The ball was quite flat."),
}


@pytest.mark.parametrize("rule", BAD_HYPOTHESES)
def test_rules_about_hypotheses(rule):
    found = broken(changed(hypotheses=BAD_HYPOTHESES[rule]))
    assert rule in found
    # A wrong word is also a difference that is more than the attribute.
    assert set(found) <= {rule, "hypotheses_equal"}


def test_rules_about_labels_and_versions():
    assert "property_attribute" in broken(changed(properties=("pumped up round", "without a valve")))
    assert broken(changed(properties=None, attributes=None)) == ["labels"]
    globe = ("The ball was the shape of a round globe.", "The ball was the shape of a pancake.")
    assert "hypothesis_attribute" in broken(changed(MULTI, hypotheses=globe))
    pancake = (MULTI.premises[0], "Tom pulled the valve out of the ball and ate another pancake.")
    assert broken(changed(MULTI, premises=pancake)) == ["premise_prototype"]
    # A pragmatic hypothesis names the property and not the attribute.
    round_ball = changed(PRAGMATIC, hypotheses=("The ball was round.", STATEMENTS[1]))
    assert broken(round_ball) == ["hypothesis_attribute"] * 2


def test_quotations_and_endings():
    premise = "“The ball that I have pumped up is firm,” said Tom before the match."
    assert broken(changed(premises=(premise, ITEM.premises[1]))) == []
    assert broken(changed(properties=("pumping", "valves"))) == []


ALL = [ITEM, MULTI, PRAGMATIC, VISUAL]


@pytest.mark.parametrize("name", ["items.jsonl", "items.csv"])
def test_files_round_trip(tmp_path, name):
    winoviz.write_items(tmp_path / name, ALL)
    assert winoviz.read_items(tmp_path / name) == ALL


def test_the_least_a_file_needs(tmp_path):
    keys = ("id", "object", "version", "premises", "hypotheses")
    row = {key: value for key, value in ITEM.to_json().items() if key in keys}
    path = tmp_path / "items.jsonl"
    path.write_text(json.dumps(row) + "\n\n")
    (item,) = winoviz.read_items(path)
    assert (item.properties, item.attributes, item.source, item.attribute_kind) == (None, None, None, "other")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"id": None}, ("missing-field", "1", "'id'")),
        ({"color": "red"}, ("unknown-field", "1", "'color'")),
        ({"object": " "}, ("not-a-text", "'object'", "1")),
        ({"premises": ["One."]}, ("not-a-pair", "'premises'", "1")),
        ({"hypotheses": ["One.", "One. "]}, ("repeated-text", "'hypotheses'", "1")),
        ({"version": "double"}, ("unknown-name", "'version'", "1", "'double'")),
        ({"source": "x"}, ("field-not-allowed", "'source'", "1")),
        ({"version": "visual"}, ("missing-field", "1", "'source'")),
        ({"version": "multi", "source": "x"}, ("unknown-source", "'source'", "1", "'x'")),
        ("", ("empty-file",)),
        ("{", ("not-json", "1")),
        ('{"id": "1", "id": "2"}', ("repeated-key", "1", "'id'")),
        ([ITEM, ITEM], ("repeated-id", "'id'", "2", "1")),
        ([ITEM, VISUAL, changed(VISUAL, id="another")], ("repeated-source", "'source'", "3")),
    ],
)
def test_malformed_json_lines(tmp_path, content, message):
    """Changes of an item, texts, and items that cannot be together."""
    path = tmp_path / "items.jsonl"
    if isinstance(content, list):
        winoviz.write_items(path, content)
    else:
        row = ITEM.to_json() | content if isinstance(content, dict) else {}
        kept = {key: value for key, value in row.items() if value is not None}
        path.write_text(json.dumps(kept) if kept else content)
    with raises(*message):
        winoviz.read_items(path)


def test_other_files(tmp_path):
    with raises("unsupported-file-format"):
        winoviz.read_items(tmp_path / "items.txt")
    with raises("no-such-file", "items.csv"):
        winoviz.read_items(tmp_path / "items.csv")
    with raises("cannot-write"):
        winoviz.write_items(tmp_path / "nowhere" / "items.csv", ALL)
    (tmp_path / "items.csv").write_bytes(b"\xff\xfe\xff")
    with raises("cannot-read", "items.csv"):
        winoviz.read_items(tmp_path / "items.csv")


def test_malformed_tables(tmp_path):
    path = tmp_path / "items.csv"
    winoviz.write_items(path, [ITEM])
    header, row = path.read_text().splitlines()
    for text, message in (
        (header.replace("premise_2", "premise_3") + "\n" + row, ("missing-column", "'premise_2'")),
        (header + ",mood\n" + row + ",good", ("unknown-column", "'mood'")),
        (header + "\n" + row + ",x", ("wrong-number-of-cells", "2", "15")),
        (header + '\n"1', ("damaged-table", "2")),
    ):
        path.write_text(text)
        with raises(*message):
            winoviz.read_items(path)


def test_a_table_from_a_spreadsheet(tmp_path):
    path = tmp_path / "items.csv"
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "version", "object", "hypothesis_1", "hypothesis_2", "premise_1", "premise_2"])
        writer.writerow(["1", "single", "ball", *ITEM.hypotheses, *ITEM.premises])
    (item,) = winoviz.read_items(path)
    assert (item.premises, item.hypotheses) == (ITEM.premises, ITEM.hypotheses)


TABLE = winoviz.Prototypes(
    {"color": "the color of {}", "shape": "the shape of {}", "material": "the same material as {}"},
    {
        "color": {"red": ["a cherry", "blood"], "green": ["a frog"]},
        "shape": {"round": ["a globe"], "flat": ["a pancake", "a doormat"]},
        "material": {"glass": ["a lens"], "wood": ["a log"]},
    },
)


def plain(kind, attributes, hypothesis="The thing was {}.", premises=("It stood here.", "It stood there.")):
    hypotheses = tuple(hypothesis.format(one) for one in attributes)
    item = Item("/".join(attributes), "thing", "single", premises, hypotheses)
    return changed(item, attributes=attributes, attribute_kind=kind)


def test_multi_hop_phrases():
    items = [
        plain("color", ("red", "green"), "The thing was {} inside."),
        ITEM,
        plain("material", ("glass", "wood"), "The thing was made of {}."),
        plain("material", ("wood", "glass")),
        PRAGMATIC,
    ]
    built, left_out = winoviz.build_multi_hop(items, TABLE)
    assert left_out == []
    assert [item.hypotheses for item in built] == [
        ("The thing was the color of a cherry inside.", "The thing was the color of a frog inside."),
        ("The ball was the shape of a globe.", "The ball was the shape of a pancake."),
        ("The thing was made of the same material as a lens.", "The thing was made of the same material as a log."),
        ("The thing was made of the same material as a log.", "The thing was made of the same material as a lens."),
    ]
    assert built[1] == MULTI


def test_multi_hop_takes_turns_and_avoids_what_the_item_mentions():
    red = plain("color", ("red", "green"))
    bloody = changed(red, id="bloody", premises=("It stood in blood.", "It stood."))
    again = changed(red, id="again")
    built, _ = winoviz.build_multi_hop([red, bloody, again], TABLE)
    assert [item.prototypes[0] for item in built] == ["a cherry", "a cherry", "blood"]


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (plain("size", ("big", "small")), "no attributes of the kind 'size'"),
        (plain("color", ("red", "blue")), "no objects for 'blue'"),
        (changed(plain("color", ("red", "green")), attributes=None), "states no attributes"),
        (changed(plain("color", ("red", "green")), hypotheses=("It was rusty.", "It was new.")), "as one"),
        (plain("color", ("red", "green"), premises=("A frog.", "No frogs.")), "mentions every object"),
    ],
)
def test_what_cannot_be_built_is_said(item, reason):
    built, [(name, why)] = winoviz.build_multi_hop([item], TABLE)
    assert (built, name) == ([], item.id)
    assert reason in why


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", ("not-json", "prototypes.json")),
        ("[]", ("not-an-object", "'phrases'", "'table'")),
        ('{"phrases": {}, "table": {"color": {}}}', ("missing-field", "'color'")),
        ('{"phrases": {"color": "like {}"}, "table": {"color": {"red": []}}}', ("not-an-object", "'red'", "'color'")),
    ],
)
def test_malformed_prototypes(tmp_path, content, message):
    path = tmp_path / "prototypes.json"
    path.write_text(content)
    with raises(*message):
        winoviz.read_prototypes(path)


def test_our_set():
    assert set(winoviz.RULES) == {*BAD_PREMISES, *BAD_HYPOTHESES, "labels", "property_attribute", "premise_prototype"}
    items = winoviz.read_items(OUR_FILE)
    assert winoviz.check_items(items) == []
    by_version = {version: [item for item in items if item.version == version] for version in winoviz.VERSIONS}
    counts = {version: len(some) for version, some in by_version.items()}
    assert counts == {"single": 67, "multi": 51, "pragmatic": 37, "visual": 37}
    kinds = collections.Counter(item.attribute_kind for item in by_version["multi"])
    assert kinds == {"color": 26, "shape": 13, "material": 12}
    # No sentence twice, but where a version takes it over.
    premises = [premise for item in by_version["single"] for premise in item.premises]
    assert len(set(premises)) == len(premises)
    # In our set, neither premise may name either attribute.
    for item in by_version["single"]:
        assert "premise_attribute" not in broken(changed(item, attributes=item.attributes[::-1])), item.id


def test_our_harder_versions_are_built_from_our_single_hop_items():
    items = winoviz.read_items(OUR_FILE)
    singles = {item.id: item for item in items if item.version == "single"}
    assert winoviz.build_multi_hop(singles.values()).items == [item for item in items if item.version == "multi"]
    pragmatic, visual = ([item for item in items if item.version == version] for version in ("pragmatic", "visual"))
    for step, other in zip(pragmatic, visual, strict=True):
        single = singles[step.source]
        assert (step.premises, step.hypotheses) == (single.premises, other.premises)
        assert (other.source, other.hypotheses) == (single.id, single.hypotheses)


def test_the_command(tmp_path, capsys):
    path, new = str(tmp_path / "items.csv"), str(tmp_path / "multi.jsonl")
    winoviz.write_items(path, [ITEM, changed(id="bad", attribute_kind="size", object="bat")])
    with pytest.raises(SystemExit, match="1"):
        main(["", "check", path])
    said = capsys.readouterr().out
    assert "bad: premise_object: " in said
    assert "2 single, 0 multi, 0 pragmatic, 0 visual items; 4 breaks" in said
    main(["", "multi_hop", path, new])
    assert "bad: left out" in capsys.readouterr().out
    assert [item.version for item in winoviz.read_items(new)] == ["single", "multi"]
    with pytest.raises(SystemExit, match="2"):
        main(["", "multi_hop", path])
    assert capsys.readouterr().err.count("\n") == 1
