"""Ours: which of two images does a caption describe? The other image has an attribute swapped between the objects."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from winobench.tasks import clevr_common
from winobench.tasks.base import Example


def image_pairs(limit: int | None) -> Iterator[tuple[int, str, np.ndarray, np.ndarray, str, str]]:
    """Each scene with each of its swaps: (index, attribute, image, swapped image, caption, swapped caption)."""
    from winobench.clevr import captions, renderer
    from winobench.clevr import scenes as clevr_scenes

    scenes = clevr_common.evaluation_scenes(limit)
    images = clevr_common.evaluation_images(limit)
    things = captions.describe(scenes)
    for attribute in ("color", "shape", "size"):
        swapped = clevr_scenes.swap(scenes, attribute)
        # A swap of sizes mirrors the places, so the words come from the swapped scene itself.
        swapped_images = renderer.render(swapped, clevr_common.IMAGE_SIZE)
        swapped_things = captions.describe(swapped)
        for index in range(len(scenes)):
            texts = (pair_caption(each[index], attribute) for each in (things, swapped_things))
            yield index, attribute, images[index], swapped_images[index], *texts


def pair_caption(things, attribute: str) -> str:
    """What tells a scene from its swap, in the words of GDBench's pair forms, the left object first.

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
