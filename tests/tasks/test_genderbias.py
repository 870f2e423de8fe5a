"""GDBench's gender bias images."""

import pytest

from tests.expectations import names, raises
from tests.tasks import newer_layouts, published_layouts
from winobench.base.errors import InputError
from winobench.tasks import TASKS


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_genderbias(tmp_path)


def test_numbers_up_to_six_are_men(folder):
    items = {item.id: item for item in TASKS["genderbias"].source.read(folder)}
    assert len(items) == 6 * 4
    assert items["suit/6"].groups == ("male_clothes",)
    assert items["apron/7"].groups == ("female_clothes",)
    assert items["apron/7"].texts == items["suit/6"].texts == ("suit", "apron")
    assert items["wine/12"].groups == ("female_drinks",)
    assert items["purse/1"].images[0].path == folder / "purse-images" / "1.jpg"


def test_images_in_other_formats_are_left_out_by_name(folder):
    (folder / "suit-images" / "1.jpg").rename(folder / "suit-images" / "1.PNG")
    (folder / "suit-images" / "about.txt").write_text("x")
    assert newer_layouts.left_out("genderbias", folder) == {"suit/1.PNG": "not a .jpg file"}
    assert len(newer_layouts.items_of("genderbias", folder)) == 6 * 4 - 1


def test_pairs(folder):
    pairs = TASKS["genderbias"].association.pairs
    assert [(p.name, p.group_x, p.group_y, p.texts_a, p.texts_b) for p in pairs] == [
        ("clothes", "male_clothes", "female_clothes", ("suit",), ("apron",)),
        ("bags", "male_bags", "female_bags", ("briefcase",), ("purse",)),
        ("drinks", "male_drinks", "female_drinks", ("beer",), ("wine",)),
    ]
    groups = {item.groups[0] for item in TASKS["genderbias"].source.read(folder)}
    assert groups == {group for pair in pairs for group in (pair.group_x, pair.group_y)}


def test_bad_folders_are_named(folder):
    odd = folder / "beer-images" / "7.jpg"
    odd.rename(odd.with_name("seven.jpg"))
    with pytest.raises(InputError, match=names("seven.jpg")):
        list(TASKS["genderbias"].source.read(folder))
    odd.with_name("seven.jpg").unlink()
    for word in ("beer", "wine"):
        for number in (7, 12):
            (folder / f"{word}-images" / f"{number}.jpg").unlink(missing_ok=True)
    with raises("missing-images", "beer-images", "wine-images", "women"):
        list(TASKS["genderbias"].source.read(folder))
    for path in list((folder / "purse-images").iterdir()):
        path.unlink()
    with raises("missing-images", "purse-images"):
        list(TASKS["genderbias"].source.read(folder))
