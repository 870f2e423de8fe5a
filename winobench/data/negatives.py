"""Hard negatives for any captioned images: captions with words exchanged, and images that look alike.

After NegCLIP (Yuksekgonul et al. 2023, section 4.1). Unlike there, an exchange that leaves the meaning alone ("a dog
and a cat", "a big red bus") is not made, spaces and the capital letter at the beginning are kept in order, and images
that share a caption are not negatives of each other.
"""

from __future__ import annotations

import collections
import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from winobench.base.errors import InputError
from winobench.data import candidates
from winobench.data.word_order import Tagger, letters, token_spans

KINDS = ("phrase", "noun", "adjective", "verb", "adverb")
"""Kinds of exchanged parts, each at most once a caption: noun phrases and single words."""

NUM_NEIGHBOURS = 3

_WORD_TAGS = {"noun": "NN", "adjective": "JJ", "verb": "VB", "adverb": "RB"}
_DETERMINERS = ("DT", "PDT", "PRP$")
# To exchange these gives no sentence, or the same one.
_AUXILIARIES = frozenset(
    {"be", "am", "is", "are", "was", "were", "been", "being", "'m", "'s", "'re"}
    | {"have", "has", "had", "having", "'ve", "'d", "do", "does", "did"}
)


class _Unit(NamedTuple):
    """A word or phrase: tokens ``first`` to ``end`` - 1."""

    first: int
    end: int


def swapped_captions(caption: str, tagger: Tagger, *, seed: int = 0) -> tuple[str, ...]:
    """The caption with two elements of the same kind exchanged, for each kind with two different elements.

    Nouns, adjectives and adverbs are exchanged among themselves. Verbs, other than forms of be, have and do, only in
    the same form. Noun phrases are a determiner, adjectives and numbers, and nouns. The two are sampled.
    """
    tagged = tagger(caption)
    tags = [tag for _, tag in tagged]
    spans = token_spans(caption, [token for token, _ in tagged])
    captions: list[str] = []
    seen = {letters(caption)}
    digest = hashlib.sha256(f"{seed}\n{caption}".encode()).digest()
    for number, kind in enumerate(KINDS):
        units = _units(kind, tagged)
        pairs = [pair for pair in itertools.combinations(units, 2) if _may_change_places(kind, *pair, units, tagged)]
        # One stream each, so that a kind does not depend on how often another was sampled.
        for index in np.random.default_rng([number, int.from_bytes(digest)]).permutation(len(pairs)):
            first, second = pairs[index]
            text = _exchange(caption, first, second, spans, tags)
            if letters(text) not in seen:
                seen.add(letters(text))
                captions.append(text)
                break
    return tuple(captions)


def nearest_images(vectors: np.ndarray, captions: Sequence[Sequence[str]], k: int = NUM_NEIGHBOURS) -> np.ndarray:
    """The images most similar to each image, except those that share a caption with it, nearest first: int64 [n, k].

    ``vectors`` [num_images, width] are compared by their cosine. Of equal similarities, the lower number comes first.
    """
    images_of: dict[str, set[int]] = collections.defaultdict(set)
    for image, own in enumerate(captions):
        for caption in own:
            images_of[letters(caption)].add(image)
    shared = sorted({pair for images in images_of.values() for pair in itertools.permutations(images, 2)})
    excluded = collections.Counter(image for image, _ in shared)
    fewest = len(captions) - 1 - max(excluded.values(), default=0)
    if fewest < k:
        raise InputError(
            f"{k} negative images cannot be found for each of {len(captions)} images: some image has only"
            f" {max(fewest, 0)} others that do not share a caption with it",
            code="too-few-images",
        )
    also_true = np.array(shared, np.int64).reshape(-1, 2)
    lists = candidates.top_k_lists(vectors, vectors, np.arange(len(captions)), k + 1, also_true=also_true)
    return lists.images[:, 1:]


def _units(kind: str, tagged: Sequence[tuple[str, str]]) -> list[_Unit]:
    if kind == "phrase":
        # Determiner, adjective or number, noun, or nothing of a phrase.
        parts = {"JJ": "A", "CD": "A", "NN": "N"}
        kinds = "".join("D" if tag in _DETERMINERS else parts.get(tag[:2], "x") for _, tag in tagged)
        return [_Unit(*match.span()) for match in re.finditer("D?A*N+", kinds)]
    return [
        _Unit(index, index + 1)
        for index, (token, tag) in enumerate(tagged)
        if tag.startswith(_WORD_TAGS[kind]) and not (kind == "verb" and token.lower() in _AUXILIARIES)
    ]


def _may_change_places(
    kind: str, first: _Unit, second: _Unit, units: Sequence[_Unit], tagged: Sequence[tuple[str, str]]
) -> bool:
    """True if an exchange gives a sentence that states something else."""
    tags = [tag for _, tag in tagged]
    if kind == "verb" and tags[first.first] != tags[second.first]:
        return False
    inside = {index for unit in units for index in range(unit.first, unit.end)}
    between = [tags[index] for index in range(first.end, second.first) if index not in inside]
    # An enumeration says the same in any order, and so do adjectives in a row. Nouns in a row do not.
    joins = [tag in ("CC", ",") for tag in between]
    is_enumeration = any(joins) and all(join or tag in _DETERMINERS for join, tag in zip(joins, between, strict=True))
    return not is_enumeration and not (kind == "adjective" and not between)


def _exchange(text: str, first: _Unit, second: _Unit, spans: Sequence[tuple[int, int]], tags: Sequence[str]) -> str:
    start, end = spans[first.first][0], spans[first.end - 1][1]
    other_start, other_end = spans[second.first][0], spans[second.end - 1][1]
    before, after = text[start:end], text[other_start:other_end]
    if not text[:start].strip() and before[0].isupper():
        # The sentence still begins with a capital letter. Names and abbreviations keep theirs.
        if not tags[first.first].startswith("NNP") and not before.split()[0][1:].isupper():
            before = before[0].lower() + before[1:]
        after = after[0].upper() + after[1:]
    return text[:start] + after + text[end:other_start] + before + text[other_end:]
