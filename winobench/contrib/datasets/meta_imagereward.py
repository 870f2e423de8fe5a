"""ImageReward's test set: does a scorer prefer the images that people prefer?

466 rows: a prompt by users of DiffusionDB, and four to nine images that people have ranked, ties included. A rating
is minus the rank. 6,399 pairs of images of a row have different ranks. The paper states this number of comparisons.
Two prompts occur in five rows. Ranks of different rows do not compare, so that each row is a separate prompt.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from winobench.contrib.datasets.people import answer
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/THUDM/ImageReward"
_RAW = "https://raw.githubusercontent.com/THUDM/ImageReward/c1392c6dd0fd6ecd6d416c96959ab744a6d0a8fb/data"
_SHA256 = "77cff6c2d0522006f52f0b637ef8302db1782b2b761e378c124a012a3c7fc58e"
_ARCHIVE = "https://huggingface.co/THUDM/ImageReward/resolve/main/test_images.zip"


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Prompts with ranked images."""
    seen: set[str] = set()
    for row in read_json(folder / "test.json").rows():
        name = row["id"].unique(row["id"].text(), seen)
        seen.add(name)
        images = tuple(ImageFile(folder / "test_images" / path) for path in row["generations"].texts())
        ranks = [answer(rank, 1, 100) for rank in row["ranking"].rows()]
        if len(ranks) != len(images):
            raise row["ranking"].wrong(f"has {len(ranks)} entries, not {len(images)}", "wrong-number-of-entries")
        yield Item(name, images, (row["prompt"].text(),), None, (), tuple(float(-rank) for rank in ranks))


TASKS = (
    published_task(
        name="meta_imagereward",
        version=2,
        description="ImageReward's test set: whether the scorer prefers the images that people prefer.",
        metric="preference_agreement",
        shape=(9, 1),
        skills=("people",),
        paper="Xu et al. 2023",
        licence="Apache 2.0",
        url=_REPOSITORY,
        read=read,
        how_to_get=f"test.json (from data of {_REPOSITORY}) and the folder test_images, unpacked from {_ARCHIVE}",
        num_examples=466,
        downloads=(
            Download("test.json", f"{_RAW}/test.json", sha256=_SHA256, note="Apache 2.0"),
            Download("test_images.zip", _ARCHIVE, unpack=True, note="images of DiffusionDB"),
        ),
    ),
)

DATA_SETS = (
    DataSet(
        name="meta_imagereward",
        title="ImageReward",
        description="which image people prefer",
        tasks=TASKS,
        licence="Apache 2.0, images: DiffusionDB",
    ),
)
