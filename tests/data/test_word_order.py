"""Order perturbations: worked by hand, and their properties."""

import collections
import subprocess
import sys

import numpy as np
import pytest

from tests.expectations import names
from tests.tasks.published_layouts import stand_in_tagger
from winobench.data import word_order
from winobench.errors import InputError

TAGS = ["DT", "JJ", "NN", "VBZ", "IN", "DT", "JJ", "NN", "."]
#        the  red  dog   runs  to   the  big  house .
CAPTION = "A red dog walks on the large beach with her old horse."


class Reversing:
    """Stands for a random generator: every shuffle reverses."""

    def permutation(self, values):
        return np.arange(values)[::-1] if isinstance(values, int) else np.asarray(values)[::-1]


@pytest.mark.parametrize(
    ("shuffle", "expected"),
    [
        (word_order.shuffle_nouns_and_adjectives, [0, 6, 7, 3, 4, 5, 1, 2, 8]),
        (word_order.shuffle_all_but_nouns_and_adjectives, [8, 1, 2, 5, 4, 3, 6, 7, 0]),
        (word_order.shuffle_within_trigrams, [2, 1, 0, 5, 4, 3, 8, 7, 6]),
        (word_order.shuffle_trigrams, [6, 7, 8, 3, 4, 5, 0, 1, 2]),
    ],
)
def test_worked_by_hand(shuffle, expected):
    assert shuffle(TAGS, Reversing()).tolist() == expected


def test_the_last_trigram_may_be_shorter():
    tags = ["NN"] * 5
    assert word_order.shuffle_within_trigrams(tags, Reversing()).tolist() == [2, 1, 0, 4, 3]
    assert word_order.shuffle_trigrams(tags, Reversing()).tolist() == [3, 4, 0, 1, 2]


@pytest.mark.parametrize("seed", range(20))
def test_what_may_move_and_what_stays(seed):
    rng = np.random.default_rng(seed)
    tags = rng.choice(["NN", "NNS", "NNP", "NNPS", "JJ", "JJR", "JJS", "VB", "DT", "IN"], size=rng.integers(1, 14))
    is_noun, is_adjective = np.char.startswith(tags, "NN"), np.char.startswith(tags, "JJ")
    places = np.arange(len(tags))
    for shuffle in word_order.PERTURBATIONS:
        assert sorted(shuffle(tags, rng)) == places.tolist()
    order = word_order.shuffle_nouns_and_adjectives(tags, rng)
    assert (order == places)[~is_noun & ~is_adjective].all()
    assert is_noun[order].tolist() == is_noun.tolist()
    assert is_adjective[order].tolist() == is_adjective.tolist()
    order = word_order.shuffle_all_but_nouns_and_adjectives(tags, rng)
    assert (order == places)[is_noun | is_adjective].all()
    assert (word_order.shuffle_within_trigrams(tags, rng) // 3 == places // 3).all()
    new_place = np.argsort(word_order.shuffle_trigrams(tags, rng))
    for place in places[places % 3 > 0]:
        assert new_place[place] == new_place[place - 1] + 1


def test_all_orders_are_equally_likely():
    rng = np.random.default_rng(0)
    counts = collections.Counter(tuple(word_order.shuffle_within_trigrams(["NN"] * 3, rng)) for _ in range(6000))
    assert len(counts) == 6
    assert all(abs(count - 1000) < 5 * (1000 * 5 / 6) ** 0.5 for count in counts.values())  # 5 sigma


def test_cleaning():
    assert word_order.clean_caption('  A "dog", (brown) runs;  it\'s #1 :~*! \n') == "a dog , brown runs it's 1"
    assert word_order.clean_caption("T-shirt, red.") == "t-shirt, red"


def test_candidates():
    candidates = word_order.reordered_captions(CAPTION, stand_in_tagger)
    assert candidates[0] == "a red dog walks on the large beach with her old horse"
    assert len(set(candidates)) == 5
    words = candidates[0].split()
    assert all(sorted(text.split()) == sorted(words) for text in candidates)
    nouns, others = candidates[1].split(), candidates[2].split()
    names, qualities = ["dog", "beach", "horse"], ["red", "large", "old"]
    for old, new in zip(words, nouns, strict=True):
        for kind in (names, qualities):
            assert (old in kind) == (new in kind)
        if old not in names + qualities:
            assert new == old
    assert [word for word in others if word in names + qualities] == ["red", "dog", "large", "beach", "old", "horse"]
    # The trigrams of the third one have the words of the caption's; the full stop is in the last of five.
    for start in range(0, 12, 3):
        assert sorted(candidates[3].split()[start : start + 3]) == sorted(words[start : start + 3])
    text = candidates[4]
    assert all(" ".join(words[start : start + 3]) in text for start in range(0, 12, 3))


def test_seed_and_caption_decide():
    first = word_order.reordered_captions(CAPTION, stand_in_tagger)
    assert word_order.reordered_captions(CAPTION, stand_in_tagger, seed=0) == first
    assert word_order.reordered_captions(CAPTION, stand_in_tagger, seed=1) != first
    # A perturbation is the same whatever else is asked for.
    assert (
        word_order.reordered_captions(CAPTION, stand_in_tagger, perturbations=word_order.PERTURBATIONS[:1]) == first[:2]
    )
    code = (
        "from tests.tasks.published_layouts import stand_in_tagger\nfrom winobench.data import word_order\n"
        f"print('\\n'.join(word_order.reordered_captions({CAPTION!r}, stand_in_tagger)), end='')"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert tuple(run.stdout.split("\n")) == first


def test_draws_that_change_nothing_are_drawn_again():
    # Half of all draws of two nouns leave them where they are.
    captions = [f"dog {number} near" for number in range(50)]
    for caption in captions:
        candidates = word_order.reordered_captions(caption, stand_in_tagger)
        assert len(set(candidates)) == len(candidates)
        number = caption.split()[1]
        assert candidates[1] == f"{number} dog near"


def test_what_cannot_be_changed_is_left_out():
    # One noun, one other word and one trigram: only the order within it can change, to one other.
    assert word_order.reordered_captions("a dog.", lambda text: [("a", "DT"), ("dog", "NN")]) == ("a dog", "dog a")
    assert word_order.reordered_captions("Dog", stand_in_tagger) == ("dog",)
    assert word_order.reordered_captions("dog dog Dog", stand_in_tagger) == ("dog dog dog",)
    assert word_order.reordered_captions("", lambda text: []) == ("",)


def test_other_spaces_are_no_other_order():
    # The tagger cuts more finely than spaces do; "man 's" is "man's", not a perturbation of it.
    def tagger(text):
        return [("man", "NN"), ("'s", "POS")]

    assert word_order.reordered_captions("man's", tagger) == ("man's", "'s man")


def test_long_captions_are_cut_before_they_are_shuffled():
    caption = " ".join(f"word{number}," for number in range(40)) + " end."
    seen = []

    def tagger(text):
        seen.append(text)
        return stand_in_tagger(text)

    candidates = word_order.reordered_captions(caption, tagger)
    assert seen == [" ".join(f"word{number}," for number in range(30))]
    assert len(candidates[0].split()) == 30
    assert all(sorted(text.split()) == sorted(candidates[0].split()) for text in candidates)


def test_missing_spacy_is_said_clearly(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(InputError, match=names("spaCy", "'winobench[order]'", "en_core_web_sm")):
        word_order.spacy_tagger()


def test_missing_model_is_said_clearly():
    pytest.importorskip("spacy")
    with pytest.raises(InputError, match=names("spaCy", "no_such_model")):
        word_order.spacy_tagger("no_such_model")


def test_spacy_pipeline_is_used(tmp_path):
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("attribute_ruler")
    ruler.add([[{"LOWER": "dog"}]], {"TAG": "NN"})
    ruler.add([[{"LOWER": "big"}]], {"TAG": "JJ"})
    pipeline.to_disk(tmp_path / "model")
    tagger = word_order.spacy_tagger(str(tmp_path / "model"))
    assert tagger("the big  dog's.") == [("the", ""), ("big", "JJ"), ("dog", "NN"), ("'s", ""), (".", "")]
