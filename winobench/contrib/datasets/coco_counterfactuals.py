"""COCO-Counterfactuals: two generated images and two captions that differ in a noun

Each pair begins with a caption of COCO. The authors publish no 2 x 2 score for them. The scores here are Winoground's.
Their page does not state the number of pairs, so that none is checked.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import read_json_lines
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_HUB_ID = "Intel/COCO-Counterfactuals"
_PAGE = f"https://huggingface.co/datasets/{_HUB_ID}"
_LICENCE = "CC BY 4.0"


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Two images and their captions. The diagonal is right."""
    root, seen = folder / "data", set()
    for row in read_json_lines(root / "examples.jsonl").rows():
        seen.add(name := row["id"].unique(row["id"].text(), seen))
        images = tuple(ImageFile(root / "images" / f"{row[f'image_{side}'].text()}.jpg") for side in (0, 1))
        yield Item(name, images, tuple(row[f"caption_{side}"].text() for side in (0, 1)), None)


TASKS = (
    published_task(
        name="coco_counterfactuals",
        description="COCO-Counterfactuals: which caption belongs to which of two generated images. A noun differs.",
        metric="winoground",
        shape=(2, 2),
        skills=("recognition",),
        paper="Le et al. 2023",
        licence=_LICENCE,
        url=_PAGE,
        read=read,
        how_to_get=(
            f"the folder data of {_PAGE}, with examples.jsonl, and with images.zip unpacked to data/images ({_LICENCE})"
        ),
        num_examples=None,
        downloads=(
            Download("data/examples.jsonl", hub_id=_HUB_ID, filename="data/examples.jsonl", note=f"4 MB, {_LICENCE}"),
            Download(
                "data/images.zip",
                hub_id=_HUB_ID,
                filename="data/images.zip",
                unpack=True,
                note=f"6.4 GB, {_LICENCE}",
            ),
        ),
    ),
)

DATA_SETS = (
    DataSet(
        name="coco_counterfactuals",
        title="COCO-Counterfactuals",
        description="generated pairs, a noun differs",
        tasks=TASKS,
        size="6.4 GB",
    ),
)
