"""Harder questions about rendered scenes of three to five objects: numbers, bindings, places, sizes, none, some, all.

Exactly one candidate caption is true of a question's scene by construction: the candidates are made first, then the
true one is chosen at random, and then a scene is built for it. All candidates are built in the same way from the same
random numbers, so that a text alone does not show whether it is true. Another scene for another candidate, from the
same random numbers, is the wrong image for the image side. Two objects are compared with a margin, and sizes at similar
depths: nothing hangs on a pixel. An object that a caption calls "the" is the only one of its kind.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from winobench.clevr import captions as clevr_captions
from winobench.clevr import places as clevr_places
from winobench.clevr import renderer
from winobench.clevr import scenes as clevr_scenes
from winobench.clevr.places import Place
from winobench.clevr.scenes import COLORS, MATERIALS, SHAPES, SIZES, SPLITS, Scenes

VERSION = 1  # raised whenever a scene or a caption could change
MIN_OBJECTS, MAX_OBJECTS = 3, 5

NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five"}
SIMPLE = "simple"  # the kind of training captions that are the ones in `clevr_captions`
_SAME_DEPTH = 1.5  # greatest difference of depth of two objects whose sizes are compared
# Direction in words -> (the place's field, sign): the subject has the lower value of sign * field.
_DIRECTIONS = {
    "left of": ("across", 1.0),
    "right of": ("across", -1.0),
    "in front of": ("y", 1.0),
    "behind": ("y", -1.0),
}
_MARGINS = {"across": clevr_places.SIDE_MARGIN, "y": clevr_places.DEPTH_MARGIN}
Kind = tuple[str, str]  # colour and shape


class Solid(NamedTuple):
    color: str
    shape: str
    size: str
    place: Place


class Question(NamedTuple):
    """One question of a group."""

    group: str
    texts: tuple[str, ...]  # the candidates
    target: int  # index of the one that is true of ``scene``
    other: int  # index of the one that is true of ``other_scene``, in which ``texts[target]`` is false
    scene: Scenes  # a batch of one scene, as the next
    other_scene: Scenes


_Build = Callable[[int, random.Random], list[Solid]]


# Groups: candidates, and how a scene is built in which one of them is true.


def _counting(rng: random.Random) -> tuple[tuple[str, ...], _Build]:
    color, shape = _kind(rng)
    by_shape = rng.random() < 0.5
    noun = f"{shape}s" if by_shape else f"{color} objects"

    def build(target: int, rng: random.Random) -> list[Solid]:
        count = target + 2
        number = rng.randint(max(MIN_OBJECTS, count), MAX_OBJECTS)

        def kind(counted: bool) -> Kind:
            while True:
                drawn = _kind(rng)
                if (drawn[1] == shape if by_shape else drawn[0] == color) == counted:
                    return drawn

        return _anywhere([kind(i < count) for i in range(number)], rng)

    return tuple(f"There are {word} {noun}." for word in NUMBERS.values()), build


def _binding(rng: random.Random) -> tuple[tuple[str, ...], _Build]:
    shapes, colors = rng.sample(SHAPES, 3), rng.sample(COLORS, 3)
    bindings = [tuple(zip(order, shapes, strict=True)) for order in itertools.permutations(colors)]

    def build(target: int, rng: random.Random) -> list[Solid]:
        # More objects have other colours, so that they make no other candidate true.
        others = [color for color in COLORS if color not in colors]
        more = [(rng.choice(others), rng.choice(SHAPES)) for _ in range(rng.randint(0, MAX_OBJECTS - 3))]
        return _anywhere([*bindings[target], *more], rng)

    return tuple("There is a {} {}, a {} {} and a {} {}.".format(*itertools.chain(*b)) for b in bindings), build


def _relation(directions: tuple[str, str], rng: random.Random) -> tuple[tuple[str, ...], _Build]:
    first, second = _different_kinds(rng, 2)

    def build(target: int, rng: random.Random) -> list[Solid]:
        places = _places_with_extreme(directions[target], 2, rng)
        return _named([first, second], places, rng)

    return tuple(f"The {_words(first)} is {word} the {_words(second)}." for word in directions), build


def _relation_to_both(rng: random.Random) -> tuple[tuple[str, ...], _Build]:
    kinds = _different_kinds(rng, 3)
    direction = rng.choice(tuple(_DIRECTIONS))

    def order(target: int) -> list[Kind]:
        return [kinds[target], *kinds[:target], *kinds[target + 1 :]]

    def build(target: int, rng: random.Random) -> list[Solid]:
        return _named(order(target), _places_with_extreme(direction, 3, rng), rng)

    texts = []
    for target in range(3):
        subject, first, second = map(_words, order(target))
        texts.append(f"The {subject} is {direction} both the {first} and the {second}.")
    return tuple(texts), build


def _size(rng: random.Random) -> tuple[tuple[str, ...], _Build]:
    first, second = _different_kinds(rng, 2)

    def build(target: int, rng: random.Random) -> list[Solid]:
        while True:
            places = clevr_places.draw(rng, rng.randint(MIN_OBJECTS, MAX_OBJECTS))
            if abs(places[0].y - places[1].y) <= _SAME_DEPTH:
                break
        solids = _named([first, second], places, rng)
        for index, size in enumerate(("large", "small") if target == 0 else ("small", "large")):
            solids[index] = solids[index]._replace(size=size)
        return solids

    return tuple(f"The {_words(first)} is {word} than the {_words(second)}." for word in ("larger", "smaller")), build


def _negation(rng: random.Random) -> tuple[tuple[str, ...], _Build]:
    # All four of two colours and two shapes: three are there, and each looks as likely to be the fourth.
    kinds = list(itertools.product(rng.sample(COLORS, 2), rng.sample(SHAPES, 2)))

    def build(target: int, rng: random.Random) -> list[Solid]:
        present = [*kinds[:target], *kinds[target + 1 :]]
        more = [_kind(rng, without=kinds[target : target + 1]) for _ in range(rng.randint(0, MAX_OBJECTS - 3))]
        return _anywhere([*present, *more], rng)

    return tuple(f"There is no {_words(kind)}." for kind in kinds), build


def _quantifiers(rng: random.Random) -> tuple[tuple[str, ...], _Build]:
    color, shape = _kind(rng)
    others = [other for other in COLORS if other != color]

    def build(target: int, rng: random.Random) -> list[Solid]:
        number = rng.randint(MIN_OBJECTS, MAX_OBJECTS)
        of_shape = rng.randint(2, number - 1)
        num_colored = rng.randint(1, of_shape - 1)
        colored = (of_shape, num_colored, 0)[target]
        kinds = [(color if i < colored else rng.choice(others), shape) for i in range(of_shape)]
        # Half the objects of other shapes have the colour, for any target.
        for _ in range(number - of_shape):
            other_shape = rng.choice([s for s in SHAPES if s != shape])
            kinds.append((color if rng.random() < 0.5 else rng.choice(others), other_shape))
        return _anywhere(kinds, rng)

    return (
        f"All {shape}s are {color}.",
        f"Some {shape}s are {color} and some are not.",
        f"No {shape} is {color}.",
    ), build


_GROUPS: Mapping[str, tuple[int, Callable[[random.Random], tuple[tuple[str, ...], _Build]]]] = {
    "counting": (4, _counting),
    "binding": (6, _binding),
    "left_right": (2, functools.partial(_relation, ("left of", "right of"))),
    "front_behind": (2, functools.partial(_relation, ("in front of", "behind"))),
    "relation_to_both": (3, _relation_to_both),
    "size": (2, _size),
    "negation": (4, _negation),
    "quantifiers": (3, _quantifiers),
}

GROUPS: Mapping[str, int] = {name: candidates for name, (candidates, _) in _GROUPS.items()}
"""Group -> its number of candidates."""

WEIGHTS: Mapping[str, float] = {**dict.fromkeys(GROUPS, 1.0), SIMPLE: 4.0}
"""Relative frequencies of the kinds of training captions: a third of them are simple."""

VOCABULARY = tuple(
    sorted(
        {
            *clevr_captions.VOCABULARY,
            *("all", "are", "behind", "both", "front", "in", "larger", "no", "not", "objects", "of"),
            *("smaller", "some", "than", "there", ","),
            *NUMBERS.values(),
            *(f"{shape}s" for shape in SHAPES),
        }
    )
)
"""Every word and mark that a caption of this module can hold, in lower case."""


def question(group: str, index: int, *, seed: int = 0, split: str = "evaluation") -> Question:
    """A question that depends on its arguments alone."""
    if group not in GROUPS:
        raise ValueError(f"no such group: {group}. There are {', '.join(GROUPS)}")
    rng = _generator(group, index, seed, split)
    texts, build = _GROUPS[group][1](rng)
    target, other = rng.sample(range(len(texts)), 2)
    key = rng.random()
    scene, other_scene = (_scene(build, which, key) for which in (target, other))
    return Question(group, texts, target, other, scene, other_scene)


def training_scenes(
    count: int,
    *,
    seed: int = 0,
    start: int = 0,
    size: int = 64,
    weights: Mapping[str, float] = WEIGHTS,
    num_simple: int = 0,
) -> tuple[np.ndarray, list[list[str]]]:
    """Images, uint8 [count, size, size, 3], each with ``1 + num_simple`` true captions, of the split ``train``.

    Image number n depends on (seed, n, size, weights) alone. Multiples of `renderer.chunk_size` waste nothing.
    """
    unknown = sorted(set(weights) - set(WEIGHTS))
    if unknown or min(weights.values(), default=0.0) < 0 or sum(weights.values()) <= 0:
        raise ValueError(f"weights must be positive and for some of {', '.join(WEIGHTS)}, got {dict(weights)}")
    if count < 0:
        raise ValueError(f"count must not be negative, got {count}")
    pairs = [_training_pair(index, seed, weights, num_simple) for index in range(start, start + count)]
    if not pairs:
        return np.zeros((0, size, size, 3), np.uint8), []
    scenes = clevr_scenes.concatenate([scene for scene, _ in pairs])
    return renderer.render(scenes, size), [captions for _, captions in pairs]


def random_scenes(count: int, *, seed: int = 0, split: str = "train", start: int = 0) -> Scenes:
    """Scenes of one to five objects whose attributes are independent, placed as in the questions.

    Scene number n depends on (seed, split, n) alone.
    """
    if count < 1:
        raise ValueError(f"count must be positive, got {count}")
    keys = [_generator("random scene", index, seed, split).random() for index in range(start, start + count)]
    return clevr_scenes.concatenate([_scene(_anything, 0, key) for key in keys])


def _training_pair(index: int, seed: int, weights: Mapping[str, float], num_simple: int) -> tuple[Scenes, list[str]]:
    rng = _generator("training", index, seed, "train")
    (kind,) = rng.choices(tuple(weights), tuple(weights.values()))
    if kind == SIMPLE:
        scene = _scene(_anything, 0, rng.random())
        return scene, [_simple(scene, rng) for _ in range(1 + num_simple)]
    texts, build = _GROUPS[kind][1](rng)
    target = rng.randrange(len(texts))
    scene = _scene(build, target, rng.random())
    return scene, [texts[target], *(_simple(scene, rng) for _ in range(num_simple))]


def _simple(scene: Scenes, rng: random.Random) -> str:
    forms = clevr_captions.WEIGHTS
    (form,) = rng.choices(tuple(forms), tuple(forms.values()))
    (things,) = clevr_captions.describe(scene)
    return clevr_captions.caption(things, form, rng.random(), rng.random())


def _anything(target: int, rng: random.Random) -> list[Solid]:
    del target
    return _anywhere([_kind(rng) for _ in range(rng.randint(1, MAX_OBJECTS))], rng)


def _generator(purpose: str, index: int, seed: int, split: str) -> random.Random:
    """Seeds by text are hashed with SHA-512, so that different arguments share no random numbers."""
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if index < 0 or seed < 0:
        raise ValueError(f"index and seed must not be negative, got {index} and {seed}")
    return random.Random(f"clevr_questions {VERSION} {split} {seed} {purpose} {index}")


def _scene(build: _Build, target: int, key: float) -> Scenes:
    """A batch of one scene, whose objects are in random order."""
    rng = random.Random(key)
    solids = build(target, rng)
    rng.shuffle(solids)
    number = len(solids)
    low, high = clevr_scenes.CUBE_ROTATION

    def padded(values: Sequence, dtype: type) -> np.ndarray:
        array: np.ndarray = np.zeros((1, MAX_OBJECTS), dtype)
        array[0, :number] = values
        return array

    position = np.zeros((1, MAX_OBJECTS, 2), np.float32)
    position[0, :number] = [(solid.place.x, solid.place.y) for solid in solids]
    return Scenes(
        shape=padded([SHAPES.index(solid.shape) for solid in solids], np.int32),
        color=padded([COLORS.index(solid.color) for solid in solids], np.int32),
        size=padded([SIZES.index(solid.size) for solid in solids], np.int32),
        material=padded([rng.randrange(len(MATERIALS)) for _ in solids], np.int32),
        position=position,
        rotation=padded([low + (high - low) * rng.random() for _ in solids], np.float32),
        scale=np.asarray([clevr_places.large_radius(number)], np.float32),
        num_objects=np.asarray([number], np.int32),
    )


def _kind(rng: random.Random, without: Sequence[Kind] = ()) -> Kind:
    while True:
        kind = rng.choice(COLORS), rng.choice(SHAPES)
        if kind not in without:
            return kind


def _different_kinds(rng: random.Random, number: int) -> list[Kind]:
    return rng.sample(list(itertools.product(COLORS, SHAPES)), number)


def _words(kind: Kind) -> str:
    return f"{kind[0]} {kind[1]}"


def _anywhere(kinds: Sequence[Kind], rng: random.Random) -> list[Solid]:
    places = clevr_places.draw(rng, len(kinds))
    return [Solid(*kind, rng.choice(SIZES), place) for kind, place in zip(kinds, places, strict=True)]


def _named(kinds: Sequence[Kind], places: Sequence[Place], rng: random.Random) -> list[Solid]:
    """These on the first places, and on the others objects that are not among them."""
    more = [_kind(rng, without=kinds) for _ in places[len(kinds) :]]
    return [Solid(*kind, rng.choice(SIZES), place) for kind, place in zip([*kinds, *more], places, strict=True)]


def _places_with_extreme(direction: str, compared: int, rng: random.Random) -> list[Place]:
    """Places of which the first is clearly in this direction from each of the next ``compared - 1``."""
    field, sign = _DIRECTIONS[direction]
    while True:
        places = clevr_places.draw(rng, rng.randint(MIN_OBJECTS, MAX_OBJECTS))
        places[:compared] = sorted(places[:compared], key=lambda place: sign * getattr(place, field))
        first, second = (getattr(place, field) for place in places[:2])
        if math.fabs(first - second) >= _MARGINS[field]:
            return places
