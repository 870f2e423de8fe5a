"""Zero-shot classification: which of a data set's classes does an image show?

CIFAR-10, STL-10 and FGVC-Aircraft, each in its published layout. A text is a prompt with a class's name, as Diffusion
Classifier publishes it (Li et al. 2023) in ``prompts/<data set>_prompts.csv``. Images of CIFAR-10 and STL-10, from
one file, are written as PNG into the folder ``unpacked``. Aircraft keep the line with their copyright.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import numpy as np

from winobench.base import options
from winobench.base.errors import InputError
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import not_as_published, read_bytes, read_lines
from winobench.tasks.base import DataSet
from winobench.tasks.hub_tables import write_png
from winobench.tasks.published import published_task

_CIFAR, _STL = "cifar-10-batches-bin", "stl10_binary"
_AIRCRAFT = "fgvc-aircraft-2013b/data"

PROMPTS = {
    "cifar10": "a blurry photo of a {}.",
    "stl10": "a photo of a {}.",
    "fgvc_aircraft": "a photo of a {}, a type of aircraft.",
}
"""Task -> its prompt. Each table has this one, with the names of the data set."""


def read_cifar10(folder: pathlib.Path) -> Iterator[Item]:
    """The test images, 32 x 32. A record has a byte for the class and all of red, green and blue after each other."""
    classes = read_lines(folder / _CIFAR / "batches.meta.txt")
    path = folder / _CIFAR / "test_batch.bin"
    records = _bytes(path, 1 + 3 * 32 * 32)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    yield from _items(folder, path, images, records[:, 0].astype(int), _texts("cifar10", classes))


def read_stl10(folder: pathlib.Path) -> Iterator[Item]:
    """The test images, 96 x 96. An image has all of red, green and blue, each column by column. Classes begin at 1."""
    classes = read_lines(folder / _STL / "class_names.txt")
    path, labels_path = folder / _STL / "test_X.bin", folder / _STL / "test_y.bin"
    images = _bytes(path, 3 * 96 * 96).reshape(-1, 3, 96, 96).transpose(0, 3, 2, 1)
    labels = _bytes(labels_path, 1)[:, 0].astype(int) - 1
    if len(labels) != len(images):
        raise InputError(
            f"{labels_path} has the classes of {len(labels)} images, but {path} has {len(images)}: get both again",
            code="wrong-number-of-entries",
        )
    yield from _items(folder, labels_path, images, labels, _texts("stl10", classes))


def read_aircraft(folder: pathlib.Path) -> Iterator[Item]:
    """The test photographs, by variant."""
    root = folder / _AIRCRAFT
    classes = read_lines(root / "variants.txt")
    texts = _texts("fgvc_aircraft", classes)
    path = root / "images_variant_test.txt"
    seen: set[str] = set()
    for line in read_lines(path):
        name, _, variant = line.partition(" ")
        if variant not in classes or name in seen:
            problem = "a photograph that it has already" if name in seen else f"none of the variants of {root}"
            raise not_as_published(path, f"has the line {options.quote(line)}, {problem}", "bad-annotations")
        seen.add(name)
        yield Item(name, (ImageFile(root / "images" / f"{name}.jpg"),), texts, classes.index(variant))


def _bytes(path: pathlib.Path, size: int) -> np.ndarray:
    """[n, size] uint8: the records of a file."""
    content = read_bytes(path)
    if not content or len(content) % size:
        raise InputError(
            f"{path} has {len(content):,} bytes, which are not records of {size:,}: get the file again",
            code="incomplete-file",
        )
    return np.frombuffer(content, np.uint8).reshape(-1, size)


def _items(
    folder: pathlib.Path, path: pathlib.Path, images: np.ndarray, labels: np.ndarray, texts: tuple[str, ...]
) -> Iterator[Item]:
    wrong = np.flatnonzero((labels < 0) | (labels >= len(texts)))
    if len(wrong):
        raise InputError(
            f"record {wrong[0] + 1} of {path} is of none of the {len(texts)} classes: get the file again",
            code="bad-annotations",
        )
    for number, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
        name = f"{number:05d}"
        yield Item(name, (write_png(image, folder, f"{name}.png"),), texts, label)


def _texts(task: str, classes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(PROMPTS[task].format(name) for name in classes)


def _task(name: str, title: str, num_classes: int, count: int, read: Callable, folder: str, note: str, **about: str):
    url = about["url"]
    return published_task(
        name=name,
        version=2,
        description=f"{title}: which of {num_classes} classes.",
        shape=(1, num_classes),
        skills=("classification",),
        read=read,
        how_to_get=f"the folder {folder}, unpacked from {url}",
        num_examples=count,
        downloads=(Download(url.rsplit("/", 1)[1], url, unpack=True, note=note),),
        **about,
    )


TASKS = (
    _task(
        *("cifar10", "CIFAR-10", 10, 10_000, read_cifar10, _CIFAR, "170 MB, no licence is stated"),
        paper="Krizhevsky 2009",
        url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    ),
    _task(
        *("stl10", "STL-10", 10, 8_000, read_stl10, _STL, "2.6 GB, images of ImageNet under its terms"),
        paper="Coates et al. 2011",
        url="http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
    ),
    _task(
        *("fgvc_aircraft", "FGVC-Aircraft", 100, 3_333, read_aircraft, _AIRCRAFT, "2.7 GB, for research only"),
        paper="Maji et al. 2013",
        licence="research only",
        url="https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz",
    ),
)

DATA_SETS = (
    DataSet(
        name="cifar10",
        title="CIFAR-10",
        description="one of 10 classes",
        tasks=tuple(task for task in TASKS if task.name == "cifar10"),
        licence="none stated",
        size="170 MB",
    ),
    DataSet(
        name="stl10",
        title="STL-10",
        description="one of 10 classes",
        tasks=tuple(task for task in TASKS if task.name == "stl10"),
        licence="images of ImageNet",
        size="2.6 GB",
    ),
    DataSet(
        name="fgvc_aircraft",
        title="FGVC-Aircraft",
        description="one of 100 kinds of aircraft",
        tasks=tuple(task for task in TASKS if task.name == "fgvc_aircraft"),
        size="2.7 GB",
    ),
)
