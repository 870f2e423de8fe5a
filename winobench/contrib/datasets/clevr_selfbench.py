"""Self-Bench on scenes of winobench's grammar: does a scorer find the text from which an image was generated?

Images are from runs of ``winobench generate --config=images --prompts=clevr``;
``--tasks=clevr_selfbench:FOLDER`` names one, and several such words set generators next to each other. A task is
a category of prompts. The candidates are the texts of the same form with other values, or with the values exchanged.
Groups are the ones in `winobench.contrib.datasets.selfbench`, where an image is correct by the verifier's verdict
(`winobench.runs.verdicts`).
"""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence

from winobench.base.errors import InputError
from winobench.contrib.datasets.selfbench import Drawn, of_record, read_folders, task
from winobench.prompts.prompt_files import Prompt
from winobench.runs import image_runs
from winobench.runs.verdicts import read_verdicts
from winobench.tasks.base import Task

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


def make(folders: Sequence[str]) -> list[Task]:
    """A task for each category of which there are images."""
    by_category = read_folders(folders, _of_run)
    about = "Generated CLEVR scenes, {}: which of {} texts was it generated from?"
    return [
        task(f"clevr_selfbench_{name}", about.format(name.replace("_", " "), size), size, by_category[name], skill)
        for name, (size, skill) in _SKILLS.items()
        if name in by_category
    ]


def _of_run(folder: pathlib.Path) -> list[Drawn]:
    run = image_runs.read_images(folder)
    verdicts = read_verdicts(run.folder)
    images = [
        of_record(run, record, verdicts, record.prompt.category, candidates(record.prompt), 0)
        for record in run.records
        if record.prompt.category in _SKILLS and _is_ours(record.prompt)
    ]
    if not images:
        raise InputError(
            f"{run.folder} has no images from our grammar: generate with --prompts=clevr", code="no-content"
        )
    return images


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
        first, second = objects
        return [f"A {second[attribute]} {first['shape']} and a {first[attribute]} {second['shape']}."]

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
"""Word before the colon of ``--tasks`` -> what makes the tasks."""
