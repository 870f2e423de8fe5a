"""Oracles of the tests: evaluators of captions that know nothing of how they are made, and the pixels of objects.

`is_true` parses a sentence of the questions and looks at a scene's arrays. It answers True or False where the sentence
is clearly so, and raises `Doubtful` where it is neither: a difference that is too small to see, or "the" of something
that is not there once. `true_of` does the same for captions of the training and of GDBench's questions.
"""

import dataclasses
import itertools
import re
from typing import NamedTuple

import numpy as np

from winobench.clevr import renderer, scenes

_NUMBERS = {"two": 2, "three": 3, "four": 4, "five": 5}
# A little less than what the module that builds the scenes keeps between places, as a cube's centre is lower.
_LEAST_ACROSS, _LEAST_DEEP = 0.22, 1.59


class Doubtful(Exception):
    """A sentence that is neither clearly true nor clearly false."""


class Fact(NamedTuple):
    color: str
    shape: str
    size: float
    width: float
    across: float
    depth: float


def true_of(caption, things):
    """Does the caption hold of things in words, with a different object for each phrase?"""
    phrases = []
    for part in caption.removesuffix(".").lower().split(" and "):
        place, words = re.fullmatch(r"(?:on the (left|right) is )?a (.*)", part).groups()
        phrases.append(({None: None, "left": -1, "right": 1}[place], set(words.split()) - {"object"}))

    def holds(thing, side, words):
        return side in (None, thing.side) and words <= {thing.color, thing.shape, thing.size, thing.material}

    return any(
        all(holds(thing, *phrase) for thing, phrase in zip(chosen, phrases, strict=True))
        for chosen in itertools.permutations(things, len(phrases))
    )


def masks(batch, size):
    """Which object the ray through a pixel's centre meets, -1 for the ground: int [num_scenes, size, size]."""
    return np.asarray(renderer.first_hit(batch, size)[0]).reshape(-1, size, size)


def seen_shares(batch, size):
    """The share of each object's pixels that no other object hides."""
    together, there = masks(batch, size), np.arange(batch.shape.shape[1]) < batch.num_objects[:, None]
    shares = []
    for index, exists in enumerate(there.T):
        alone = {name: a[:, index : index + 1] if a.ndim > 1 else a for name, a in batch.arrays().items()}
        alone = dataclasses.replace(scenes.Scenes(**alone), num_objects=exists.astype(np.int32))
        whole, seen = (np.sum(found, axis=(1, 2)) for found in (masks(alone, size) == 0, together == index))
        assert np.all(whole[~exists] == 0)
        shares += (seen[exists] / whole[exists]).tolist()
    return shares


def facts(scene):
    boxes, centers = scenes.project_boxes(scene)[0], scenes.project_centers(scene)[0]
    radii = np.asarray(scenes.radii(scene))[0]
    return [
        Fact(
            scenes.COLORS[scene.color[0, i]],
            scenes.SHAPES[scene.shape[0, i]],
            float(radii[i]),
            float(boxes[i, 2] - boxes[i, 0]),
            float(2 * centers[i, 0] - 1),
            float(scene.position[0, i, 1]),
        )
        for i in range(int(scene.num_objects[0]))
    ]


def is_true(sentence, things):
    """Whether a sentence of the questions holds of these facts."""
    for pattern, holds in _GRAMMAR.items():
        found = re.fullmatch(pattern, sentence)
        if found:
            return holds(things, *found.groups())
    raise ValueError(f"no sentence of the grammar: {sentence}")


def _are(noun):
    """Whether a thing is what a noun says: cubes, red objects, blue sphere."""
    words = [word.removesuffix("s") for word in noun.split()]
    known = {*scenes.COLORS, *scenes.SHAPES, "object"}
    assert set(words) <= known, noun
    return lambda thing: all(word in (thing.color, thing.shape, "object") for word in words)


def _the(things, noun):
    found = [thing for thing in things if _are(noun)(thing)]
    if len(found) != 1:
        raise Doubtful(f"the {noun}: there are {len(found)}")
    return found[0]


def _clearly(difference, least):
    if abs(difference) < least:
        raise Doubtful(f"a difference of {difference}")
    return difference < 0


def _related(things, one, relation, other):
    one, other = _the(things, one), _the(things, other)
    if relation in ("left of", "right of"):
        return _clearly(one.across - other.across, _LEAST_ACROSS) == (relation == "left of")
    return _clearly(one.depth - other.depth, _LEAST_DEEP) == (relation == "in front of")


def _to_both(things, one, relation, two, three):
    # False as soon as one of the two is clearly false, whatever the other is.
    answers, doubts = [], []
    for other in (two, three):
        try:
            answers.append(_related(things, one, relation, other))
        except Doubtful as doubt:
            doubts.append(doubt)
    if False in answers:
        return False
    if doubts:
        raise doubts[0]
    return True


def _sized(things, one, word, other):
    one, other = _the(things, one), _the(things, other)
    # Larger in the world, and to the eye as well.
    larger = one.size > other.size
    nearer = (one.width > 1.15 * other.width) if larger else (other.width > 1.15 * one.width)
    if one.size == other.size or not nearer:
        raise Doubtful(f"widths {one.width} and {other.width}")
    return larger == (word == "larger")


def _three(things, *nouns):
    return any(
        all(_are(noun)(thing) for noun, thing in zip(nouns, chosen, strict=True))
        for chosen in itertools.permutations(things, 3)
    )


def _quantified(judge):
    def holds(things, noun, color, *rest):
        of_noun = [thing.color == color for thing in things if _are(noun)(thing)]
        if len(of_noun) < 2:
            raise Doubtful(f"{noun}: there are {len(of_noun)}")
        return judge(of_noun)

    return holds


_GRAMMAR = {
    r"There are (two|three|four|five) (.+)\.": lambda things, number, noun: (
        sum(map(_are(noun), things)) == _NUMBERS[number]
    ),
    r"There is no (.+)\.": lambda things, noun: not any(map(_are(noun), things)),
    r"There is a (.+), a (.+) and a (.+)\.": _three,
    r"The (.+) is (larger|smaller) than the (.+)\.": _sized,
    r"The (.+) is (left of|right of|in front of|behind) both the (.+) and the (.+)\.": _to_both,
    r"The (.+) is (left of|right of|in front of|behind) the (.+)\.": _related,
    r"All (\w+) are (\w+)\.": _quantified(all),
    r"Some (\w+) are (\w+) and some are not\.": _quantified(lambda found: any(found) and not all(found)),
    r"No (\w+) is (\w+)\.": _quantified(lambda found: not any(found)),
}
