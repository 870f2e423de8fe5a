"""GenEval's prompts as questions: which of these texts was the image generated from?

The candidates are Self-Bench's (2025, arXiv:2505.17955): every text that GenEval's template of a skill (Ghosh et
al. 2023) can make. A pair of objects competes with pairs that share an object with it, 50 on each side.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

_OBJECTS = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire hydrant, stop sign, parking
meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear, zebra, giraffe, backpack, umbrella, handbag, tie,
suitcase, frisbee, skis, snowboard, sports ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis
racket, bottle, wine glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog,
pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, computer mouse, tv remote,
computer keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear,
hair drier, toothbrush
"""
OBJECTS = tuple(" ".join(name.split()) for name in _OBJECTS.split(","))
"""The 80 names of objects, in the order of GenEval's object_names.txt."""

COLORS = ("red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white")
PLACES = ("left of", "right of", "above", "below")
NUMBERS = ("one", "two", "three", "four")

SKILLS: Mapping[str, int] = {
    "single_object": 80,
    "two_object": 101,
    "counting": 4,
    "colors": 10,
    "position": 4,
    "color_attr": 100,
}
"""GenEval's tag -> number of candidates."""

_NEIGHBOURS = 50  # texts that share one object with the truth, on each side


def candidates(tag: str, include: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts among which the prompt of a record is to be found."""
    texts = map(_a, OBJECTS) if tag == "single_object" else _texts(tag, [item["class"] for item in include])
    return ["a photo of " + text for text in texts]


def _texts(tag: str, names: Sequence[str]) -> list[str]:
    first = names[0]
    if tag == "counting":
        several = f"{first}es" if first.endswith("s") else f"{first}s"
        return [f"{number} {first if number == 'one' else several}" for number in NUMBERS]
    if tag == "colors":
        return [f"{_a(color)} {first}" for color in COLORS]
    if tag == "position":
        return [f"{_a(names[1])} {relation} {_a(first)}" for relation in PLACES]
    first, second = names
    if tag == "color_attr":
        return [f"{_a(left)} {first} and {_a(right)} {second}" for left, right in itertools.product(COLORS, repeat=2)]
    every = [f"{_a(left)} and {_a(right)}" for left, right in itertools.product(OBJECTS, repeat=2)]
    begins = [text for text in every if text.startswith(f"{_a(first)} and") and second not in text]
    ends = [text for text in every if text.endswith(f"and {_a(second)}") and not text.startswith(f"{_a(first)} and")]
    return [f"{_a(first)} and {_a(second)}", *begins[:_NEIGHBOURS], *ends[:_NEIGHBOURS]]


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
