"""EqBen: neighbouring frames of videos and renderings with a minimal change

``eqbench_full_...`` is the whole test set by source. Its annotation has the four combinations of two captions and two
images in separate rows, in random order, and ``private_info`` names the pair and the combination.
``eqbench_...`` is the small subset that was published for multimodal language models, as Self-Bench asks it: 20 pairs
of each of seven sources, so that an interval is some 0.2 to each side.

Frames in NumPy's format have their channels in the order blue, green, red. They are written as PNG into the folder
``unpacked`` when they are first read.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

import numpy as np

from winobench.base.errors import InputError
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet
from winobench.tasks.hub_tables import write_png
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/Wangt-CN/EqBen"
_FILE = "all_select.json"
_WHOLE_FILE = "ann_json_finegrained_random.json"
_IMAGES, _LIGHT_IMAGES = "image", "image_jpg"
_COMBINATIONS = ("c0i0", "c0i1", "c1i0", "c1i1")

SOURCES_OF_FRAMES = {
    "kubric_attr": ("rendered things whose attribute changes", ("attribute_binding",), 2_000),
    "kubric_cnt": ("rendered things whose number changes", ("counting",), 2_000),
    "kubric_loc": ("rendered things that change places", ("spatial",), 2_000),
    "ag": ("actions in videos of Action Genome", ("compositional",), 195_872),
    "gebc": ("events in videos of GEBC", ("compositional",), 1_814),
    "youcook2": ("steps in videos of YouCook2", ("compositional",), 45_849),
    "sd": ("images edited by Stable Diffusion", ("recognition",), 1_513),
}
"""Source -> what differs, skills, pairs of the whole set."""


def read(folder: pathlib.Path, source: str) -> Iterator[Item]:
    """Two images and two captions. The diagonal is right."""
    for number, row in enumerate(read_json(folder / _FILE).rows()):
        names = [row[f"image{side}"].text() for side in (0, 1)]
        if names[0].split("/", 1)[0] != f"eqben{source}":
            continue
        images = tuple(_image(folder, "images", name) for name in names)
        yield Item(f"row-{number:03d}", images, tuple(row[f"caption{side}"].text() for side in (0, 1)), None)


def read_whole(folder: pathlib.Path, source: str) -> Iterator[Item]:
    """The same for the whole set, in the order of its numbers. Its light version has JPEG images."""
    pairs: dict[int, dict[str, Entry]] = {}
    file = read_json(folder / _WHOLE_FILE)
    for row in file.rows():
        about = row["private_info"]
        if about["dataset"].text() == f"eqben{source}":
            pair = pairs.setdefault(about["sample_cnt"].integer(), {})
            name = about["name"].one_of(_COMBINATIONS)
            pair[about["name"].unique(name, pair)] = row
    images = _LIGHT_IMAGES if (folder / _LIGHT_IMAGES).is_dir() else _IMAGES
    for number, rows in sorted(pairs.items()):
        if missing := [name for name in _COMBINATIONS if name not in rows]:
            problem = f"has no row {missing[0]} of pair {number} of eqben{source}"
            raise file.wrong(problem, "missing-items")
        for name, key, other in (
            *(("c0i1", "caption", "c0i0"), ("c1i0", "caption", "c1i1")),
            *(("c1i0", "image", "c0i0"), ("c0i1", "image", "c1i1")),
        ):
            if rows[name][key].text() != rows[other][key].text():
                raise rows[name][key].wrong(f"differs from the one in {other} of pair {number}", "contradicting-rows")
        right = [rows[name] for name in ("c0i0", "c1i1")]
        names = [row["image"].text() for row in right]
        if images == _LIGHT_IMAGES:  # as the authors say: PNG files became JPEG files
            names = [f"{name.removesuffix('.png')}.jpg" if name.endswith(".png") else name for name in names]
        texts = tuple(row["caption"].text() for row in right)
        yield Item(f"{number:06d}", tuple(_image(folder, images, name) for name in names), texts, None)


def _image(folder: pathlib.Path, images: str, name: str) -> ImageFile:
    path = folder / images / name
    # winobench prepare refuses paths that lead elsewhere, and names missing files.
    elsewhere = not path.is_relative_to(folder / images) or ".." in path.parts
    if path.suffix != ".npy" or elsewhere or not path.is_file():
        return ImageFile(path)
    try:
        frame = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, MemoryError):
        frame = None
    if not isinstance(frame, np.ndarray) or frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3:
        raise InputError(
            f"{path} is not an array of an image, uint8 [height, width, 3]: get the file again", code="damaged-file"
        )
    return write_png(frame[:, :, ::-1], folder, f"{pathlib.PurePosixPath(name).with_suffix('.png')}")


def _task(source: str, *, is_whole: bool):
    differs, skills, count = SOURCES_OF_FRAMES[source]
    if is_whole:
        how_to_get = (
            f"{_WHOLE_FILE} (https://drive.google.com/file/d/1-CWEuZ5F0KQ4d94Y9rRtBsMIcqb8V7nm) and the images, in the"
            f" folder {_IMAGES} (https://drive.google.com/file/d/1e608uhd36ak_v7SnlMVaYcekBc4gBqzn, 100 GB) or, as"
            f" JPEG, {_LIGHT_IMAGES} (23 GB, linked in the README of {_REPOSITORY}, Apache 2.0"
            " licence)"
        )
    else:
        how_to_get = (
            f"{_FILE} and the folder images, of eqben_vllm in"
            " https://drive.google.com/file/d/11YUTf06uzRHtFV8rYi96z4vTPi8_GNEM (the subset for language models of"
            f" {_REPOSITORY}, Apache 2.0 licence)"
        )
    return published_task(
        name=f"eqbench_full_{source}" if is_whole else f"eqbench_{source}",
        description=f"EqBen{', whole' * is_whole}: which caption belongs to which of two images; {differs}.",
        metric="winoground",
        shape=(2, 2),
        skills=skills,
        paper="Wang et al. 2023",
        licence="Apache 2.0",
        url=_REPOSITORY,
        read=functools.partial(read_whole if is_whole else read, source=source),
        how_to_get=how_to_get,
        num_examples=count if is_whole else 20,
        shared_folder="eqbench_full" if is_whole else "eqbench",
        when_named=is_whole,
    )


TASKS = tuple(_task(source, is_whole=is_whole) for is_whole in (False, True) for source in SOURCES_OF_FRAMES)

DATA_SETS = (
    DataSet(
        name="eqbench",
        title="EqBen",
        description="pairs that differ in little",
        tasks=tuple(task for task in TASKS if not task.when_named),
        downloads="",
        supplies="the subset for language models",
    ),
    DataSet(
        name="eqbench_full",
        title="EqBen, whole",
        description="all pairs of EqBen",
        tasks=tuple(task for task in TASKS if task.when_named),
        downloads="",
        supplies="annotation and images",
        size="100 GB",
    ),
)
