"""Self-Bench's candidates: by hand, and every prompt of GenEval's published file in its own list."""

import collections

from winobench.prompts import geneval
from winobench.prompts.named_sets import read_prompts


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
    assert begins[:2] == ["a photo of a bench and a person", "a photo of a bench and a bicycle"]
    assert len(texts) == len(set(texts)) == 101


def test_every_published_prompt_is_in_its_own_list(reference_data):
    folder = reference_data / "newer" / "geneval"
    assert tuple((folder / "object_names.txt").read_text().split("\n")[:80]) == geneval.OBJECTS
    prompts = read_prompts(f"geneval:{folder / 'evaluation_metadata.jsonl'}")
    assert len({prompt.id for prompt in prompts}) == len(prompts) == 553
    for prompt in prompts:
        texts = geneval.candidates(prompt.category, prompt.content["include"])
        assert len(texts) == len(set(texts)) == geneval.SKILLS[prompt.category]
        assert prompt.text in texts
    # Ghosh et al. 2023.
    sizes = {"single_object": 80, "two_object": 99, "counting": 80, "colors": 94, "position": 100, "color_attr": 100}
    assert collections.Counter(prompt.category for prompt in prompts) == sizes
