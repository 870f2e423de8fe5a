"""COLA, multiple objects: which of two captions with the same words belongs to which of two images? (Ray et al. 2023)

210 pairs of images of GQA, that is of Visual Genome. The paper reports that both captions pick their image, here the
image score, which is the headline. Self-Bench's figures are the text score.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import Download
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/arijitray1993/COLA"
_RAW = "https://raw.githubusercontent.com/arijitray1993/COLA/main/data"
_FILE = "COLA_multiobjects_matching_benchmark.json"


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Two images, named by the last parts of their addresses, and their captions. The diagonal is right."""
    for number, row in enumerate(read_json(folder / _FILE).rows()):
        first, caption, second, other = row.texts(4)
        images = tuple(_image(folder, row, address) for address in (first, second))
        yield Item(f"row-{number:03d}", images, (caption, other), None)


def _image(folder: pathlib.Path, row: Entry, address: str) -> ImageFile:
    name = address.rsplit("/", 1)[-1]
    if not name or name in (".", ".."):
        raise row.wrong(f"has the image {address!r}, which is not a file's address", "outside-of-folder")
    return ImageFile(folder / "images" / name)


TASKS = (
    published_task(
        name="cola",
        description="COLA: which of two captions with the same words belongs to which of two images.",
        metric="winoground_image",
        shape=(2, 2),
        skills=("compositional", "attribute_binding"),
        read=read,
        how_to_get=(
            f"{_FILE} (from data of {_REPOSITORY}) and the folder images with the images at the addresses that"
            " the file names, each under the last part of its address"
        ),
        num_examples=210,
        downloads=(Download(_FILE, f"{_RAW}/{_FILE}", note="MIT licence"),),
    ),
)
