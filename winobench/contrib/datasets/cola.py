"""COLA: does a model bind attributes to objects?

Multiple objects: which of two captions with the same words belongs to which of two images. 210 pairs of images of GQA,
that is of Visual Genome. The paper reports that both captions pick their image, here the image score, which is the
headline. Self-Bench's figures are the text score.

Single objects: a text such as "square white plate", and the images in the file's hard list of that text, which show
some of its words. The metric is the mean over texts of the average precision of their images. As in the published code,
texts without a positive image in the whole file, and those without a hard image, do not count. Texts whose positive
images are all outside of the hard list have no average precision. They are left out, where the published code gives no
number or 0, depending on torchmetrics' version. No number of texts is checked, as the authors state GQA's alone, 320.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

import numpy as np

from winobench.base import options
from winobench.contrib.datasets.people import answer
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download, LeftOut
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet
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


SINGLES = {
    "gqa": "Visual Genome's photographs (at https://cs-people.bu.edu/array/data/vg_gqa_images)",
    "clevr": "CLEVR's images, CC BY 4.0",
    "paco": "COCO's photographs, under Flickr's terms",
}
"""Source of the single objects -> its images."""


def single_file(source: str) -> str:
    """The name of a source's annotation file."""
    return f"COLA_singleobjects_benchmark_{source.upper()}.json"


def read_singles(folder: pathlib.Path, source: str) -> Iterator[Item | LeftOut]:
    """Texts with their hard images. A rating is 1 where the image shows what the text says, and else 0."""
    content = read_json(folder / single_file(source))
    # The README describes an object, and the published code reads a list of the two.
    labels, data = (content["labels"], content["data"]) if "labels" in content else content.rows(2)
    texts = [_label_text(label) for label in labels.rows()]
    images, shown, hard, addresses = [], [], [], {}
    for row in data.rows():
        address, _, label, hard_list = row.rows(4)
        image = _image(folder, row, address.text())
        if (other := addresses.setdefault(image.path, address.text())) != address.text():
            raise row.wrong(f"has an image of the same name as {options.quote(other)}", "repeated-image")
        images.append(image)
        shown.append(_flags(label, len(texts)))
        hard.append(_flags(hard_list, len(texts)))
    if not images or not texts:
        raise content.wrong("has no image or no text", "empty-list")
    is_shown, is_hard = np.stack(shown), np.stack(hard)
    for number, text in enumerate(texts):
        chosen = np.flatnonzero(is_hard[:, number])
        if not is_shown[:, number].any() or not len(chosen):
            continue
        name, ratings = f"text-{number:03d}", tuple(map(float, is_shown[chosen, number]))
        if not any(ratings):
            yield LeftOut(name, "none of its hard images is a positive one")
            continue
        yield Item(name, tuple(images[row_of_image] for row_of_image in chosen), (text,), None, (), ratings)


def _label_text(label: Entry) -> str:
    """A text, also of one that is stated as its attributes and its object."""
    if not isinstance(label.value, list):
        return label.text()
    attributes, thing = label.rows(2)
    return " ".join((*attributes.texts(), thing.text()))


def _flags(entry: Entry, count: int) -> np.ndarray:
    """[count] bool of a list of 0 and 1."""
    value = entry.value
    # One by one takes long in files of millions.
    if isinstance(value, list) and len(value) == count and all(type(flag) is int and 0 <= flag <= 1 for flag in value):
        return np.array(value, bool)
    return np.array([answer(row, 0, 1) for row in entry.rows(count)], bool)


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
        paper="Ray et al. 2023",
        licence="MIT",
        url=_REPOSITORY,
        read=read,
        how_to_get=(
            f"{_FILE} (from data of {_REPOSITORY}) and the folder images with the images at the addresses that"
            " the file names, each under the last part of its address"
        ),
        num_examples=210,
        downloads=(Download(_FILE, f"{_RAW}/{_FILE}", note="MIT licence"),),
    ),
    *(
        published_task(
            name=f"cola_single_{source}",
            description=f"COLA, single objects of {source.upper()}: whether images that show a text rank first.",
            metric="average_precision",
            shape=(2, 1),  # at least: as many images as are hard for the text
            skills=("compositional", "attribute_binding"),
            paper="Ray et al. 2023",
            licence="MIT",
            url=_REPOSITORY,
            read=functools.partial(read_singles, source=source),
            how_to_get=(
                f"{single_file(source)} (from data of {_REPOSITORY}, MIT licence) and the folder images with {images},"
                " each under the last part of its path in the file"
            ),
            num_examples=None,
            downloads=(Download(single_file(source), f"{_RAW}/{single_file(source)}", note="MIT licence"),),
            shared_folder="cola",
        )
        for source, images in SINGLES.items()
    ),
)

DATA_SETS = (
    DataSet(
        name="cola",
        title="COLA",
        description="attributes bound to objects",
        tasks=tuple(task for task in TASKS if task.name == "cola"),
        downloads="annotations",
        supplies="images, at the addresses in its file",
    ),
    DataSet(
        name="cola_single",
        title="COLA, single objects",
        description="images ranked for a short text",
        tasks=tuple(task for task in TASKS if task.name != "cola"),
        downloads="annotations",
        supplies="images of Visual Genome, CLEVR and COCO",
        licence="MIT, images: their own terms",
    ),
)
