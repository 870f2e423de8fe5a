"""ARO's Visual Genome tasks."""

import json

import pytest

from tests.expectations import names, raises
from tests.tasks import published_layouts
from winobench.base.errors import InputError
from winobench.data.example import ImageFile
from winobench.tasks import TASKS, aro_visual_genome


def test_relations(tmp_path):
    folder = published_layouts.write_aro_vg_relation(tmp_path)
    items = list(TASKS["aro_vg_relation"].source.read(folder))
    assert [item.id for item in items] == [f"row-{number:06d}" for number in range(5)]
    # (x, y, x + w, y + h) of x = 1, y = 2, w = 13, h = 9
    assert items[1].images == (ImageFile(folder / "images" / "1.jpg", (1, 2, 14, 11)),)
    assert items[0].texts == ("the cup is on the table 0", "the table 0 is on the cup")
    # "next to" is symmetric, and does not count for the mean over relations.
    assert [item.groups for item in items] == [("on",), (), ("on",), ("behind",), ("to the left of",)]


def test_attributes_count_from_25_rows_on(tmp_path):
    folder = published_layouts.write_aro_vg_attribution(tmp_path)
    items = list(TASKS["aro_vg_attribution"].source.read(folder))
    assert [item.groups for item in items] == [("white_black",)] * 25 + [()] * 3
    assert items[0].texts[0] == "the white door and the black road 0"


def test_all_relations_that_are_left_out_are_listed():
    assert len(aro_visual_genome.SYMMETRIC_RELATIONS) == 157
    assert {"close to", "hanging over", "larger than", "around", "adjusting"} <= aro_visual_genome.SYMMETRIC_RELATIONS
    assert not any("\n" in name or "  " in name for name in aro_visual_genome.SYMMETRIC_RELATIONS)
    assert "on" not in aro_visual_genome.SYMMETRIC_RELATIONS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bbox_w": 0}, ("bad-box", "3", "json", "0", "9", "(2, 2)")),
        ({"bbox_h": -4}, ("bad-box", "3", "json")),
        ({"bbox_x": -40}, ("bad-box", "3", "json")),
        ({"bbox_y": None}, ("not-a-number", "'bbox_y'", "3", "json")),
        ({"bbox_y": "7"}, ("not-a-number", "'bbox_y'", "3", "json")),
    ],
)
def test_impossible_boxes_are_named(tmp_path, change, message):
    path = published_layouts.write_aro_vg_relation(tmp_path) / "visual_genome_relation.json"
    rows = json.loads(path.read_text())
    rows[2] |= change
    path.write_text(json.dumps(rows))
    with raises(*message):
        list(TASKS["aro_vg_relation"].source.read(tmp_path))


def test_boxes_are_rounded_as_pil_rounds_them(tmp_path):
    path = published_layouts.write_aro_vg_relation(tmp_path) / "visual_genome_relation.json"
    rows = json.loads(path.read_text())
    rows[0] |= {"bbox_x": -0.6, "bbox_y": 1.4, "bbox_w": 10.2, "bbox_h": 8}
    path.write_text(json.dumps(rows))
    assert next(iter(TASKS["aro_vg_relation"].source.read(tmp_path))).images[0].box == (-1, 1, 10, 9)


def test_attributes_are_a_pair(tmp_path):
    path = published_layouts.write_aro_vg_attribution(tmp_path) / "visual_genome_attribution.json"
    rows = json.loads(path.read_text())
    rows[4]["attributes"] = ["white"]
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match=names("'attributes'", "5", "1", "2")):
        list(TASKS["aro_vg_attribution"].source.read(tmp_path))
