"""Ours: Winoground's question (Thrush et al. 2022) on rendered scenes: two images, two captions of the same words."""

from __future__ import annotations

from collections.abc import Iterator

from winobench.tasks import clevr_common, clevr_image
from winobench.tasks.base import Example, Task


def load(data_dir: str | None, limit: int | None) -> Iterator[Example]:
    """Three examples a scene, one a swapped attribute, which is the example's group. The diagonal is right."""
    for index, attribute, image, swapped, text, swapped_text in clevr_image.image_pairs(limit):
        yield Example(f"scene-{index:06d}/{attribute}", (image, swapped), (text, swapped_text), None, (attribute,))


TASKS = (
    Task(
        name="clevr_winoground",
        version=1,
        description="Which caption belongs to which of two rendered images. Colours, shapes or sizes are swapped.",
        metric="winoground",
        shape=(2, 2),
        chance={"text": 1 / 4, "image": 1 / 4, "group": 1 / 6},
        load=load,
        ready=lambda data_dir: None,
        images_compete=True,
        skills=("compositional", "attribute_binding"),
        data_fingerprint=lambda data_dir, limit: clevr_common.fingerprint(limit),
        count=lambda data_dir: 3 * clevr_common.NUM_SCENES,
    ),
)
