"""Prompts in the grammar of our CLEVR scenes, with what each image must show.

Every prompt is a caption in the wording of `winobench.clevr.captions`, so that the embedded models have seen its words.
Categories are the sub-tasks of the benchmark's CLEVR task, so that generation stands next to recognition, and
``counting``. Two equal objects have the wording of the captions: "A red cube and a red cube."

The content of a prompt is a JSON object::

    {"objects": [{"color": "red", "shape": "cube", "count": 2}, ...]}

Each entry means ``count`` different objects of the image that have all of its attributes: ``color``, ``shape``,
``size`` (small or large), ``side`` (left or right, see `winobench.clevr.scenes.sides`). Other attributes may be
anything, and more objects may be there. No object can mean two entries of a prompt, as these differ in an attribute
that both state. `is_shown` defines all this.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from typing import Any

from winobench.clevr.captions import Thing
from winobench.clevr.scenes import COLORS, SHAPES, SIZES
from winobench.prompts.prompt_files import Prompt

VERSION = 1  # raised whenever a prompt could change
COUNT, MOST = 210, 100_000  # prompts by default, and at most
_SIDES = {"left": -1, "right": 1}
_Objects = list[dict[str, Any]]


def _object(count: int = 1, **attributes: str) -> dict[str, Any]:
    return {**attributes, "count": count}


_KINDS = tuple(itertools.product(COLORS, SHAPES))
_TEXTS: Mapping[str, list[tuple[str, _Objects]]] = {
    "recognition_color": [(f"A {color} object.", [_object(color=color)]) for color in COLORS],
    "recognition_shape": [(f"A {shape}.", [_object(shape=shape)]) for shape in SHAPES],
    "binding_color_shape": [(f"A {color} {shape}.", [_object(color=color, shape=shape)]) for color, shape in _KINDS],
    "pair_binding_color": [
        (f"A {one[0]} {one[1]} and a {two[0]} {two[1]}.", [_object(color=c, shape=s) for c, s in (one, two)])
        for one, two in itertools.permutations(_KINDS, 2)
        if one[0] != two[0] and one[1] != two[1]
    ],
    "pair_binding_size": [
        (f"A {one} {first} and a {two} {second}.", [_object(size=one, shape=first), _object(size=two, shape=second)])
        for one, two in itertools.permutations(SIZES)
        for first, second in itertools.permutations(SHAPES, 2)
    ],
    "spatial": [
        (f"On the {side} is a {color} {shape}.", [_object(color=color, shape=shape, side=side)])
        for side in _SIDES
        for color, shape in _KINDS
    ],
    "counting": [
        (f"A {color} {shape} and a {color} {shape}.", [_object(2, color=color, shape=shape)]) for color, shape in _KINDS
    ],
}

CATEGORIES = tuple(_TEXTS)  # the skills. All but the last one are sub-tasks of `winobench.clevr.captions`


def make_prompts(count: int = COUNT) -> list[Prompt]:
    """Prompts, the same number of each category within one. More prompts begin with the same ones.

    A category's texts come in a mixed order, all of them before one is repeated.
    """
    mixed = {name: list(texts) for name, texts in _TEXTS.items()}
    for name, texts in mixed.items():
        random.Random(f"clevr_prompts {VERSION} {name}").shuffle(texts)
    prompts = []
    for number in range(count):
        category, turn = CATEGORIES[number % len(CATEGORIES)], number // len(CATEGORIES)
        text, objects = mixed[category][turn % len(mixed[category])]
        prompts.append(Prompt(f"{category}-{turn}", text, category, {"objects": list(map(dict, objects))}))
    return prompts


def is_shown(content: Mapping[str, Any], things: Sequence[Thing]) -> bool:
    """Whether a scene shows what the content of a prompt asks for."""
    return all(sum(_fits(wanted, thing) for thing in things) >= wanted["count"] for wanted in content["objects"])


def _fits(wanted: Mapping[str, Any], thing: Thing) -> bool:
    stated = {name: _SIDES.get(value, value) for name, value in wanted.items() if name != "count"}
    return all(getattr(thing, name) == value for name, value in stated.items())
