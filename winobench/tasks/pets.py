"""Oxford-IIIT Pet: which of 37 breeds a photograph shows.

``pets`` and ``pets_photo`` are on the 3,669 images of the test split; ``pets_all`` and ``pets_photo_all`` on all 7,390
photographs, as in the published code. ``pets_photo`` has that code's prompt, ``pets`` has the prompt of the paper's
footnote 3.
"""

from __future__ import annotations

import collections
import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.base.errors import InputError
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import DIFFUSION_ITM, DIFFUSION_ITM_RAW, not_as_published, read_lines
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_NUM_CLASSES = 37
_NUM_IMAGES = {"test": 3669, "all": 7390}
_HOME = "https://www.robots.ox.ac.uk/~vgg/data/pets"
_FILES = "https://thor.robots.ox.ac.uk/~vgg/data/pets"
_DOWNLOADS = (
    Download(
        "classes.txt",
        f"{DIFFUSION_ITM_RAW}/pets/classes.txt",
        sha256="86e36d851ccfe8be671250c8c57b52360d9a97d90fff1471dbb6bdf82cdf9c7a",
    ),
    Download("images.tar.gz", f"{_FILES}/images.tar.gz", unpack=True, note="0.8 GB, CC BY-SA 4.0"),
    Download("annotations.tar.gz", f"{_FILES}/annotations.tar.gz", unpack=True, note="19 MB, CC BY-SA 4.0"),
)


def read(folder: pathlib.Path, prompt: str, split: str = "test") -> Iterator[Item]:
    """A photograph and a prompt for each breed. The breed of an image is in its name, e.g. ``shiba_inu_12.jpg``."""
    classes_file = folder / "classes.txt"
    classes = read_lines(classes_file)
    if len(classes) != _NUM_CLASSES:
        raise not_as_published(classes_file, f"has {len(classes)} breeds, not {_NUM_CLASSES}", "bad-annotations")
    for breed, count in collections.Counter(classes).items():
        if count > 1:
            problem = f"has the breed {options.quote(breed)} {count} times"
            raise not_as_published(classes_file, problem, "bad-annotations")
    texts = tuple(prompt.format(name) for name in classes)
    where, image_names = _test_names(folder) if split == "test" else _all_names(folder)
    names = set()
    for name in image_names:
        breed = " ".join(name.split("_")[:-1]).lower()
        if breed not in classes:
            raise InputError(
                f"{where} has the image {options.quote(name)}, which is named for no breed in {classes_file}: restore"
                " both files as they were published",
                code="bad-annotations",
            )
        if name in names:
            raise not_as_published(where, f"has the image {options.quote(name)} twice", "bad-annotations")
        names.add(name)
        yield Item(name, (ImageFile(folder / "images" / f"{name}.jpg"),), texts, classes.index(breed))


def _test_names(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    path = folder / "annotations" / "test.txt"
    return path, [line.split()[0] for line in read_lines(path) if not line.startswith("#")]


def _all_names(folder: pathlib.Path) -> tuple[pathlib.Path, list[str]]:
    path = folder / "images"
    # Archives of Mac OS X hold files that begin with a dot.
    names = sorted(file.stem for file in path.glob("*.jpg") if not file.name.startswith("."))
    if not names:
        raise InputError(f"{path} has no photograph (.jpg): unpack images.tar.gz there", code="no-such-file")
    return path, names


def _task(name: str, prompt: str, split: str = "test"):
    which = "the test split" if split == "test" else "all photographs"
    needed = "the folders images and annotations" if split == "test" else "the folder images"
    archives = "images.tar.gz and annotations.tar.gz" if split == "test" else "images.tar.gz"
    return published_task(
        name=name,
        description=f'Oxford-IIIT Pet: which of 37 breeds, {which}. The text is "{prompt.format("BREED")}".',
        shape=(1, _NUM_CLASSES),
        skills=("classification",),
        paper="Parkhi et al. 2012",
        licence="CC BY-SA 4.0",
        url=_HOME,
        read=functools.partial(read, prompt=prompt, split=split),
        how_to_get=f"classes.txt (from data/pets of {DIFFUSION_ITM}) and {needed}, unpacked from {archives} of {_HOME}",
        num_examples=_NUM_IMAGES[split],
        downloads=_DOWNLOADS[: 3 if split == "test" else 2],
        shared_folder="pets",
    )


TASKS = (
    _task("pets", "an image of a {}"),
    _task("pets_photo", "a photo of a {}"),
    _task("pets_all", "an image of a {}", "all"),
    _task("pets_photo_all", "a photo of a {}", "all"),
)

DATA_SETS = (
    DataSet(
        name="pets",
        title="Oxford-IIIT Pet",
        description="one of 37 breeds",
        tasks=TASKS,
        size="0.8 GB",
    ),
)
