"""Labels on disk: the last one of an item counts, a kill loses nothing, and damage is named."""

import json
import pathlib

import pytest

from tests.expectations import raises
from winobench.contrib.people import judging
from winobench.contrib.people.judging import labels as labels_module

CHOICES = ("left", "right")


def labels(folder, name="anna"):
    return judging.Labels(folder, name, CHOICES)


def test_the_last_label_of_an_item_counts(tmp_path):
    clicks = [("a", "left"), ("b", "left"), ("a", "right"), ("b", None)]
    with labels(tmp_path / "people") as anna:
        for click in clicks:
            anna.add(*click)
        assert anna.labels == {"a": "right"}
        lines = [json.loads(line) for line in anna.path.read_text().splitlines()]
    assert [(line["item"], line["label"]) for line in lines] == clicks
    assert judging.read_labels(tmp_path / "people", CHOICES) == {"anna": {"a": "right"}}
    assert judging.read_labels(tmp_path / "nobody", CHOICES) == {}


def test_half_a_line_is_no_label(tmp_path):
    with labels(tmp_path) as anna:
        anna.add("a", "left")
    # A kill in the middle of a line: the click was not answered, and does not count.
    with (tmp_path / "anna.jsonl").open("a") as file:
        file.write('{"item": "b", "lab')
    assert judging.read_labels(tmp_path, CHOICES) == {"anna": {"a": "left"}}
    with labels(tmp_path) as anna:
        assert anna.labels == {"a": "left"}
        anna.add("b", "right")
    assert judging.read_labels(tmp_path, CHOICES)["anna"] == {"a": "left", "b": "right"}


def test_a_person_has_one_page_at_a_time(tmp_path):
    with labels(tmp_path), raises("in-use", "'anna'"):
        labels(tmp_path).__enter__()
    with labels(tmp_path), labels(tmp_path, "ben"):
        pass


@pytest.mark.parametrize("name", ["", "../anna", "a b", "x" * 41, "a/b", "a\0"])
def test_a_name_is_one_that_a_file_can_have(tmp_path, name):
    with raises("bad-name", repr(name)):
        labels(tmp_path, name)


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with raises("cannot-write", "file/anna.jsonl"), labels(tmp_path / "file"):
        pass


@pytest.mark.parametrize(
    "line",
    [
        b'{"item": "a", "label": "fine"}',
        b'{"item": {"a": 1}, "label": "left"}',
        b"[" * 100_000,
        b'{"item": "a", "label": ' + b"9" * 5000 + b"}",
        b"\xff",
    ],
)
def test_a_line_that_is_no_label_is_named(line):
    with raises("damaged-file", "anna.jsonl", "1"):
        labels_module.parse(line, pathlib.Path("anna.jsonl"), CHOICES)
