"""MMBias."""

import json

import pytest

from tests.expectations import names
from tests.tasks import published_layouts
from winobench.errors import InputError
from winobench.tasks import TASKS, mmbias


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_mmbias(tmp_path)


def test_every_image_has_all_phrases(folder):
    items = list(TASKS["mmbias"].source.read(folder))
    assert len(items) == 9 * 3  # hidden files and other groups are left out
    assert [item.groups for item in items[::3]] == [(group,) for group in mmbias.GROUPS]
    assert items[0].id == "Christian/1"
    assert items[-1].images[0].path == folder / "data" / "Images" / "Sexual Orientation" / "LGBT" / "3.jpg"
    assert all(item.texts == mmbias.PLEASANT + mmbias.UNPLEASANT for item in items)


def test_pairs_of_tables_3_and_5():
    pairs = TASKS["mmbias"].association.pairs
    assert [pair.name for pair in pairs] == [
        "Christian-Muslim",
        "Christian-Jewish",
        "Jewish-Muslim",
        "Hindu-Muslim",
        "American-Arab",
        "Heterosexual-LGBT",
        "Buddhist-Muslim",
        "Buddhist-Christian",
        "Buddhist-Hindu",
        "Buddhist-Jewish",
    ]
    for pair in pairs:
        assert pair.name == f"{pair.group_x}-{pair.group_y}"
        assert {pair.group_x, pair.group_y} <= set(mmbias.GROUPS)
        assert (pair.texts_a, pair.texts_b) == (mmbias.PLEASANT, mmbias.UNPLEASANT)


def test_the_repositorys_own_place_of_the_phrases_does_as_well(folder):
    expected = list(mmbias.read(folder))
    (folder / "textual_phrases.txt").rename(folder / "data" / "textual_phrases.txt")
    assert list(mmbias.read(folder)) == expected


def test_other_phrases_are_refused(folder):
    path = folder / "textual_phrases.txt"
    phrases = json.loads(path.read_text())
    phrases["pleasant_phrases"][3] = "unsafe"
    path.write_text(json.dumps(phrases))
    with pytest.raises(InputError, match=names("'pleasant_phrases'", "textual_phrases.txt")):
        list(mmbias.read(folder))
    phrases["pleasant_phrases"].pop()
    path.write_text(json.dumps(phrases))
    with pytest.raises(InputError, match=names("'pleasant_phrases'", "59", "60")):
        list(mmbias.read(folder))


def test_a_group_without_images_is_named(folder):
    for path in list((folder / "data" / "Images" / "Religion" / "Hindu").iterdir()):
        path.unlink()
    with pytest.raises(InputError, match=names("Religion/Hindu")):
        list(mmbias.read(folder))


def test_published_phrases(reference_data):
    phrases = json.loads((reference_data / "gdbench" / "mmbias" / "textual_phrases.txt").read_text())
    assert tuple(phrases["pleasant_phrases"]) == mmbias.PLEASANT
    assert tuple(phrases["unpleasant_phrases"]) == mmbias.UNPLEASANT
    assert len(set(mmbias.PLEASANT)) == len(set(mmbias.UNPLEASANT)) == 60
