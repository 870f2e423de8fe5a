"""CountBench: which number of things, from two to ten, is true of an image?

The candidates are the caption with each of the nine numbers in its place. A row of the 540 counts if its
image is in the table and whose caption spells out its number.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Iterator

from winobench.data.example import Item
from winobench.data.sources import Download, LeftOut
from winobench.tasks.base import DataSet
from winobench.tasks.hub_tables import read_rows, unpack
from winobench.tasks.published import published_task

NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_HUB_ID = "nielsr/countbench"
_PAGE = f"https://huggingface.co/datasets/{_HUB_ID}"
_FILE = "data/train-00000-of-00001-cf54c241ba947306.parquet"


def read(folder: pathlib.Path) -> Iterator[Item | LeftOut]:
    """An image, and its caption with each number. The group is the true one."""
    for index, row in read_rows(folder, "train", ("image", "text", "number")):
        number, caption = row["number"].integer(), row["text"].text()
        if not 2 <= number <= 10:
            raise row["number"].wrong(f"is {number}, which is not from 2 to 10", "out-of-range")
        word = NUMBERS[number - 2]
        match = re.search(rf"\b{word}\b", caption, re.IGNORECASE)
        name = f"row-{index:03d}"
        if row["image"].value is None or match is None:
            yield LeftOut(name, "no image in the table" if match else "a caption that does not spell out its number")
            continue
        image = unpack(row["image"], folder, name)
        texts = tuple(_replaced(caption, match, other) for other in NUMBERS)
        yield Item(name, (image,), texts, number - 2, (word,))


def _replaced(caption: str, match: re.Match, word: str) -> str:
    old = match.group()
    if old.isupper():
        word = word.upper()
    elif old[0].isupper():
        word = word.capitalize()
    return caption[: match.start()] + word + caption[match.end() :]


TASKS = (
    published_task(
        name="countbench",
        description="CountBench: which number from two to ten is true of an image.",
        shape=(1, len(NUMBERS)),
        skills=("counting",),
        paper="Paiss et al. 2023",
        url=_PAGE,
        read=read,
        how_to_get=f"{_FILE} of {_PAGE} (its page has the licence)",
        num_examples=None,
        downloads=(Download(_FILE, hub_id=_HUB_ID, filename=_FILE, note="images from the web under their terms"),),
    ),
)

DATA_SETS = (
    DataSet(
        name="countbench",
        title="CountBench",
        description="how many, from two to ten",
        tasks=TASKS,
        licence="images from the web",
    ),
)
