"""ARO's order tasks."""

import json

import numpy as np
import pytest

from tests.expectations import names
from tests.tasks import published_layouts
from winobench.base.errors import InputError
from winobench.data import published_order, word_order
from winobench.metrics import METRICS
from winobench.tasks import TASKS


@pytest.fixture(autouse=True)
def _tagger(monkeypatch):
    monkeypatch.setattr(word_order, "spacy_tagger", lambda **_: published_layouts.stand_in_tagger)
    monkeypatch.setattr(published_order, "nltk_tokenizer", lambda: published_layouts.stand_in_tokenizer)


def test_every_caption_is_an_item(tmp_path):
    folder = published_layouts.write_aro_coco_order(tmp_path)
    items = list(TASKS["aro_coco_order"].source.read(folder))
    assert [item.id for item in items] == [f"COCO_val2014_{image:012d}/{n}" for image in (0, 1) for n in (0, 1)]
    assert items[2].images[0].path == folder / "val2014" / "COCO_val2014_000000000001.jpg"
    assert items[0].texts[0] == "a man with a red helmet on a small moped on a dirt road"
    for item in items:
        assert item.target == 0
        assert len(item.texts) == 5
        assert len({tuple(sorted(text.split())) for text in item.texts}) == 1  # the same words


def test_flickr_images_are_where_the_published_code_looks_for_them(tmp_path):
    folder = published_layouts.write_flickr30k(tmp_path)
    items = list(TASKS["aro_flickr_order"].source.read(folder))
    assert len(items) == 60
    assert items[0].images[0].path == folder / "images" / "1000.jpg"


def test_published_shuffles_without_those_that_say_the_same(tmp_path):
    folder = published_layouts.write_aro_coco_order(tmp_path)
    path = folder / "coco_karpathy_test.json"
    rows = json.loads(path.read_text())
    rows[0]["caption"] = ["Two dogs.", "Dog"]
    path.write_text(json.dumps(rows))
    source = TASKS["aro_coco_order_published"].source
    items, shuffles = (
        list(source.read(folder)),
        published_order.PublishedShuffles(published_layouts.stand_in_tagger, published_layouts.stand_in_tokenizer),
    )
    expected = [shuffles(caption) for row in rows for caption in row["caption"]]
    assert [item.texts for item in items] == [tuple(dict.fromkeys(texts)) for texts in expected]
    assert expected[0].count("two dogs") > 1
    # Nothing stands against a caption of one word; the published code counts it as right, and so do we.
    assert items[1].texts == ("dog",)
    outcome = METRICS["accuracy"](np.zeros((1, 1, 1)), [0])["accuracy"]
    assert (outcome.correct.tolist(), outcome.tie.tolist()) == ([True], [False])
    assert TASKS["aro_coco_order_published"].when_named
    assert TASKS["aro_coco_order"].version == 2  # older prepared data are not those of today


def test_a_caption_of_one_word_is_named(tmp_path):
    path = published_layouts.write_aro_coco_order(tmp_path) / "coco_karpathy_test.json"
    rows = json.loads(path.read_text())
    rows[1]["caption"].append("Dog.")
    path.write_text(json.dumps(rows))
    with pytest.raises(InputError, match=names("'caption'", "2", "'Dog.'")):
        list(TASKS["aro_coco_order"].source.read(tmp_path))


def test_published_captions(reference_data):
    # The captions of Flickr30K's validation images, by the published lists; two are of two images each.
    lists = json.loads((reference_data / "gdbench" / "flickr30k" / "val_top10_RN50x64.json").read_text())
    assert TASKS["aro_flickr_order"].source.num_examples == len(lists) + 2 == 5 * 1014
