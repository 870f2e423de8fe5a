"""SugarCrepe: which of two captions is true of a photograph?

The wrong caption adds, replaces or swaps an object, an attribute or a relation, and reads as fluently as the true one:
seven sets with 7,511 rows. The photographs are COCO's of val2017. Rows are named by their keys in the published files;
swap_obj has the keys 0 to 245 without 108. (Self-Bench counts by position and so asks row 109 twice and the last one
never, its ``sugar_att`` merges sets whose keys collide. Neither is done here.)
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

REPOSITORY = "https://github.com/RAIVNLab/sugar-crepe"
_RAW = "https://raw.githubusercontent.com/RAIVNLab/sugar-crepe/main/data"
COCO_FOLDER = "coco_val2017"
"""The folder of downloads that tasks on COCO's val2017 share."""
COCO_IMAGES = Download(
    "val2017.zip",
    "http://images.cocodataset.org/zips/val2017.zip",
    unpack=True,
    note="0.8 GB, photographs from Flickr under its terms",
)

SETS = {
    ("add", "att"): (692, "an attribute is added"),
    ("add", "obj"): (2062, "an object is added"),
    ("replace", "att"): (788, "an attribute is replaced"),
    ("replace", "obj"): (1652, "an object is replaced"),
    ("replace", "rel"): (1406, "a relation is replaced"),
    ("swap", "att"): (666, "two attributes are swapped"),
    ("swap", "obj"): (245, "two objects are swapped"),
}
"""(edit, its object) -> number of rows, and the fault of the wrong caption."""


def read(folder: pathlib.Path, name: str) -> Iterator[Item]:
    """A photograph, its caption and the wrong one."""
    for key, row in read_json(folder / f"{name}.json").items():
        yield Item(key, (photograph(folder, row),), (row["caption"].text(), row["negative_caption"].text()))


def photograph(folder: pathlib.Path, row: Entry) -> ImageFile:
    """The photograph of COCO's val2017 that a row names."""
    return ImageFile(folder / "val2017" / row["filename"].text())


TASKS = tuple(
    published_task(
        name=f"sugarcrepe_{edit}_{what}",
        description=f"SugarCrepe: which of two captions is true. In the other one {wrong}.",
        shape=(1, 2),
        skills=("compositional", "attribute_binding") if (edit, what) == ("swap", "att") else ("compositional",),
        paper="Hsieh et al. 2023",
        licence="MIT",
        url=REPOSITORY,
        read=functools.partial(read, name=f"{edit}_{what}"),
        how_to_get=(
            f"{edit}_{what}.json (from data of {REPOSITORY}) and the folder val2017, unpacked from {COCO_IMAGES.url}"
        ),
        num_examples=count,
        downloads=(Download(f"{edit}_{what}.json", f"{_RAW}/{edit}_{what}.json", note="MIT licence"), COCO_IMAGES),
        shared_folder=COCO_FOLDER,
    )
    for (edit, what), (count, wrong) in SETS.items()
)

DATA_SETS = (
    DataSet(
        name="sugarcrepe",
        title="SugarCrepe",
        description="captions against hard negatives",
        tasks=TASKS,
        licence="MIT, photographs: Flickr's terms",
        size="0.8 GB",
    ),
)
