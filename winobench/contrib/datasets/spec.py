"""SPEC: generated images that differ in size, position, existence or number of things

Six subsets, each from both sides: ``spec_<subset>_text`` asks which text is true of an image, ``spec_<subset>_image``
of which image a text is true. The authors publish no number of questions, so that none is checked.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_HUB_ID = "wjpoom/SPEC"
_PAGE = f"https://huggingface.co/datasets/{_HUB_ID}"

SUBSETS = {
    "absolute_size": (3, "how large a thing is", ("recognition",)),
    "relative_size": (3, "which of two things is larger", ("compositional",)),
    "absolute_spatial": (9, "where in the image a thing is", ("spatial",)),
    "relative_spatial": (4, "where a thing is relative to another", ("spatial",)),
    "count": (9, "how many there are", ("counting",)),
    "existence": (2, "whether a thing is there", ("recognition",)),
}
"""Subset -> number of candidates, what differs, skills."""

SIDES = {"text": "image2text.json", "image": "text2image.json"}
"""The competing side -> the file of a subset."""


def read(folder: pathlib.Path, subset: str, side: str) -> Iterator[Item]:
    """An image and texts, or a text and images. The archive unpacks into the folder ``data``."""
    inner = folder / "data" / subset
    root = inner if inner.is_dir() else folder / subset
    for number, row in enumerate(read_json(root / SIDES[side]).rows()):
        keys, query = row["keys"].texts(), (row["query"].text(),)
        images, texts = (query, keys) if side == "text" else (keys, query)
        label = _label(row, len(keys))
        yield Item(f"row-{number:05d}", tuple(ImageFile(root / name) for name in images), texts, label)


def _label(row: Entry, num_candidates: int) -> int:
    label = row["label"].integer()
    if num_candidates < 2 or not 0 <= label < num_candidates:
        raise row["label"].wrong(
            f"is {options.quote(label)}, but there are {num_candidates} candidates", "target-not-among-candidates"
        )
    return label


def _task(subset: str, side: str):
    size, differs, skills = SUBSETS[subset]
    question = "which text is true of an image" if side == "text" else "of which image a text is true"
    return published_task(
        name=f"spec_{subset}_{side}",
        description=f"SPEC: {question}; {differs}.",
        shape=(1, size) if side == "text" else (size, 1),
        skills=skills,
        paper="Peng et al. 2024",
        url=_PAGE,
        read=functools.partial(read, subset=subset, side=side),
        how_to_get=f"the folders of data.zip of {_PAGE} (its page has the licence)",
        num_examples=None,
        downloads=(Download("data.zip", hub_id=_HUB_ID, filename="data.zip", unpack=True),),
        shared_folder="spec",
    )


TASKS = tuple(_task(subset, side) for subset in SUBSETS for side in SIDES)

DATA_SETS = (
    DataSet(
        name="spec",
        title="SPEC",
        description="size, place, number, existence",
        tasks=TASKS,
        licence="on its page",
    ),
)
