"""Order perturbations: worked by hand, and their properties."""

import collections
import re
import sys

import numpy as np
import pytest

from tests.expectations import names
from tests.tasks.published_layouts import stand_in_tagger
from winobench.base.errors import InputError
from winobench.data import word_order

TAGS = ["DT", "JJ", "NN", "VBZ", "IN", "DT", "JJ", "NN", "."]
#        the  red  dog   runs  to   the  big  house .
CAPTION = "A red dog walks on the large beach with her old horse."


class Reversing:
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
    if shuffle is word_order.shuffle_trigrams:  # the last one may be shorter
        assert shuffle(TAGS[:5], Reversing()).tolist() == [3, 4, 0, 1, 2]


@pytest.mark.parametrize("seed", range(10))
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


def test_seed_and_caption_decide():
    first = word_order.reordered_captions(CAPTION, stand_in_tagger)
    assert word_order.reordered_captions(CAPTION, stand_in_tagger, seed=1) != first
    # A perturbation is the same whatever else is asked for.
    assert (
        word_order.reordered_captions(CAPTION, stand_in_tagger, perturbations=word_order.PERTURBATIONS[:1]) == first[:2]
    )
    # Nor does it differ from process to process or release to release.
    assert first == (
        "a red dog walks on the large beach with her old horse",
        "a red horse walks on the large beach with her old dog",
        "on red dog the with walks large beach her a old horse",
        "red dog a on the walks with large beach her horse old",
        "her old horse walks on the large beach with a red dog",
    )


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


_TREEBANK = re.compile(r"\w+|'s\b|n't|[^\w\s]")


def finer_tagger(text):
    """Cuts more finely than spaces do, as spaCy does; its tags are as good as random."""
    kinds = ["NN", "JJ", "VBZ", "IN", "DT", "NNS", "CC"]
    marks = {"-": "HYPH", "'s": "POS", ",": ",", ".": ".", "\u00a0": "_SP"}
    return [
        (token, marks.get(token, kinds[len(token) % len(kinds)] if token[0].isalnum() else ":"))
        for token in _TREEBANK.findall(text)
    ]


def test_a_word_of_several_tokens_stays_whole():
    assert word_order.reordered_captions("man's", lambda text: [("man", "NN"), ("'s", "POS")]) == ("man's",)
    tags = [("A", "DT"), ("long", "JJ"), ("-", "HYPH"), ("haired", "JJ"), ("man", "NN"), ("'s", "POS"), ("dog", "NN")]
    tags += [(",", ","), ("U.S.", "NNP"), ('"', "``"), ("&", "CC"), ('"', "''"), ("3.5", "CD"), ("\u2014", ":")]
    assert word_order.tagged_words('A long-haired man\'s dog, U.S. "&" 3.5 \u2014', lambda text: tags) == [
        *[("a", "DT"), ("long-haired", "JJ"), ("man's", "NN"), ("dog,", "NN"), ("u", "NNP"), ("s", "NNP"), ("&", "CC")],
        *[("3", "CD"), ("5", "CD"), ("\u2014", ":")],
    ]
    with pytest.raises(ValueError, match=names("'cat'")):
        word_order.tagged_words("A dog.", lambda text: [("cat", "NN")])


ODD = (
    "A long-haired, dark-brown dog's T-shirt isn't the well-dressed man's.",
    "A \"stop\" sign says 'stop'; two (2) boys -- one in #7 -- don't.",
    "Children's 3.5 ft. tall sand-castle... at 10:30 a.m., $5.00 & up!",
    "[Two] men/women w/ {hats} ~ the U.S. flag * and a *star*",
    "  Tabs\tand\nlines   and\u00a0spaces of no width  ",
    "The  rock'n'roll band , playing on-stage - live .",
    "\u201cCurly\u201d quotes, an \u2018n\u2019 and an em\u2014dash; caf\u00e9 na\u00efve \u0130stanbul Stra\u00dfe",
    "... !!! ( )",
    "one-two-three-four",
    "-- - --- -",
)


def test_no_candidate_gives_itself_away_by_its_spelling():
    rng = np.random.default_rng(0)
    pieces = sorted({word for caption in ODD for word in caption.split()})
    drawn = [" ".join(rng.choice(pieces, rng.integers(1, 45))) for _ in range(100)]
    for caption in (*ODD, *drawn):
        candidates = word_order.reordered_captions(caption, finer_tagger)
        # The caption itself is cleaned as the published one, and cut.
        cleaned = word_order.clean_caption(caption).split()
        assert cleaned[: len(candidates[0].split())] == candidates[0].split()
        assert len(candidates[0].split()) <= 30
        assert len({tuple(sorted(text.split(" "))) for text in candidates}) == 1, caption
        assert len({tuple(sorted(text)) for text in candidates}) == 1, caption
        assert len(set(candidates)) == len(candidates)
        if any(word_order.letters(text) != word_order.letters(candidates[0]) for text in candidates):
            assert len(candidates) > 1


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


def test_spacy_pipeline_is_used(tmp_path):
    spacy = pytest.importorskip("spacy")
    pipeline = spacy.blank("en")
    ruler = pipeline.add_pipe("attribute_ruler")
    ruler.add([[{"LOWER": "dog"}]], {"TAG": "NN"})
    ruler.add([[{"LOWER": "big"}]], {"TAG": "JJ"})
    pipeline.to_disk(tmp_path / "model")
    tagger = word_order.spacy_tagger(str(tmp_path / "model"))
    assert tagger("the big  dog's.") == [("the", ""), ("big", "JJ"), ("dog", "NN"), ("'s", ""), (".", "")]
