"""The published code's perturbations: its draws, spelt out here as it makes them."""

import itertools
import random
import sys
import types

import numpy as np
import pytest

from tests.data.test_word_order import ODD, finer_tagger
from tests.expectations import raises
from winobench.base.errors import InputError
from winobench.data import published_order, word_order


def split_finely(text):
    return [token for token, _ in finer_tagger(text)]


def test_draws_are_those_of_the_global_streams():
    """Over many captions in a row, as one stream goes on from caption to caption."""
    captions = [caption for caption in ODD if len(split_finely(caption)) > 1] * 3
    shuffles = published_order.PublishedShuffles(finer_tagger, split_finely, seed=0)
    found = [shuffles(caption) for caption in captions]
    state, python_state = np.random.get_state(), random.getstate()
    try:
        np.random.seed(0)
        random.seed(0)
        expected = []
        for caption in captions:
            tokens = np.array([token for token, _ in finer_tagger(caption)])
            tags = np.array([tag for _, tag in finer_tagger(caption)])
            nouns, adjectives = np.isin(tags, list(word_order.NOUNS)), np.isin(tags, list(word_order.ADJECTIVES))
            first, second = tokens.copy(), tokens.copy()
            for mask in (nouns, adjectives):
                first[mask] = np.random.permutation(first[mask])
            second[~nouns & ~adjectives] = np.random.permutation(second[~nouns & ~adjectives])
            groups = [list(tokens[start : start + 3]) for start in range(0, len(tokens), 3)]
            for group in groups:
                random.shuffle(group)
            moved = [list(tokens[start : start + 3]) for start in range(0, len(tokens), 3)]
            random.shuffle(moved)
            texts = [first, second, itertools.chain(*groups), itertools.chain(*moved)]
            cleaned = [word_order.clean_caption(text) for text in (caption, *map(" ".join, texts))]
            expected.append(tuple(" ".join(text.split()[:30]) for text in cleaned))
    finally:
        np.random.set_state(state)
        random.setstate(python_state)
    assert found == expected
    assert any("long - haired" in text for texts in found for text in texts[1:])
    assert found[0] != found[len(found) // 3]  # the stream went on


def test_long_captions_are_cut_after_they_are_shuffled():
    caption = " ".join(f"word{number}" for number in range(40))
    texts = published_order.PublishedShuffles(finer_tagger, split_finely)(caption)
    assert [len(text.split()) for text in texts] == [30] * 5
    assert len({tuple(sorted(text.split())) for text in texts}) > 1


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk", None)
    with raises("missing-package", "NLTK", "'winobench[order_published]'", "punkt_tab"):
        published_order.nltk_tokenizer()

    def word_tokenize(text):
        raise LookupError("Resource punkt_tab not found.")

    monkeypatch.setitem(sys.modules, "nltk", types.SimpleNamespace(word_tokenize=word_tokenize))
    with raises("missing-package", "NLTK", "punkt_tab"):
        published_order.nltk_tokenizer()


def test_nltk_itself():
    nltk = pytest.importorskip("nltk")
    try:
        tokenizer = published_order.nltk_tokenizer()
    except InputError:
        pytest.skip("NLTK has no punkt_tab here")
    assert tokenizer("A long-haired man's dog, running.") == nltk.word_tokenize("A long-haired man's dog, running.")
    assert tokenizer("A long-haired man's dog.") == ["A", "long-haired", "man", "'s", "dog", "."]
