"""The task What'sUp: where is one thing relative to another?

``whatsup_a`` and ``whatsup_b`` are photographs of two things in four arrangements, with one caption for each. As
published there are three figures: of single images, of pairs of opposite arrangements (``_pairs``) and of all four
(``_sets``), which count where every image finds its own caption. All share their pairs of image and text.
``coco_spatial_*`` and ``gqa_spatial_*`` have photographs of COCO and of Visual Genome with one or two things.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.contrib.datasets.sugarcrepe import COCO_FOLDER, COCO_IMAGES
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet, PublishedData
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/amitakamath/whatsup_vlms"
_DRIVE = "https://drive.google.com/drive/folders/164q6X9hrvP-QYpi3ioSnfMuyHpG5oRkZ"

# Opposite arrangements stand next to each other.
SUBSETS = {
    "a": ("controlled_images", 412, ("left", "right", "on", "under")),
    "b": ("controlled_clevr", 408, ("left", "right", "in-front", "behind")),
}
"""Subset -> folder of its images, their number, the arrangements."""

SPATIAL = {
    "coco_spatial_one": ("coco_qa_one_obj.json", 2247, "val2017", "{:012d}.jpg", "one thing in a photograph of COCO"),
    "coco_spatial_two": ("coco_qa_two_obj.json", 440, "val2017", "{:012d}.jpg", "two things in a photograph of COCO"),
    "gqa_spatial_one": ("vg_qa_one_obj.json", 1160, "vg_images", "{}.jpg", "one thing in a photograph of GQA"),
    "gqa_spatial_two": ("vg_qa_two_obj.json", 291, "vg_images", "{}.jpg", "two things in a photograph of GQA"),
}
"""Task -> file, number of rows, folder of its images, their names, its topic."""


def read(folder: pathlib.Path, subset: str) -> Iterator[Item]:
    """An image and four captions, the true one first."""
    for row in _rows(folder, subset):
        image, _, arrangement = _named(folder, subset, row)
        yield Item(image.path.stem, (image,), row["caption_options"].texts(4), 0, (arrangement,))


def read_groups(folder: pathlib.Path, subset: str, size: int) -> Iterator[Item]:
    """Images of the same two things, and their four captions, of which the first ones are the images' own."""
    arrangements = SUBSETS[subset][2]
    sets: dict[str, dict[str, tuple[ImageFile, Entry]]] = {}
    for row in _rows(folder, subset):
        image, things, arrangement = _named(folder, subset, row)
        if arrangement in sets.setdefault(things, {}):
            raise row["image_path"].wrong(f"shows {things} {arrangement!r}, as in an earlier row", "repeated-id")
        sets[things][arrangement] = (image, row)
    for things, members in sets.items():
        _check_set(things, members, arrangements)
        for start in range(0, len(arrangements), size):
            chosen = arrangements[start : start + size]
            order = (*chosen, *(arrangement for arrangement in arrangements if arrangement not in chosen))
            texts = tuple(members[arrangement][1]["caption_options"].texts(4)[0] for arrangement in order)
            name = f"{things}/{'-'.join(chosen)}"
            yield Item(name, tuple(members[arrangement][0] for arrangement in chosen), texts, None)


def read_spatial(folder: pathlib.Path, task: str) -> Iterator[Item]:
    """A photograph, its caption and one with the opposite preposition."""
    file, _, images, name, _ = SPATIAL[task]
    for number, row in enumerate(read_json(folder / file).rows()):
        image_number, true, false = row.rows(3)
        image = ImageFile(folder / images / name.format(_number(image_number)))
        yield Item(f"row-{number:04d}", (image,), (true.text(), false.text()))


def _number(entry: Entry) -> int:
    """Numbers of images stand as numbers or as texts of digits."""
    if isinstance(entry.value, str) and entry.value.isascii() and entry.value.isdigit():
        return int(entry.value)
    return entry.integer()


def _rows(folder: pathlib.Path, subset: str) -> Iterator[Entry]:
    return read_json(folder / f"{SUBSETS[subset][0]}_dataset.json").rows()


def _named(folder: pathlib.Path, subset: str, row: Entry) -> tuple[ImageFile, str, str]:
    """The image, its two things and their arrangement: the name is ``<thing>_<arrangement>[_of]_<thing>.jpeg``."""
    name = row["image_path"].text().rsplit("/", 1)[-1]
    parts = name.rsplit(".", 1)[0].split("_")
    if len(parts) < 3 or parts[1] not in SUBSETS[subset][2]:
        choices = ", ".join(SUBSETS[subset][2])
        raise row["image_path"].wrong(
            f"is {options.quote(name)}, which has none of the arrangements {choices}", "bad-annotations"
        )
    return ImageFile(folder / SUBSETS[subset][0] / name), f"{parts[0]} and {parts[-1]}", parts[1]


def _check_set(things: str, members: dict[str, tuple[ImageFile, Entry]], arrangements: tuple[str, ...]) -> None:
    row = next(iter(members.values()))[1]
    missing = [arrangement for arrangement in arrangements if arrangement not in members]
    if missing:
        raise row.wrong(f"is of {things}, of which there is no image {missing[0]!r}", "missing-items")
    captions = [sorted(entry["caption_options"].texts(4)) for _, entry in members.values()]
    if any(texts != captions[0] for texts in captions):
        raise row.wrong(f"is of {things}, whose images do not have the same four captions", "bad-annotations")


def _task(name: str, description: str, source: PublishedData, metric: str, shape: tuple[int, int]):
    return published_task(
        name=name,
        description=f"What'sUp: {description}",
        metric=metric,
        shape=shape,
        images_compete=False,
        skills=("spatial",),
        paper="Kamath et al. 2023",
        licence="MIT",
        url=_REPOSITORY,
        source=source,
    )


def _controlled(subset: str):
    images, count, _ = SUBSETS[subset]
    common = {
        "how_to_get": (
            f"{images}_dataset.json and the folder {images}, unpacked from {images}.tar.gz, of {_DRIVE} (the link of"
            f" {_REPOSITORY}, MIT licence)"
        ),
        "shared_folder": "whatsup",
    }
    of = functools.partial(read_groups, subset=subset)
    single = PublishedData(functools.partial(read, subset=subset), num_examples=count, **common)
    pairs = PublishedData(functools.partial(of, size=2), num_examples=count // 2, **common)
    sets = PublishedData(functools.partial(of, size=4), num_examples=count // 4, **common)
    name = f"whatsup_{subset}"
    return (
        _task(name, "which of four prepositions is true of two things.", single, "accuracy", (1, 4)),
        _task(f"{name}_pairs", "whether two opposite arrangements find their captions.", pairs, "own_texts", (2, 4)),
        _task(f"{name}_sets", "whether all four arrangements find their captions.", sets, "own_texts", (4, 4)),
    )


def _spatial(name: str):
    file, count, images, _, about = SPATIAL[name]
    is_coco = images == "val2017"
    where = f"unpacked from {COCO_IMAGES.url}" if is_coco else f"of {_DRIVE}"
    source = PublishedData(
        functools.partial(read_spatial, task=name),
        f"{file} of {_DRIVE} (the link of {_REPOSITORY}, MIT licence) and the folder {images}, {where}",
        count,
        (COCO_IMAGES,) if is_coco else (),
        COCO_FOLDER if is_coco else "whatsup",
    )
    return _task(name, f"which of two opposite prepositions is true; {about}.", source, "accuracy", (1, 2))


TASKS = (*_controlled("a"), *_controlled("b"), *map(_spatial, SPATIAL))

DATA_SETS = (
    DataSet(
        name="whatsup",
        title="What'sUp",
        description="prepositions: where things are",
        tasks=tuple(task for task in TASKS if task.name.startswith("whatsup")),
        downloads="",
        supplies="files on Google Drive",
    ),
    DataSet(
        name="coco_spatial",
        title="COCO-spatial",
        description="prepositions, COCO photographs",
        tasks=tuple(task for task in TASKS if task.name.startswith("coco")),
        downloads="COCO's val2017",
        supplies="annotations on Google Drive",
        size="0.8 GB",
    ),
    DataSet(
        name="gqa_spatial",
        title="GQA-spatial",
        description="prepositions, GQA photographs",
        tasks=tuple(task for task in TASKS if task.name.startswith("gqa")),
        downloads="",
        supplies="files on Google Drive",
    ),
)
