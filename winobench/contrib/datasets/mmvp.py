"""MMVP-VLM: pairs of images that CLIP takes for the same, by visual pattern

Nine patterns with 15 pairs each, so that an interval is some 0.2 to each side. The text is "a photo of" with the
statement of ``Questions.csv``, as its authors and Self-Bench ask. The authors' number is the image score, which is the
headline: both texts of a pair find their image (evaluate_vlm.py). Self-Bench's figures are the text score.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, read_table
from winobench.tasks.base import DataSet
from winobench.tasks.hub_tables import hub_folder
from winobench.tasks.published import published_task

_PAGE = "https://huggingface.co/datasets/MMVP/MMVP_VLM"
_FILE, _IMAGES = "Questions.csv", "MLLM_VLM Images"
_NUMBER, _TYPE, _STATEMENT = "Question ID", "Type", "Statement"

PATTERNS = {
    "camera": ("Camera Perspective", "the point of view", ("recognition",)),
    "color": ("Color", "colour and appearance", ("recognition",)),
    "orientation": ("Orientation", "where something points", ("spatial",)),
    "presence": ("Presence", "whether something is there", ("recognition",)),
    "quantity": ("Quantity", "how many there are", ("counting",)),
    "spatial": ("Spatial", "where things are", ("spatial",)),
    "state": ("State", "the state of something", ("recognition",)),
    "structural": ("Structural Character", "the parts of something", ("recognition",)),
    "text": ("Text", "written words", ("recognition",)),
}
"""Pattern -> its type in the table, what differs, skills."""


def read(folder: pathlib.Path, kind: str) -> Iterator[Item]:
    """Two images and two texts. The diagonal is right. A row with an odd number and the next number are a pair."""
    rows: dict[int, Entry] = {}
    for row in read_table(folder / _FILE, (_NUMBER, _TYPE, _STATEMENT), ",").rows():
        if row[_TYPE].text().strip() != kind:
            continue
        digits = row[_NUMBER].text().strip()
        if not (digits.isascii() and digits.isdigit()):
            raise row[_NUMBER].wrong("is not a whole number", "not-a-number")
        rows[row[_NUMBER].unique(int(digits), rows)] = row
    for number, row in rows.items():
        if (other := number + 1 if number % 2 else number - 1) not in rows:
            raise row[_NUMBER].wrong(f"is {number}, but no row of type {kind!r} has the number {other}", "not-a-pair")
    for pair in ((number, number + 1) for number in sorted(rows) if number % 2):
        images = tuple(ImageFile(folder / _IMAGES / kind / f"{number}.jpg") for number in pair)
        texts = tuple(f"a photo of {rows[number][_STATEMENT].text()}" for number in pair)
        yield Item(f"{pair[0]}-{pair[1]}", images, texts, None)


TASKS = tuple(
    published_task(
        name=f"mmvp_{pattern}",
        description=f"MMVP-VLM: which statement belongs to which of two images. They differ in {differs}.",
        metric="winoground_image",
        shape=(2, 2),
        skills=skills,
        paper="Tong et al. 2024",
        url=_PAGE,
        read=functools.partial(read, kind=kind),
        how_to_get=f"{_FILE} and the folder '{_IMAGES}' of {hub_folder(_PAGE, None)}",
        num_examples=15,
        shared_folder="mmvp",
    )
    for pattern, (kind, differs, skills) in PATTERNS.items()
)

DATA_SETS = (
    DataSet(
        name="mmvp",
        title="MMVP-VLM",
        description="pairs that CLIP takes for equal",
        tasks=TASKS,
        downloads="",
        supplies="the hub's files, MMVP/MMVP_VLM",
        licence="on its page",
    ),
)
