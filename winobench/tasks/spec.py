"""SPEC: generated images that differ in size, position, existence or number of things (Peng et al. 2024)

Six subsets, each from both sides: ``spec_<subset>_text`` asks which text is true of an image, ``spec_<subset>_image``
of which image a text is true. The authors publish no number of questions, so that none is checked.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import Download, PublishedData
from winobench.tasks.published import published_task

_HUB_ID = "wjpoom/SPEC"

SUBSETS = {
    "absolute_size": (3, "how large a thing is", ("recognition",)),
    "relative_size": (3, "which of two things is larger", ("compositional",)),
    "absolute_spatial": (9, "where in the image a thing is", ("spatial",)),
    "relative_spatial": (4, "where a thing is relative to another", ("spatial",)),
    "count": (9, "how many there are", ("counting",)),
    "existence": (2, "whether a thing is there", ("recognition",)),
}
"""Subset -> number of candidates, what differs, skills."""


def read_texts(folder: pathlib.Path, subset: str) -> Iterator[Item]:
    """An image and texts.

    Args:
      folder: holds ``<subset>/image2text.json``, rows {"query", "keys", "label"}, and the images, relative to the
        subset's folder. Or all that in ``data``, as the archive unpacks.
    """
    root = _root(folder, subset)
    for number, row in enumerate(read_json(root / "image2text.json").rows()):
        texts = row["keys"].texts()
        image = ImageFile(root / row["query"].text())
        yield Item(f"row-{number:05d}", (image,), texts, _label(row, len(texts)))


def read_images(folder: pathlib.Path, subset: str) -> Iterator[Item]:
    """A text and images, of ``text2image.json``. Otherwise as `read_texts`."""
    root = _root(folder, subset)
    for number, row in enumerate(read_json(root / "text2image.json").rows()):
        images = tuple(ImageFile(root / name) for name in row["keys"].texts())
        yield Item(f"row-{number:05d}", images, (row["query"].text(),), _label(row, len(images)))


def _root(folder: pathlib.Path, subset: str) -> pathlib.Path:
    inner = folder / "data" / subset
    return inner if inner.is_dir() else folder / subset


def _label(row: Entry, num_candidates: int) -> int:
    label = row["label"].integer()
    if num_candidates < 2 or not 0 <= label < num_candidates:
        raise row["label"].wrong(
            f"is {options.shown(label)}, but there are {num_candidates} candidates", "target-not-among-candidates"
        )
    return label


def _task(subset: str, side: str):
    size, differs, skills = SUBSETS[subset]
    texts_compete = side == "text"
    question = "which text is true of an image" if texts_compete else "of which image a text is true"
    return published_task(
        name=f"spec_{subset}_{side}",
        version=1,
        description=f"SPEC: {question}; {differs}.",
        metric="accuracy",
        shape=(1, size) if texts_compete else (size, 1),
        chance={"accuracy": 1 / size},
        images_compete=not texts_compete,
        skills=skills,
        source=PublishedData(
            read=functools.partial(read_texts if texts_compete else read_images, subset=subset),
            how_to_get=(
                f"the folders of data.zip of https://huggingface.co/datasets/{_HUB_ID} (its page has the licence)"
            ),
            num_examples=None,
            downloads=(Download("data.zip", hub_id=_HUB_ID, filename="data.zip", unpack=True),),
            shared_folder="spec",
        ),
    )


TASKS = tuple(_task(subset, side) for subset in SUBSETS for side in ("text", "image"))
