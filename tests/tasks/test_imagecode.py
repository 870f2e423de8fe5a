"""ImageCoDe."""

import json

import pytest

from tests.expectations import raises
from tests.tasks import published_layouts
from winobench.tasks import TASKS


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_imagecode(tmp_path)


def test_photographs_and_videos_are_two_tasks(folder):
    static = list(TASKS["imagecode_static"].source.read(folder))
    video = list(TASKS["imagecode_video"].source.read(folder))
    assert [(item.id.rsplit("/", 1)[1], item.target) for item in static] == [("5", 5), ("7", 7), ("1", 1)]
    assert [item.target for item in video] == [0, 9, 3]
    both = list(TASKS["imagecode"].source.read(folder))
    assert {item.id: item for item in both} == {item.id: item for item in static + video}
    assert len(both) == 6
    assert static[0].texts == ("A deer head hangs next to a painting",)
    sets = folder / "image-sets" / "open-images-1815_f91d6f546e63f20d"
    assert [image.path for image in static[1].images] == [sets / f"img{index}.jpg" for index in range(10)]


def test_photographs_have_recall_at_5():
    static, both = TASKS["imagecode_static"], TASKS["imagecode"]
    assert (static.metric, static.chance) == ("recall", {"recall@1": 0.1, "recall@5": 0.5})
    assert (both.metric, both.chance) == ("accuracy", {"accuracy": 0.1})


@pytest.mark.parametrize("key", ["10", "-1", "one", "٣"])
def test_a_number_of_no_image_is_named(folder, key):
    path = folder / "valid_data.json"
    content = json.loads(path.read_text())
    content["open-images-2_a"][key] = "A cup"
    path.write_text(json.dumps(content))
    with raises("no-such-image", f"'{key}'", "'open-images-2_a'", "valid_data.json"):
        list(TASKS["imagecode_static"].source.read(folder))


def test_published_descriptions(reference_data):
    folder = reference_data / "gdbench" / "imagecode"
    static, video = (list(TASKS[f"imagecode_{kind}"].source.read(folder)) for kind in ("static", "video"))
    assert (len(static), len(video)) == (430, 1872)
    assert len(list(TASKS["imagecode"].source.read(folder))) == TASKS["imagecode"].source.num_examples == 430 + 1872
    assert len({item.id.rsplit("/", 1)[0] for item in static}) == 155
    assert [TASKS[f"imagecode_{kind}"].source.num_examples for kind in ("static", "video")] == [430, 1872]
