"""Captions of CLEVR-like scenes: the questions of GDBench's CLEVR task and captions for training.

GDBench (Krojer et al. 2023, "Are Diffusion Models Vision-And-Language Reasoners?") asks seven kinds of questions about
a scene of two objects. Each gives two items, one about each object: a true caption and a false one, which takes the
attribute from the other object, or for recognition one that no object of the scene has, the same for both items.

Training captions are always true, in the wording of the questions' true sides, or longer: both objects with more
attributes and with their places. "On the left" is only for an object whose centre is clearly in the left half of
the image (`clevr_scenes.sides`), in scenes of any number of objects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from winobench.clevr import scenes as clevr_scenes
from winobench.clevr.scenes import COLORS, MATERIALS, SHAPES, SIZES, Scenes

SUBTASKS = (
    "recognition_color",
    "recognition_shape",
    "binding_color_shape",
    "binding_shape_color",
    "pair_binding_color",
    "pair_binding_size",
    "spatial",
)

# Every word and mark that a caption of this module can hold, in lower case.
VOCABULARY = ("a", "and", "is", "left", "object", "on", "right", "the", ".", *SHAPES, *COLORS, *SIZES, *MATERIALS)

_SIDE = {-1: "left", 1: "right"}
_FULL = ("size", "color", "material", "shape")


class Thing(NamedTuple):
    """One object in words; `side` is -1 or 1 where it is clearly on the left or on the right, else 0."""

    shape: str
    color: str
    size: str
    material: str
    side: int


class _Form(NamedTuple):
    attributes: tuple[str, ...]  # that are named
    num_objects: int = 1
    places: bool = False  # whether places are named
    plainer: str | None = None  # another form for scenes without objects that this one fits
    weight: float = 1.0  # relative frequency


# The seven of the questions, then ours. About half the captions name two objects and their places, learnt last.
_FORMS = {
    "recognition_color": _Form(("color",), weight=5),
    "recognition_shape": _Form(("shape",), weight=5),
    "binding_color_shape": _Form(("color", "shape"), weight=4),
    "binding_shape_color": _Form(("color", "shape"), weight=4),
    "pair_binding_color": _Form(("color", "shape"), 2, plainer="binding_color_shape", weight=12),
    "pair_binding_size": _Form(("size", "shape"), 2, plainer="object", weight=8),
    "spatial": _Form(("color", "shape"), places=True, plainer="binding_color_shape", weight=9),
    "spatial_size": _Form(("size", "shape"), places=True, plainer="object", weight=1),
    "object": _Form(_FULL, weight=1),
    "pair": _Form(_FULL, 2, plainer="object", weight=2),
    "places_color": _Form(("color", "shape"), 2, places=True, plainer="pair_binding_color", weight=24),
    "places_size": _Form(("size", "shape"), 2, places=True, plainer="pair_binding_size", weight=12),
    "places": _Form(_FULL, 2, places=True, plainer="pair", weight=13),
}
FORMS = tuple(_FORMS)
WEIGHTS: Mapping[str, float] = {name: form.weight for name, form in _FORMS.items()}


def describe(scenes: Scenes) -> list[tuple[Thing, ...]]:
    """The objects of each scene in words, in the order of the scene's arrays."""
    side = clevr_scenes.sides(scenes).tolist()
    columns = (np.asarray(a).tolist() for a in (scenes.shape, scenes.color, scenes.size, scenes.material))
    rows = zip(np.asarray(scenes.num_objects).tolist(), *columns, side, strict=True)
    return [
        tuple(
            Thing(SHAPES[shape[i]], COLORS[color[i]], SIZES[size[i]], MATERIALS[material[i]], side_and_row[i])
            for i in range(number)
        )
        for number, shape, color, size, material, side_and_row in rows
    ]


def items(things: Sequence[Thing], distractor_color: str) -> dict[str, tuple[tuple[str, str], tuple[str, str]]]:
    """The questions about one scene: sub-task -> two items -> (true caption, false caption).

    The two objects differ in colour, in shape and in size and are on different sides.
    """
    if len(things) != 2 or {thing.side for thing in things} != {-1, 1}:
        raise ValueError("questions need two objects, one on the left and one on the right")
    first, second = things
    if first.shape == second.shape or first.color == second.color or first.size == second.size:
        raise ValueError("questions need objects that differ in colour, in shape and in size")
    if distractor_color not in COLORS or distractor_color in (first.color, second.color):
        raise ValueError(f"{distractor_color!r} is not a colour that the scene lacks")
    (distractor_shape,) = set(SHAPES) - {first.shape, second.shape}

    def both(make):
        return make(first, second), make(second, first)

    def pair(kind):
        form = (
            f"A {{0.{kind}}} {{0.shape}} and a {{1.{kind}}} {{1.shape}}.",
            f"A {{1.{kind}}} {{0.shape}} and a {{0.{kind}}} {{1.shape}}.",
        )
        return both(lambda a, b: tuple(text.format(a, b) for text in form))

    return {
        "recognition_color": both(lambda a, b: (f"A {a.color} object.", f"A {distractor_color} object.")),
        "recognition_shape": both(lambda a, b: (f"A {a.shape}.", f"A {distractor_shape}.")),
        "binding_color_shape": both(lambda a, b: (f"A {a.color} {a.shape}.", f"A {b.color} {a.shape}.")),
        "binding_shape_color": both(lambda a, b: (f"A {a.color} {a.shape}.", f"A {a.color} {b.shape}.")),
        "pair_binding_color": pair("color"),
        "pair_binding_size": pair("size"),
        "spatial": both(
            lambda a, b: (
                f"On the {_SIDE[a.side]} is a {a.color} {a.shape}.",
                f"On the {_SIDE[b.side]} is a {a.color} {a.shape}.",
            )
        ),
    }


def training_captions(
    scenes: Scenes, generator: np.random.Generator, *, per_scene: int = 1, weights: Mapping[str, float] = WEIGHTS
) -> list[list[str]]:
    """True captions for training, `per_scene` of each scene."""
    unknown = sorted(set(weights) - set(FORMS))
    if unknown:
        raise ValueError(f"no such caption form: {', '.join(unknown)}. There are {', '.join(FORMS)}")
    weight = np.asarray([weights.get(form, 0.0) for form in FORMS], np.float64)
    if weight.min() < 0 or weight.sum() <= 0:
        raise ValueError("caption weights must not be negative, nor all of them zero")
    forms = generator.choice(len(FORMS), (len(scenes), per_scene), p=weight / weight.sum()).tolist()
    draws = generator.random((len(scenes), per_scene, 2)).tolist()
    return [
        [caption(things, FORMS[form], *draw) for form, draw in zip(scene_forms, scene_draws, strict=True)]
        for things, scene_forms, scene_draws in zip(describe(scenes), forms, draws, strict=True)
    ]


def caption(things: Sequence[Thing], form: str, first: float = 0.0, second: float = 0.0) -> str:
    """The caption of one form. ``first`` in [0, 1) chooses the object named first, ``second`` the other one."""
    kind = _FORMS[form]
    while True:
        candidates = [thing for thing in things if thing.side] if kind.places else list(things)
        if kind.num_objects == 1 and candidates:
            break
        several = len({thing.side for thing in candidates}) == 2 if kind.places else len(candidates) > 1
        if kind.num_objects == 2 and several:
            break
        if kind.plainer is None:
            raise ValueError(f"no form of caption fits {len(things)} objects")
        kind = _FORMS[kind.plainer]
    at = int(first * len(candidates))
    chosen = [candidates[at]]
    if kind.num_objects == 2:
        others = candidates[:at] + candidates[at + 1 :]
        if kind.places:
            others = [thing for thing in others if thing.side != chosen[0].side]
        chosen.append(others[int(second * len(others))])
    phrases = []
    for thing in chosen:
        words = " ".join(getattr(thing, attribute) for attribute in kind.attributes)
        noun = "" if "shape" in kind.attributes else " object"
        prefix = f"on the {_SIDE[thing.side]} is " if kind.places else ""
        phrases.append(f"{prefix}a {words}{noun}")
    text = " and ".join(phrases)
    return f"{text[0].upper()}{text[1:]}."
