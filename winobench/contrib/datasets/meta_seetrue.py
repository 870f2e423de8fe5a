"""SeeTRUE: do the images that show their text score higher than others?

The public rows: 602 texts with 8 to 17 images each, 6,930 in all. People have labelled whether an image shows its text.
Groups are where texts are from, and the published code computes the area under the ROC curve of each group:
``coco_t2i``, ``drawbench`` and ``editbench``. A rating is the label, 0 or 1: people say yes to an image with a 1.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from winobench.contrib.datasets.people import answer
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_table
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_HUB_ID = "yonatanbitton/SeeTRUE"
_PAGE = f"https://huggingface.co/datasets/{_HUB_ID}"
_T2V = "https://raw.githubusercontent.com/linzhiqiu/t2v_metrics/6ecb74f92028f42c7e64546d3a71e98c8c73068f/datasets"
_FILE = "SeeTRUE.csv"
_SHA256 = "175c78dffe54724259ed8466f9e71fbda8aaa4f479b99a3a3530a2c89f763fd0"
_COLUMNS = ("image", "text", "label", "dataset_source")
_MOST_IMAGES = 17  # of a text


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Texts with their images, in the order of their first rows, named by their source and number in it."""
    texts: dict[str, dict[str, list[Entry]]] = {}
    seen: set[str] = set()
    for row in read_table(folder / _FILE, _COLUMNS, delimiter=",").rows():
        seen.add(row["image"].unique(row["image"].text(), seen))
        texts.setdefault(row["dataset_source"].text(), {}).setdefault(row["text"].text(), []).append(row)
    for source, rows_of in texts.items():
        for number, (text, rows) in enumerate(rows_of.items()):
            images = tuple(ImageFile(folder / "images" / row["image"].text()) for row in rows)
            labels = tuple(float(answer(row["label"], 0, 1)) for row in rows)
            yield Item(f"{source}/{number:03d}", images, (text,), None, (source,), labels)


TASKS = (
    published_task(
        name="meta_seetrue",
        description="SeeTRUE: whether images that show their text score higher than others.",
        metric="yes_no_agreement",
        shape=(_MOST_IMAGES, 1),
        skills=("people",),
        paper="Yarom et al. 2023",
        licence="CC BY 4.0",
        url=_PAGE,
        read=read,
        how_to_get=(
            f"{_FILE} and the folder images, unpacked from images.zip, of {_PAGE}"
            " (accept the terms there first; CC BY 4.0)"
        ),
        num_examples=602,
        downloads=(
            Download(_FILE, f"{_T2V}/{_FILE}", sha256=_SHA256, note="CC BY 4.0"),
            Download("images.zip", hub_id=_HUB_ID, filename="images.zip", unpack=True, note="5.4 GB, gated, CC BY 4.0"),
        ),
    ),
)

DATA_SETS = (
    DataSet(
        name="meta_seetrue",
        title="SeeTRUE",
        description="whether a text fits an image",
        tasks=TASKS,
        is_gated=True,
        size="5.4 GB",
    ),
)
