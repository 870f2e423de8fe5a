"""SugarCrepe as Self-Bench asks it: its sets of attributes and of objects, merged by their keys.

Self-Bench's loader puts the rows of several of SugarCrepe's files into one table by their keys, which collide: the last
file's row stays. So 788 of 2,146 rows on attributes are left and 2,062 of 3,959 on objects, and its published figures
are of these. The group is the set that a row is from. (Of relations there is one file, ``sugarcrepe_replace_rel``.)
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.contrib.datasets import sugarcrepe
from winobench.data.example import Item
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

MERGED = {"att": ("add_att", "replace_att", "swap_att"), "obj": ("add_obj", "replace_obj", "swap_obj")}
"""Object of the edit -> SugarCrepe's sets, of which a later one's rows replace an earlier one's."""

_COUNTS = {"att": 788, "obj": 2062}


def read(folder: pathlib.Path, what: str) -> Iterator[Item]:
    """A photograph, its caption and the wrong one. Rows are named by their keys."""
    rows = {item.id: (item, name) for name in MERGED[what] for item in sugarcrepe.read(folder, name)}
    for key, (item, name) in rows.items():
        yield Item(key, item.images, item.texts, item.target, (name,))


def _task(what: str):
    files = ", ".join(f"{name}.json" for name in MERGED[what])
    downloads = {
        download.to: download
        for task in sugarcrepe.TASKS
        if task.name.removeprefix("sugarcrepe_") in MERGED[what]
        for download in task.source.downloads
    }
    return published_task(
        name=f"sugarcrepe_selfbench_{what}",
        description=f"SugarCrepe's sets of {what}, merged as Self-Bench does: which of two captions is true.",
        shape=(1, 2),
        when_named=True,
        skills=("compositional",),
        paper="Jeong et al. 2025",
        licence="MIT",
        url=sugarcrepe.REPOSITORY,
        read=functools.partial(read, what=what),
        how_to_get=(
            f"{files} (from data of {sugarcrepe.REPOSITORY}) and the folder val2017, unpacked from"
            f" {sugarcrepe.COCO_IMAGES.url}"
        ),
        num_examples=_COUNTS[what],
        downloads=tuple(downloads.values()),
        shared_folder=sugarcrepe.COCO_FOLDER,
    )


TASKS = tuple(map(_task, MERGED))

DATA_SETS = (
    DataSet(
        name="sugarcrepe_selfbench",
        title="SugarCrepe as Self-Bench merges it",
        description="merged as in Self-Bench",
        tasks=TASKS,
        licence="MIT, photographs: Flickr's terms",
        size="0.8 GB",
    ),
)
