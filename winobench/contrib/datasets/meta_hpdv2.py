"""HPD v2's test set: does a scorer prefer the images that people prefer?

400 prompts of DiffusionDB and COCO, each with nine or ten images: of nine models, and COCO's photograph where the
prompt is a caption. Ten people ranked them. A rating is minus the rank of their average, 1 at best. Ranks of different
rows do not compare, so that each row is a separate prompt.
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

_HUB = "https://huggingface.co/datasets/ymhao/HPDv2"
_ARCHIVE = f"{_HUB}/resolve/main/test.tar.gz"
_SHA256 = "76f32e2e752ae1518e142cc3e9be3fe70a79bb556f96851c932fc72e18040217"


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Prompts with ranked images."""
    for number, row in enumerate(read_json(folder / "test.json").rows()):
        images = tuple(ImageFile(folder / "test" / path) for path in row["image_path"].texts())
        ranks = [answer(rank, 0, 100) for rank in row["rank"].rows(len(images))]
        yield Item(f"{number:03d}", images, (row["prompt"].text(),), None, (), tuple(float(-rank) for rank in ranks))


TASKS = (
    published_task(
        name="meta_hpdv2",
        description="HPD v2's test set: whether the scorer prefers the images that people prefer.",
        metric="preference_agreement",
        shape=(10, 1),
        skills=("people",),
        paper="Wu et al. 2023",
        licence="Apache 2.0",
        url=_HUB,
        read=read,
        how_to_get=f"test.json and the folder test, unpacked from test.tar.gz (from {_HUB}, Apache 2.0)",
        num_examples=400,
        downloads=(
            Download("test.json", f"{_HUB}/resolve/main/test.json", note="Apache 2.0"),
            Download("test.tar.gz", _ARCHIVE, sha256=_SHA256, unpack=True, note="Apache 2.0"),
        ),
    ),
)

DATA_SETS = (
    DataSet(
        name="meta_hpdv2",
        title="HPD v2",
        description="which image people prefer",
        tasks=TASKS,
        size="0.2 GB",
    ),
)
