"""Self-Bench on scenes of our own grammar: does a scorer find the text from which an image was generated?

Images are those of runs of ``launch.draw --config=pictures --config.prompts=clevr``;
``--config.tasks=clevr_selfbench:FOLDER`` names one, and several such words set generators next to each other. A task is
a category of prompts. The candidates are the texts of the same form with other values, or with the values exchanged.
Groups are the ones in `winobench.tasks.selfbench`, where an image is correct by the verifier's verdict
(`winobench.generation.verification`).
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence

from winobench.base.errors import InputError
from winobench.base.files import user_path
from winobench.prompts.prompt_files import Prompt
from winobench.runs import image_runs
from winobench.runs.verdicts import read_verdicts, verdict_on
from winobench.tasks.base import Task
from winobench.tasks.selfbench import Drawn, task

_SKILLS = {
    "recognition_color": (8, "recognition"),
    "recognition_shape": (3, "recognition"),
    "binding_color_shape": (24, "attribute_binding"),
    "pair_binding_color": (2, "attribute_binding"),
    "pair_binding_size": (2, "attribute_binding"),
    "spatial": (2, "spatial"),
    "counting": (2, "counting"),
}
"""Category -> number of candidates, skill."""


def make(places: Sequence[str]) -> list[Task]:
    """A task for each category of which there are images."""
    drawn: list[Drawn] = []
    for place in places:
        run = image_runs.read_pictures(pathlib.Path(user_path(place)))
        verdicts = read_verdicts(run.folder)
        found = [
            Drawn(
                f"{record.model}/{record.seed}/{record.number}",
                run.path(record),
                record.model,
                record.prompt.category,
                tuple(candidates(record.prompt)),
                0,
                verdict_on(record, verdicts),
                record.sha256,
            )
            for record in run.records
            if record.prompt.category in _SKILLS and _is_ours(record.prompt)
        ]
        if not found:
            raise InputError(
                f"{run.folder} has no images from our grammar: generate with --config.prompts=clevr", code="no-content"
            )
        both = {one.drawer for one in drawn} & {one.drawer for one in found}
        if both:
            raise InputError(
                f"{run.folder} has images of {min(both)!r}, as a folder before it: name each generator once",
                code="named-twice",
            )
        drawn += found
    by_category = {category: [one for one in drawn if one.tag == category] for category in _SKILLS}
    return [
        task(
            f"clevr_selfbench_{category}",
            f"Generated CLEVR scenes, {category.replace('_', ' ')}: which of {size} texts was it generated from?",
            size,
            by_category[category],
            skill,
        )
        for category, (size, skill) in _SKILLS.items()
        if by_category[category]
    ]


def candidates(prompt: Prompt) -> list[str]:
    """The texts among which a prompt of `winobench.prompts.grammar` is to be found. Itself first."""
    objects = prompt.content["objects"]
    others = _OTHERS[prompt.category](objects)
    return [prompt.text, *(text for text in dict.fromkeys(others) if text != prompt.text)]


def _is_ours(prompt: Prompt) -> bool:
    return isinstance(prompt.content, Mapping) and "objects" in prompt.content


def _scenes():
    from winobench.clevr import scenes  # which imports JAX

    return scenes


def _exchanged(attribute: str) -> Callable[[Sequence[Mapping[str, str]]], list[str]]:
    def texts(objects: Sequence[Mapping[str, str]]) -> list[str]:
        one, two = objects
        return [f"A {two[attribute]} {one['shape']} and a {one[attribute]} {two['shape']}."]

    return texts


_OTHERS: Mapping[str, Callable[[Sequence[Mapping[str, str]]], list[str]]] = {
    "recognition_color": lambda objects: [f"A {color} object." for color in _scenes().COLORS],
    "recognition_shape": lambda objects: [f"A {shape}." for shape in _scenes().SHAPES],
    "binding_color_shape": lambda objects: [
        f"A {c} {s}." for c, s in itertools.product(_scenes().COLORS, _scenes().SHAPES)
    ],
    "pair_binding_color": _exchanged("color"),
    "pair_binding_size": _exchanged("size"),
    "spatial": lambda objects: [
        f"On the {side} is a {objects[0]['color']} {objects[0]['shape']}." for side in ("left", "right")
    ],
    "counting": lambda objects: [f"A {objects[0]['color']} {objects[0]['shape']}."],
}

SOURCES: Mapping[str, Callable[[Sequence[str]], list[Task]]] = {"clevr_selfbench": make}
"""Word before the colon of ``--config.tasks`` -> what makes the tasks."""
