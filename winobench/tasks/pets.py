"""Oxford-IIIT Pet: which of 37 breeds a photograph shows (Parkhi et al. 2012).

The task is on the 3,669 images of the test split, as is usual; the published code takes all 7,390 images, those of the
training split as well. ``pets`` asks with the paper's prompt (footnote 3), ``pets_photo`` with the published code's.
"""

from __future__ import annotations

import collections
import functools
import pathlib
from collections.abc import Iterator

from winobench import options
from winobench.errors import InputError
from winobench.tasks.annotations import DIFFUSION_ITM, DIFFUSION_ITM_RAW, read_lines
from winobench.tasks.published import Download, ImageFile, Item, PublishedData, published_task

_NUM_CLASSES = 37
_HOME = "https://www.robots.ox.ac.uk/~vgg/data/pets"
_FILES = "https://thor.robots.ox.ac.uk/~vgg/data/pets"


def read(folder: pathlib.Path, prompt: str) -> Iterator[Item]:
    """A photograph and a prompt for each breed; the breed of an image is in its name, e.g. ``shiba_inu_12.jpg``.

    Args:
      folder: holds ``classes.txt``, one breed a line in lower case, ``annotations/test.txt``, whose lines begin with
        the names of images, and ``images/<name>.jpg``.
      prompt: with ``{}`` for the breed.

    Raises:
      InputError: a file is missing or malformed, an image's name has no known breed, or a name occurs twice.
    """
    classes_file = folder / "classes.txt"
    classes = read_lines(classes_file)
    if len(classes) != _NUM_CLASSES:
        raise InputError(
            f"{classes_file} has {len(classes)} breeds, not {_NUM_CLASSES}: restore it as it was published",
            code="bad-annotations",
        )
    for breed, count in collections.Counter(classes).items():
        if count > 1:
            raise InputError(
                f"{classes_file} has the breed {options.shown(breed)} {count} times: restore it as it was published",
                code="bad-annotations",
            )
    texts = tuple(prompt.format(name) for name in classes)
    split = folder / "annotations" / "test.txt"
    names = set()
    for line in read_lines(split):
        if line.startswith("#"):
            continue
        name = line.split()[0]
        breed = " ".join(name.split("_")[:-1]).lower()
        if breed not in classes:
            raise InputError(
                f"{split} has the image {options.shown(name)}, which is named for no breed in {classes_file}: restore"
                " both files as they were published",
                code="bad-annotations",
            )
        if name in names:
            raise InputError(
                f"{split} has the image {options.shown(name)} twice: restore it as it was published",
                code="bad-annotations",
            )
        names.add(name)
        yield Item(name, (ImageFile(folder / "images" / f"{name}.jpg"),), texts, classes.index(breed))


def _task(name: str, prompt: str):
    return published_task(
        name=name,
        version=1,
        description=f'Oxford-IIIT Pet: which of 37 breeds; the text is "{prompt.format("BREED")}".',
        metric="accuracy",
        shape=(1, _NUM_CLASSES),
        chance={"accuracy": 1 / _NUM_CLASSES},
        images_compete=False,
        skills=("classification",),
        source=PublishedData(
            read=functools.partial(read, prompt=prompt),
            how_to_get=(
                f"classes.txt (from data/pets of {DIFFUSION_ITM}) and the folders images and annotations, unpacked from"
                f" images.tar.gz and annotations.tar.gz of {_HOME}"
            ),
            num_examples=3669,
            downloads=(
                Download(
                    "classes.txt",
                    f"{DIFFUSION_ITM_RAW}/pets/classes.txt",
                    sha256="86e36d851ccfe8be671250c8c57b52360d9a97d90fff1471dbb6bdf82cdf9c7a",
                ),
                Download("images.tar.gz", f"{_FILES}/images.tar.gz", unpack=True, note="0.8 GB, CC BY-SA 4.0"),
                Download("annotations.tar.gz", f"{_FILES}/annotations.tar.gz", unpack=True, note="19 MB, CC BY-SA 4.0"),
            ),
            shared_folder="pets",
        ),
    )


TASKS = (_task("pets", "an image of a {}"), _task("pets_photo", "a photo of a {}"))
