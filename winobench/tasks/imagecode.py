"""ImageCoDe: which of ten very similar images a description is of. The validation set.

The images of a set are photographs on one theme (``open-images``, 155 sets with 430 descriptions) or frames of one
video (884 sets with 1,872 descriptions). They are two tasks here, and ``imagecode`` is both together. The published
code's setting "static" is the first. Its setting "video" does not leave the photographs out and evaluates all 2,302,
so that the paper's column "Video" stands next to ``imagecode``.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import DIFFUSION_ITM, DIFFUSION_ITM_RAW, read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_NUM_IMAGES = 10
_ZENODO = "https://zenodo.org/records/6518944"


def read(folder: pathlib.Path, static: bool | None) -> Iterator[Item]:
    """Ten images and a description an item. The key of a description is the number of its image."""
    for name, descriptions in read_json(folder / "valid_data.json").items():
        images = tuple(ImageFile(folder / "image-sets" / name / f"img{index}.jpg") for index in range(_NUM_IMAGES))
        for key, description in descriptions.items():
            if key not in map(str, range(_NUM_IMAGES)):
                problem = f"stands for image {key!r}, but images are numbered from 0 to 9"
                raise description.wrong(problem, "no-such-image")
            item = Item(f"{name}/{key}", images, (description.text(),), int(key))
            if static is None or ("open-images" in name) == static:
                yield item


def _task(name: str, static: bool | None, what: str, num_examples: int):
    return published_task(
        name=name,
        description=f"ImageCoDe: which of ten similar {what} a long description is of.",
        # The published code has recall at 5 of the photographs alone.
        metric="recall" if static else "accuracy",
        shape=(_NUM_IMAGES, 1),
        skills=("retrieval",),
        paper="Krojer et al. 2022",
        licence="AFL-3.0",
        url=_ZENODO,
        read=functools.partial(read, static=static),
        how_to_get=(
            f"valid_data.json (from data/imagecode of {DIFFUSION_ITM}) and the folder image-sets, unpacked from"
            f" image-sets.zip of {_ZENODO}"
        ),
        num_examples=num_examples,
        downloads=(
            Download(
                "valid_data.json",
                f"{DIFFUSION_ITM_RAW}/imagecode/valid_data.json",
                sha256="cb4b8482354ba9bac62b6e101f145f9e59722dcf3b3fd42583f5b6de12bc698a",
                note="0.3 MB",
            ),
            Download("image-sets.zip", f"{_ZENODO}/files/image-sets.zip", unpack=True, note="14 GB, AFL-3.0"),
        ),
        shared_folder="imagecode",
    )


TASKS = (
    _task("imagecode_static", True, "photographs", 430),
    _task("imagecode_video", False, "frames of a video", 1872),
    _task("imagecode", None, "photographs or frames of a video", 2302),
)

DATA_SETS = (
    DataSet(
        name="imagecode",
        title="ImageCoDe",
        description="one of ten images, long texts",
        tasks=TASKS,
        size="14 GB",
    ),
)
