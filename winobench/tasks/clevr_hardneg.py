"""The validation of fine-tuning with hard negatives on CLEVR: ours, and not among the tasks of the benchmark.

As COCO's (`winobench.tasks.coco_hardneg`), it has a text side and an image side over the same rows, from
`winobench.tasks.clevr_negatives`. The scenes have their own split: neither training nor the task ``clevr`` has
them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator

from winobench.tasks import clevr_common
from winobench.tasks.base import Example, Task

_VERSION = 1
_ROWS_A_SCENE = 14


def validation_tasks(num_scenes: int = 100, *, seed: int = 0, image_size: int = 64) -> tuple[Task, Task]:
    """The text side and the image side, of ``image_size`` pixels to each side. ``limit`` counts scenes.

    Each has 14 examples a scene, one a row, grouped by sub-task: ``clevr_hardneg_text`` asks which of two captions is
    true of the scene, ``clevr_hardneg_image`` whether a caption is true of the scene or of a change of it. Where a
    caption has several negative images, the numbers of scene and row decide.
    """

    def scenes(limit: int | None) -> int:
        return min(limit or num_scenes, num_scenes)

    def load(side: Callable, data_dir: str | None, limit: int | None) -> Iterator[Example]:
        return side(_source(scenes(limit), seed, image_size))

    text = "Which of two captions is true of a rendered scene. For validation."
    image = "Which of two rendered scenes a caption is true of. For validation."
    return clevr_common.two_sides(
        ("clevr_hardneg_text", text, (1, 2), {"accuracy": 1 / 2}, _text_side),
        ("clevr_hardneg_image", image, (2, 1), {"accuracy": 1 / 2}, _image_side),
        load=load,
        version=_VERSION,
        data_fingerprint=lambda data_dir, limit: _fingerprint(scenes(limit), seed, image_size),
        count=lambda data_dir: num_scenes * _ROWS_A_SCENE,
    )


def _text_side(source) -> Iterator[Example]:
    for number, (row, group) in enumerate(zip(source.rows, source.groups, strict=True)):
        yield Example(
            _id(number, group), (source.images[row.image],), (row.caption, *row.negative_captions), 0, (group,)
        )


def _image_side(source) -> Iterator[Example]:
    for number, (row, group) in enumerate(zip(source.rows, source.groups, strict=True)):
        negative = row.negative_images[(number // _ROWS_A_SCENE + number) % len(row.negative_images)]
        images = (source.images[row.image], source.images[negative])
        yield Example(_id(number, group), images, (row.caption,), 0, (group,))


def _id(number: int, group: str) -> str:
    return f"scene-{number // _ROWS_A_SCENE:06d}/{group}/{number % 2}"


@functools.lru_cache(maxsize=2)
def _source(num_scenes: int, seed: int, image_size: int):
    """Cached, as both sides are validated in turn, many times."""
    from winobench.tasks.clevr_negatives import ClevrNegatives

    return ClevrNegatives(num_scenes, seed=seed, split="validation", image_size=image_size)


def _fingerprint(num_scenes: int, seed: int, image_size: int) -> str:
    return hashlib.sha256(f"{_VERSION} {_source(num_scenes, seed, image_size).fingerprint}".encode()).hexdigest()
