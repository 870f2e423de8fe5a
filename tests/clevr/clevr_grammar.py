"""An evaluator of captions that knows nothing of how they are made: it parses a sentence and looks at a scene's arrays.

It answers True or False where the sentence is clearly so, and raises `Doubtful` where it is neither: a difference that
is too small to see, or "the" of something that is not there once.
"""

import itertools
import re
from typing import NamedTuple

import numpy as np

from winobench.clevr import scenes

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


def facts(scene):
    """What there is in a batch of one scene."""
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
