"""Ours: Winoground's question (Thrush et al. 2022) on rendered scenes: two images, two captions of the same words."""

from __future__ import annotations

from collections.abc import Iterator

from winobench.metrics import WINOGROUND_CHANCE
from winobench.tasks import clevr_common, clevr_image
from winobench.tasks.base import DataSet, Example


def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
    """Three examples a scene, one a swapped attribute, which is the example's group. The diagonal is right."""
    for index, attribute, image, swapped, text, swapped_text in clevr_image.image_pairs(limit):
        yield Example(f"scene-{index:06d}/{attribute}", (image, swapped), (text, swapped_text), None, (attribute,))


TASKS = (
    clevr_common.swap_task(
        "clevr_winoground",
        "Which caption belongs to which of two rendered images. Colours, shapes or sizes are swapped.",
        load,
        metric="winoground",
        shape=(2, 2),
        chance=WINOGROUND_CHANCE,
    ),
)

DATA_SETS = (
    DataSet(
        name="clevr_winoground",
        title="CLEVR in Winoground's form",
        description="two rendered images, two texts",
        tasks=TASKS,
    ),
)
