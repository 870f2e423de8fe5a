"""Captions with their words in another order: the perturbations of ARO's order tasks, made by us.

ARO (Yuksekgonul et al. 2023, section 2.2) asks whether a model prefers a caption to four reorderings of it. Its authors
draw them again at every run; here they depend on a seed and the caption alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence

import numpy as np

from winobench.errors import InputError

Tagger = Callable[[str], list[tuple[str, str]]]
"""A text -> its tokens in order, each with its part of speech as a Penn Treebank tag, e.g. ``("dog", "NN")``."""

Shuffle = Callable[[Sequence[str], np.random.Generator], np.ndarray]
"""(tags of n tokens, generator) -> which token comes at each place, int64 [n]."""

MAX_WORDS = 30
_MAX_DRAWS = 100
_NOUNS = frozenset({"NN", "NNS", "NNP", "NNPS"})
_ADJECTIVES = frozenset({"JJ", "JJR", "JJS"})


def shuffle_nouns_and_adjectives(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Nouns change places among themselves and adjectives among themselves; all else stays."""
    order = np.arange(len(tags))
    for kind in (_NOUNS, _ADJECTIVES):
        places = np.array([place for place, tag in enumerate(tags) if tag in kind], np.int64)
        order[places] = rng.permutation(places)
    return order


def shuffle_all_but_nouns_and_adjectives(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Nouns and adjectives stay; all other tokens change places."""
    order = np.arange(len(tags))
    places = np.array([place for place, tag in enumerate(tags) if tag not in _NOUNS | _ADJECTIVES], np.int64)
    order[places] = rng.permutation(places)
    return order


def shuffle_within_trigrams(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Tokens change places within each group of three (the last one may be shorter); the groups stay."""
    return np.concatenate([rng.permutation(group) for group in _trigrams(len(tags))])


def shuffle_trigrams(tags: Sequence[str], rng: np.random.Generator) -> np.ndarray:
    """Groups of three (the last one may be shorter) change places; within each, the order stays."""
    groups = _trigrams(len(tags))
    return np.concatenate([groups[index] for index in rng.permutation(len(groups))])


PERTURBATIONS: tuple[Shuffle, ...] = (
    shuffle_nouns_and_adjectives,
    shuffle_all_but_nouns_and_adjectives,
    shuffle_within_trigrams,
    shuffle_trigrams,
)
"""The four of ARO, in its order."""


def clean_caption(caption: str) -> str:
    """Lower case, without ``. ! " ( ) * # : ; ~``, with single spaces, as ARO's ``pre_caption`` leaves it."""
    return " ".join(re.sub(r'[.!"()*#:;~]', " ", caption.lower()).split())


def reordered_captions(
    caption: str, tagger: Tagger, *, seed: int = 0, perturbations: Sequence[Shuffle] = PERTURBATIONS
) -> tuple[str, ...]:
    """A caption and its perturbations, cleaned: the right candidate first, then the wrong ones.

    As in ARO, the caption is tagged and shuffled as it was written, punctuation included, then joined with spaces and
    cleaned. Unlike there, it is cut to its first 30 words *before* it is shuffled, so that all candidates have the same
    words; and a perturbation that gives an earlier candidate again (compared without spaces) is drawn again, up to 100
    times. Where that is of no avail, because too few tokens differ, the candidate is left out: two equal candidates
    would be a tie that says nothing of the model.

    Args:
      caption: as published.
      tagger: cuts it into tokens and says their parts of speech.
      seed: with the caption, it decides every draw.
      perturbations: the ways to shuffle.

    Returns:
      At least one and at most ``1 + len(perturbations)`` different texts.
    """
    caption = _first_words(caption)
    tagged = tagger(caption)
    tokens, tags = [token for token, _ in tagged], [tag for _, tag in tagged]
    candidates = [clean_caption(caption)]
    seen = {_without_spaces(candidates[0])}
    digest = hashlib.sha256(f"{seed}\n{caption}".encode()).digest()
    for number, shuffle in enumerate(perturbations if tokens else ()):
        # One stream each, so that a perturbation does not depend on how often another was drawn.
        rng = np.random.default_rng([number, int.from_bytes(digest)])
        for _ in range(_MAX_DRAWS):
            candidate = clean_caption(" ".join(tokens[place] for place in shuffle(tags, rng)))
            if _without_spaces(candidate) not in seen:
                seen.add(_without_spaces(candidate))
                candidates.append(candidate)
                break
    return tuple(candidates)


def letters(text: str) -> str:
    """The text without spaces and capital letters: equal for captions that say the same to most models."""
    return "".join(text.lower().split())


def spacy_tagger(model: str = "en_core_web_sm") -> Tagger:
    """The tagger that ARO's authors use: spaCy with its small English model, or with another one.

    Args:
      model: name of an installed spaCy model, or the folder of one.

    Raises:
      InputError: spaCy or the model is not installed; the message says how to get them.
    """
    try:
        import spacy
    except ImportError:
        raise InputError(
            "the order perturbations need spaCy, which is not installed: run `pip install 'winobench[order]'` and then"
            f" `python -m spacy download {model}`",
            code="missing-package",
        ) from None
    try:
        # Not needed for parts of speech, and slow.
        pipeline = spacy.load(model, exclude=["parser", "ner", "lemmatizer"])
    except OSError:
        raise InputError(
            f"the order perturbations need spaCy's model {model}, which is not installed: run `pip install"
            f" 'winobench[order]'` and then `python -m spacy download {model}`",
            code="missing-package",
        ) from None
    return lambda text: [(token.text, token.tag_) for token in pipeline(text) if not token.is_space]


def _trigrams(num_tokens: int) -> list[np.ndarray]:
    return [np.arange(start, min(start + 3, num_tokens)) for start in range(0, num_tokens, 3)]


def _first_words(caption: str) -> str:
    """The longest beginning of the caption that has at most 30 words when it is cleaned."""
    words, kept = caption.split(), 0
    for end, word in enumerate(words):
        kept += len(clean_caption(word).split())
        if kept > MAX_WORDS:
            return " ".join(words[:end])
    return " ".join(words)


def _without_spaces(text: str) -> str:
    return text.replace(" ", "")
