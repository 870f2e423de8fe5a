"""Captions with words exchanged, and nearest images."""

import collections

import numpy as np
import pytest

from tests.expectations import names, raises
from winobench.data import candidates, negatives
from winobench.data.word_order import letters

_TAGS = {"a": "DT", "an": "DT", "the": "DT", "her": "PRP$", "and": "CC", "is": "VBZ", "two": "CD", "Paris": "NNP"}
_TAGS |= dict.fromkeys(("big", "red", "blue", "little", "old"), "JJ") | dict.fromkeys(("very", "slowly"), "RB")
_TAGS |= dict.fromkeys(("holding", "petting", "sitting"), "VBG") | dict.fromkeys(("rides", "sits"), "VBZ")
_TAGS |= {"sit": "VBP", "ridden": "VBN"}
_TAGS |= dict.fromkeys(("on", "in", "of", "with", "near", "to"), "IN") | {",": ",", ".": ".", "BBC": "NNP"}


def tagger(text):
    """Unknown words are nouns."""
    tokens = text.replace(".", " .").replace(",", " ,").split()
    return [(token, _TAGS.get(token, _TAGS.get(token.lower(), "NN"))) for token in tokens]


def of(caption, seeds=40):
    return {text for seed in range(seeds) for text in negatives.swapped_captions(caption, tagger, seed=seed)}


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("Men sit near goats.", {"Goats sit near men."}),
        ("Paris near a lake", {"A lake near Paris", "Lake near a Paris"}),
        (
            "a  big dog near a red cat",
            {"a  red dog near a big cat", "a  big cat near a red dog", "a red cat near a  big dog"},
        ),
        ("a dog is in Paris", {"a Paris is in dog", "Paris is in a dog"}),
        ("she rides slowly and sits", {"she sits slowly and rides"}),
        # One unit of each kind, equal ones, or such as may change places without a change of meaning.
        *((caption, set()) for caption in ("A dog.", "a dog near a Dog", "a dog and a cat", "a big, red and old bus")),
        # Verbs in the same form only, and no auxiliaries.
        *((caption, set()) for caption in ("she is sitting", "ridden, sitting")),
    ],
)
def test_worked_by_hand(caption, expected):
    assert of(caption) == expected


def test_each_kind_gives_one():
    caption = "A little girl holding a kitten very near a blue fence and petting it slowly ."
    kinds = collections.Counter()
    for seed in range(50):
        texts = negatives.swapped_captions(caption, tagger, seed=seed)
        assert len(texts) == 5
        assert len({letters(text) for text in (caption, *texts)}) == 6
        for text in texts:
            assert sorted(text.lower().split()) == sorted(caption.lower().split())
            kinds[text] += 1
    assert "A blue girl holding a kitten very near a little fence and petting it slowly ." in kinds
    assert "A little girl petting a kitten very near a blue fence and holding it slowly ." in kinds
    assert "A little girl holding a kitten slowly near a blue fence and petting it very ." in kinds
    assert "A blue fence holding a kitten very near a little girl and petting it slowly ." in kinds


def test_draws_depend_on_seed_and_caption_alone():
    captions = ["a cat on a tree near the sea with her friend", "a cat on a tree near the sea with two friends"]
    first = [negatives.swapped_captions(caption, tagger, seed=3) for caption in captions]
    assert [negatives.swapped_captions(caption, tagger, seed=3) for caption in reversed(captions)] == first[::-1]
    assert len({negatives.swapped_captions(captions[0], tagger, seed=seed) for seed in range(20)}) > 5


def test_a_tagger_that_changes_the_text_is_an_error():
    with pytest.raises(ValueError, match=names("'``'")):
        negatives.swapped_captions('a "dog"', lambda text: [("a", "DT"), ("``", "``")])


def test_nearest_images_against_a_plain_search(monkeypatch):
    monkeypatch.setattr(candidates, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(candidates, "_BLOCK_COLUMNS", 5)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 6)).astype(np.float32)
    captions = [[f"caption {number}", f"Of  {number // 3}"] for number in range(30)]
    captions[4][1] = "of 9"
    found = negatives.nearest_images(vectors, captions, 4)
    assert found.shape == (30, 4)
    unit = vectors.astype(np.float64) / np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    for image in range(30):
        mine = {letters(text) for text in captions[image]}
        others = [n for n in range(30) if not mine & {letters(text) for text in captions[n]}]
        assert found[image].tolist() == sorted(others, key=lambda n: -(unit[n] @ unit[image]))[:4]


def test_too_few_images():
    with raises("too-few-images", "3", "4", "2"):
        negatives.nearest_images(np.eye(4), [["a"], ["A"], ["b"], ["c"]])
    found = negatives.nearest_images(np.eye(4), [["a"], ["A"], ["b"], ["c"]], 2)
    assert found.tolist() == [[2, 3], [2, 3], [0, 1], [0, 1]]
    with raises("too-few-images", "0"):
        negatives.nearest_images(np.eye(1), [["a"]])
