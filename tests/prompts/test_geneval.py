"""Self-Bench's candidates: by hand, and every prompt of GenEval's published file in its own list."""

import json
import os
import pathlib

import pytest

from winobench.prompts import geneval

REFERENCE = os.environ.get("WINOBENCH_REFERENCE_DATA")


def test_the_lists_by_hand():
    assert geneval.candidates("counting", [{"class": "bus", "count": 3}]) == [
        "a photo of one bus",
        "a photo of two buses",
        "a photo of three buses",
        "a photo of four buses",
    ]
    places = geneval.candidates("position", [{"class": "dog"}, {"class": "orange"}])
    assert places[0] == "a photo of an orange left of a dog"
    assert places[3] == "a photo of an orange below a dog"
    assert geneval.candidates("colors", [{"class": "cow", "color": "orange"}])[1] == "a photo of an orange cow"
    attributes = geneval.candidates("color_attr", [{"class": "cow"}, {"class": "car"}])
    assert attributes[1] == "a photo of a red cow and an orange car"
    assert len(geneval.OBJECTS) == len(set(geneval.OBJECTS)) == 80


def test_pairs_share_an_object_with_the_truth():
    texts = geneval.candidates("two_object", [{"class": "bench"}, {"class": "cat"}])
    truth, begins, ends = texts[0], texts[1:51], texts[51:]
    assert truth == "a photo of a bench and a cat"
    assert all(text.startswith("a photo of a bench and a") and "cat" not in text for text in begins)
    assert all(text.endswith("and a cat") and "bench and" not in text for text in ends)
    # In the order of the names.
    assert begins[:2] == ["a photo of a bench and a person", "a photo of a bench and a bicycle"]
    assert len(texts) == len(set(texts)) == 101


@pytest.mark.skipif(REFERENCE is None, reason="WINOBENCH_REFERENCE_DATA is not set")
def test_every_published_prompt_is_in_its_own_list():
    folder = pathlib.Path(REFERENCE) / "newer" / "geneval"
    assert tuple((folder / "object_names.txt").read_text().split("\n")[:80]) == geneval.OBJECTS
    sizes = dict.fromkeys(geneval.SKILLS, 0)
    for line in (folder / "evaluation_metadata.jsonl").read_text().splitlines():
        row = json.loads(line)
        texts = geneval.candidates(row["tag"], row["include"])
        assert len(texts) == len(set(texts)) == geneval.SKILLS[row["tag"]]
        assert row["prompt"] in texts
        sizes[row["tag"]] += 1
    assert sizes == {
        "single_object": 80,
        "two_object": 99,
        "counting": 80,
        "colors": 94,
        "position": 100,
        "color_attr": 100,
    }
