"""Ours: which of two images does a caption describe? The other image has an attribute swapped between the objects."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from winobench.tasks import clevr_common
from winobench.tasks.base import DataSet, Example

if TYPE_CHECKING:
    from winobench.clevr.scenes import Scenes

_ATTRIBUTES = ("color", "shape", "size")


def image_pairs(limit: int | None) -> Iterator[tuple[int, str, np.ndarray, np.ndarray, str, str]]:
    """Each scene with each of its swaps: (index, attribute, image, swapped image, caption, swapped caption)."""
    from winobench.clevr import captions

    images, things = clevr_common.evaluation_images(limit), clevr_common.evaluation_things(limit)
    swapped, swapped_images = _swapped(limit)
    # A swap of sizes mirrors the places, so the words come from the swapped scene itself.
    swapped_things = captions.describe(swapped)
    for row in range(len(swapped_things)):
        attribute, index = _ATTRIBUTES[row // len(things)], row % len(things)
        texts = (pair_caption(description, attribute) for description in (things[index], swapped_things[row]))
        yield index, attribute, images[index], swapped_images[row], *texts


@functools.lru_cache(maxsize=1)
def _swapped(limit: int | None) -> tuple[Scenes, np.ndarray]:
    """The scenes with colours, shapes and sizes swapped, one after the other, and their images, as tasks share them."""
    from winobench.clevr import scenes as clevr_scenes

    scenes = clevr_common.evaluation_scenes(limit)
    swapped = clevr_scenes.concatenate([clevr_scenes.swap(scenes, attribute) for attribute in _ATTRIBUTES])
    return swapped, clevr_common.images_of(swapped)


def pair_caption(things, attribute: str) -> str:
    """The caption that separates a scene from its swap, in the words of GDBench's pair forms, the left object first.

    A swap of colours changes which shape has which colour, a swap of shapes the same. A swap of sizes changes which
    shape has which size.
    """
    left, right = sorted(things, key=lambda thing: thing.side)
    word = "size" if attribute == "size" else "color"
    first, second = (f"{getattr(thing, word)} {thing.shape}" for thing in (left, right))
    return f"A {first} and a {second}."


def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
    """Three examples a scene, one a swapped attribute, which is the example's group."""
    for index, attribute, image, swapped, text, _ in image_pairs(limit):
        yield Example(f"scene-{index:06d}/{attribute}", (image, swapped), (text,), 0, (attribute,))


TASKS = (
    clevr_common.swap_task(
        "clevr_image",
        "Which of two rendered images a caption describes. In the other, an attribute is swapped.",
        load,
        metric="accuracy",
        shape=(2, 1),
        chance={"accuracy": 0.5},
    ),
)

DATA_SETS = (
    DataSet(
        name="clevr_image",
        title="CLEVR, images",
        description="which of two rendered images",
        tasks=TASKS,
    ),
)
