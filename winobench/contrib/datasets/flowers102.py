"""Oxford 102 Flowers: which of 102 kinds of flowers a photograph shows.

The 6,149 photographs of the test split, with the prompts of Diffusion Classifier.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from winobench.contrib.datasets import class_prompts, mat_files
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import not_as_published
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_NUM_CLASSES = 102
_FILES = "https://www.robots.ox.ac.uk/~vgg/data/flowers/102"
_PROMPTS = class_prompts.download(
    "prompts/flowers_prompts.csv", "943d6bf6763f22293da3d679a652c203bb8d90ecbc81fc1cc499f1478acb045d"
)


def read(folder: pathlib.Path) -> Iterator[Item]:
    """A photograph and a prompt for each kind. In both files kinds and photographs are numbered from 1 on."""
    texts = class_prompts.read(folder / _PROMPTS.to, _NUM_CLASSES)
    labels_file, split_file = folder / "imagelabels.mat", folder / "setid.mat"
    labels = mat_files.read_numbers(labels_file, "labels")
    if labels.min() < 1 or labels.max() > _NUM_CLASSES:
        problem = f"has a number that is not from 1 to {_NUM_CLASSES}"
        raise not_as_published(f"'labels' in {labels_file}", problem, "out-of-range")
    seen: set[int] = set()
    for number in mat_files.read_numbers(split_file, "tstid").tolist():
        if not 1 <= number <= len(labels) or number in seen:
            problem = "twice" if number in seen else f"but {labels_file} has {len(labels)} photographs"
            problem = f"has the photograph {number} {problem}"
            raise not_as_published(f"'tstid' in {split_file}", problem, "bad-annotations")
        seen.add(number)
        name = f"image_{number:05d}"
        yield Item(name, (ImageFile(folder / "jpg" / f"{name}.jpg"),), texts, int(labels[number - 1]) - 1)


TASKS = (
    published_task(
        name="flowers102",
        description="Oxford 102 Flowers: which of 102 kinds of flowers.",
        shape=(1, _NUM_CLASSES),
        skills=("classification",),
        paper="Nilsback and Zisserman 2008",
        url=_FILES,
        read=read,
        how_to_get=(
            f"the folder jpg, unpacked from 102flowers.tgz, imagelabels.mat and setid.mat of {_FILES}, and"
            f" {_PROMPTS.to} (from prompts of {class_prompts.REPOSITORY})"
        ),
        num_examples=6149,
        downloads=(
            _PROMPTS,
            Download("imagelabels.mat", f"{_FILES}/imagelabels.mat"),
            Download("setid.mat", f"{_FILES}/setid.mat"),
            Download("102flowers.tgz", f"{_FILES}/102flowers.tgz", unpack=True, note="0.3 GB, no licence is stated"),
        ),
    ),
)

DATA_SETS = (
    DataSet(
        name="flowers102",
        title="Flowers 102",
        description="one of 102 kinds of flowers",
        tasks=TASKS,
        licence="none stated",
        size="0.3 GB",
    ),
)
