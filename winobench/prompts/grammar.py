"""Prompts in the grammar of our CLEVR scenes, with what each image must show.

Every prompt is a caption in the wording of `winobench.clevr.captions`, so that the embedded models know each of
its words. Categories are the sub-tasks of the benchmark's CLEVR task, so that what a model generates stands next to
what it recognises, and ``counting``. Two equal objects are said as the captions say them: "A red cube and a red cube."

The content of a prompt is a JSON object::

    {"objects": [{"color": "red", "shape": "cube", "count": 2}, ...]}

Each entry means ``count`` different objects of the image that have all of its attributes: ``color``, ``shape``,
``size`` (small or large), ``side`` (left or right: the centre is clearly in that half of the image, as
`winobench.clevr.scenes.sides` has it). What an entry does not say may be anything. More objects may be there.
No object can mean two entries of a prompt, as these differ in an attribute that both state. `is_shown` is the
meaning of all this.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from winobench.clevr.captions import Thing
from winobench.clevr.scenes import COLORS, SHAPES, SIZES
from winobench.prompts.prompt_files import Prompt

VERSION = 1
"""Raised whenever a prompt could change."""

COUNT, MOST = 210, 100_000
"""Prompts by default, and at most."""

_SIDES = {"left": -1, "right": 1}
_Objects = list[dict[str, Any]]


def _object(count: int = 1, **attributes: str) -> dict[str, Any]:
    return {**attributes, "count": count}


def _kinds() -> list[tuple[str, str]]:
    return list(itertools.product(COLORS, SHAPES))


def _recognition_color() -> list[tuple[str, _Objects]]:
    return [(f"A {color} object.", [_object(color=color)]) for color in COLORS]


def _recognition_shape() -> list[tuple[str, _Objects]]:
    return [(f"A {shape}.", [_object(shape=shape)]) for shape in SHAPES]


def _binding_color_shape() -> list[tuple[str, _Objects]]:
    return [(f"A {color} {shape}.", [_object(color=color, shape=shape)]) for color, shape in _kinds()]


def _pair_binding_color() -> list[tuple[str, _Objects]]:
    return [
        (f"A {one[0]} {one[1]} and a {two[0]} {two[1]}.", [_object(color=c, shape=s) for c, s in (one, two)])
        for one, two in itertools.permutations(_kinds(), 2)
        if one[0] != two[0] and one[1] != two[1]
    ]


def _pair_binding_size() -> list[tuple[str, _Objects]]:
    return [
        (f"A {one} {first} and a {two} {second}.", [_object(size=one, shape=first), _object(size=two, shape=second)])
        for one, two in itertools.permutations(SIZES)
        for first, second in itertools.permutations(SHAPES, 2)
    ]


def _spatial() -> list[tuple[str, _Objects]]:
    return [
        (f"On the {side} is a {color} {shape}.", [_object(color=color, shape=shape, side=side)])
        for side in _SIDES
        for color, shape in _kinds()
    ]


def _counting() -> list[tuple[str, _Objects]]:
    return [
        (f"A {color} {shape} and a {color} {shape}.", [_object(2, color=color, shape=shape)])
        for color, shape in _kinds()
    ]


_CATEGORIES: Mapping[str, Callable[[], list[tuple[str, _Objects]]]] = {
    "recognition_color": _recognition_color,
    "recognition_shape": _recognition_shape,
    "binding_color_shape": _binding_color_shape,
    "pair_binding_color": _pair_binding_color,
    "pair_binding_size": _pair_binding_size,
    "spatial": _spatial,
    "counting": _counting,
}

CATEGORIES = tuple(_CATEGORIES)
"""The skills. All but the last one are sub-tasks of `winobench.clevr.captions`."""


def make_prompts(count: int = COUNT) -> list[Prompt]:
    """Prompts, of each category as many within one. The first ones of many are those of few.

    A category's texts come in a mixed order, all of them before one comes again. Images of equal texts have different
    numbers, and so different noise.
    """
    mixed = {}
    for name, make in _CATEGORIES.items():
        mixed[name] = make()
        random.Random(f"clevr_prompts {VERSION} {name}").shuffle(mixed[name])
    prompts = []
    for number in range(count):
        category, turn = CATEGORIES[number % len(CATEGORIES)], number // len(CATEGORIES)
        text, objects = mixed[category][turn % len(mixed[category])]
        prompts.append(Prompt(f"{category}-{turn}", text, category, {"objects": [dict(one) for one in objects]}))
    return prompts


def is_shown(content: Mapping[str, Any], things: Sequence[Thing]) -> bool:
    """Whether a scene shows what the content of a prompt asks for."""
    return all(sum(_fits(wanted, thing) for thing in things) >= wanted["count"] for wanted in content["objects"])


def _fits(wanted: Mapping[str, Any], thing: Thing) -> bool:
    stated = {name: value for name, value in wanted.items() if name != "count"}
    stated = {name: _SIDES[value] if name == "side" else value for name, value in stated.items()}
    return all(getattr(thing, name) == value for name, value in stated.items())
