"""Winoground in the hub's layout and in GDBench's."""

import json

import pytest

from tests.expectations import names
from tests.tasks import published_layouts
from winobench.base.errors import InputError
from winobench.tasks import TASKS, winoground


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_winoground(tmp_path)


def rows_of(folder):
    return [json.loads(line) for line in (folder / "examples.jsonl").read_text().splitlines()]


def test_items(folder):
    items = list(winoground.read(folder))
    assert [item.id for item in items] == ["0", "1", "2"]
    assert items[0].texts == ("an old person kisses a young person", "a young person kisses an old person")
    assert [image.path for image in items[2].images] == [folder / "images" / f"ex_2_img_{n}.png" for n in (0, 1)]
    assert items[0].groups == ("Relation", "Adjective-Age", "1 main predicate")
    assert items[1].groups == ("Both", "Noun", "Adjective-Color", "Symbolic", "Series", "1 main predicate")
    assert items[2].groups == ("Object", "Scope", "Pragmatics", "2 main predicates")


def test_gdbenchs_file_and_images_beside_it_do_as_well(folder):
    expected = list(winoground.read(folder))
    published_layouts.write_json(folder / "data.json", rows_of(folder))
    (folder / "examples.jsonl").unlink()
    assert list(winoground.read(folder)) == expected
    for path in list((folder / "images").iterdir()):
        path.rename(folder / path.name)
    (folder / "images").rmdir()
    assert list(winoground.read(folder))[1].images[0].path == folder / "ex_1_img_0.png"


def test_an_id_that_occurs_twice_is_named(folder):
    rows = rows_of(folder)
    rows[2]["id"] = 0
    published_layouts.write_json(folder / "data.json", rows)
    with pytest.raises(InputError, match=names("'id'", "3", "data.json", "0")):
        list(winoground.read(folder))


def test_a_row_without_a_caption_is_named(folder):
    rows = rows_of(folder)
    del rows[1]["caption_1"]
    published_layouts.write_json(folder / "data.json", rows)
    with pytest.raises(InputError, match=names("2", "data.json", "'caption_1'")):
        list(winoground.read(folder))


def test_published_rows(reference_data):
    items = list(winoground.read(reference_data / "gdbench" / "winoground"))
    assert len(items) == TASKS["winoground"].source.num_examples == 400
    groups = [group for item in items for group in item.groups]
    # The collapsed tags of the paper's Table 2, its numbers of main predicates, and two of its other tags.
    assert {name: groups.count(name) for name in ("Object", "Relation", "Both")} == {
        "Object": 141,
        "Relation": 233,
        "Both": 26,
    }
    assert groups.count("1 main predicate") == 292
    assert groups.count("2 main predicates") == 108
    assert groups.count("Symbolic") == 41
    assert not any("/" in group for group in groups)
