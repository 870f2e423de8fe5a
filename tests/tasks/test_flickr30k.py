"""Flickr30K among ten candidates, the published lists and our own."""

import json
import pathlib

import numpy as np
import pytest

from tests.expectations import names, raises
from tests.tasks import published_layouts
from winobench.base.errors import InputError
from winobench.tasks import TASKS, flickr30k


@pytest.fixture
def folder(tmp_path):
    return published_layouts.write_flickr30k(tmp_path)


def test_image_side_takes_every_fifth_caption(folder):
    items = list(TASKS["flickr30k_image"].source.read(folder))
    # 12 images have 59 different captions: every fifth are 12.
    assert [item.id for item in items] == [f"caption-{number:06d}" for number in range(0, 59, 5)]
    assert items[0].texts == ("A man walks on the wide beach.",)
    assert items[0].images[0].path == folder / "images" / "1000.jpg"
    assert [image.path.name for image in items[0].images] == [f"{1000 + n}.jpg" for n in range(10)]
    # The tenth caption is the first one's image's as well, so from then on it is every fourth or fifth of an image.
    assert items[2].texts == ("A dog walks in a busy street.",)
    assert {item.target for item in items} == {0}


def test_text_side_keeps_a_repeated_candidate_once(folder):
    items = list(TASKS["flickr30k_text"].source.read(folder))
    assert [item.id for item in items] == [str(1000 + number) for number in range(12)]
    assert [len(item.texts) for item in items] == [10, 10, 10, 9, *[10] * 8]
    assert items[3].texts[0] == "A child walks on the wide beach."
    assert items[3].images[0].path == folder / "images" / "1003.jpg"


def test_published_lists(reference_data):
    folder = reference_data / "gdbench" / "flickr30k"
    lists = json.loads((folder / "val_top10_RN50x64.json").read_text())
    assert len(lists) == 5068
    assert TASKS["aro_flickr_order"].source.num_examples == len(lists) + 2 == 5 * 1014  # two are of two images each
    images = list(TASKS["flickr30k_image"].source.read(folder))
    texts = list(TASKS["flickr30k_text"].source.read(folder))
    assert len(images) == len(texts) == 1014
    assert all(task.source.num_examples == 1014 for task in (TASKS["flickr30k_image"], TASKS["flickr30k_text"]))
    # Every fifth caption is one of each image, and no image's list of captions has another one of its own.
    assert [item.images[0].path for item in images] == [item.images[0].path for item in texts]
    owner = {caption: pathlib.PurePosixPath(paths[0]).stem for caption, paths in lists.items()}
    for item in texts:
        assert [owner[text] == item.id for text in item.texts] == [True] + [False] * (len(item.texts) - 1)
    short = {item.id: len(item.texts) for item in texts if len(item.texts) != 10}
    assert short == dict.fromkeys(("3324375078", "3326024473", "3578841731", "405253184"), 9)


class ByName:
    """Knows an image by the number in its name, and a caption by its words."""

    def encode_images(self, images):
        return np.array([self._vector(int(path.stem) - 1000) for path in images])

    def encode_texts(self, texts):
        words = published_layouts._FLICKR_WORDS
        return np.array([self._vector(words.index(text.split()[1])) for text in texts], np.float32)

    def _vector(self, number):
        angle = 0.1 * number + 0.01 * number**2  # less than half a circle; no two distances are equal
        return [np.cos(angle), np.sin(angle)]


def test_lists_of_our_own_are_read_like_the_published_ones(folder):
    by_text, by_image = flickr30k.build_lists(folder, ByName(), "by-name")
    assert (by_text.name, by_image.name) == ("val_top10_by-name.json", "val_top10_by-name_text.json")
    assert len(json.loads(by_text.read_text())) == 59
    images = list(flickr30k.source("", "by-name").read(folder))
    texts = list(flickr30k.source("_text", "by-name").read(folder))
    assert len(images) == len(texts) == 12
    assert [image.path.name for image in images[0].images] == [f"{1000 + number}.jpg" for number in range(10)]
    # Nine captions of other images, each of which has five, after the image's own first one; never its other four.
    assert texts[0].texts[0] == "A man walks on the wide beach."
    assert "A man walks in a busy street." not in texts[0].texts
    # That is a caption of images 0 and 1, and first in the list of neither.
    assert not any("A man 0 sits by the cold river." in item.texts for item in texts[:2])
    assert [text.split()[1] for text in texts[1].texts] == ["woman", *["man"] * 4, *["dog"] * 5]
    assert [text.split()[1] for text in texts[5].texts] == ["girl"] + ["horse"] * 5 + ["boy"] * 4
    assert flickr30k.source("", "by-name").num_examples is None
    assert flickr30k.source("", "by-name").downloads == ()


def test_lists_of_our_own_need_captions_and_images(folder):
    (folder / "images" / "1004.jpg").unlink()
    with pytest.raises(InputError, match=names("1", "12", "1004.jpg")):
        flickr30k.build_lists(folder, ByName(), "x")
    path = folder / "flickr30k_val.json"
    rows = json.loads(path.read_text())
    path.write_text(json.dumps([*rows, rows[0]]))
    with pytest.raises(InputError, match=names("'image'", "13", "'flickr30k-images/1000.jpg'")):
        flickr30k.build_lists(folder, ByName(), "x")
    path.write_text(json.dumps(rows[:3]))
    with raises("too-few-images", "10", "3"):
        flickr30k.build_lists(folder, ByName(), "x")
