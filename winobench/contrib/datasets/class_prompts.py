"""Prompts for the classes of a data set, as Diffusion Classifier publishes them (Li et al. 2023, arXiv:2303.16203).

Its repository, which states no licence, has a table for each data set. The names are from CLIP's authors.
"""

from __future__ import annotations

import pathlib

from winobench.base import options
from winobench.data.sources import Download
from winobench.tasks.annotations import read_table

REPOSITORY = "https://github.com/diffusion-classifier/diffusion-classifier"
_RAW = "https://raw.githubusercontent.com/diffusion-classifier/diffusion-classifier/master"


def download(path: str, sha256: str) -> Download:
    """A file of the repository."""
    name = path.rsplit("/", 1)[-1]
    return Download(name, f"{_RAW}/{path}", sha256=sha256, note="no licence is stated")


def read(path: pathlib.Path, num_classes: int) -> tuple[str, ...]:
    """The prompt of each class, in the order of the classes' numbers."""
    prompts: dict[int, str] = {}
    rows = read_table(path, ("prompt", "classidx"), ",")
    for row in rows.rows():
        digits = row["classidx"].text().strip()
        if not (digits.isascii() and digits.isdigit()) or int(digits) >= num_classes:
            raise row["classidx"].wrong(
                f"is {options.quote(digits)}, no number from 0 to {num_classes - 1}", "out-of-range"
            )
        prompts[row["classidx"].unique(int(digits), prompts)] = row["prompt"].text()
    if len(prompts) != num_classes:
        raise rows.wrong(f"has the prompts of {len(prompts)} classes, not {num_classes}", "wrong-number-of-entries")
    return tuple(prompts[number] for number in range(num_classes))
