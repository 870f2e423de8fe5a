"""VALSE: which of two sentences is true of an image, by linguistic phenomenon?

Eleven files. As published, those rows count in which at least two of three annotators chose the caption
and not the foil. A row is named by its key.

``accuracy`` is the authors' acc_r: the caption scores higher than the foil. Scorers that decide whether a text matches
also have ``p_c`` (the caption does), ``p_f`` (the foil does not), ``acc`` (both answers together) and ``min_p``, the
smaller one of p_c and p_f.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/Heidelberg-NLP/VALSE"
_RAW = "https://raw.githubusercontent.com/Heidelberg-NLP/VALSE/main/data"
_FEWEST_VOTES = 2

PIECES = {
    "existence": ("existence", 505, "visual7w", "there is something, or nothing", ("compositional",)),
    "plurals": ("plurals", 851, "coco_2017", "one or several", ("counting",)),
    "counting_small_quant": ("counting-small-quant", 900, "visual7w", "small numbers", ("counting",)),
    "counting_hard": ("counting-hard", 868, "visual7w", "numbers that are rare as answers", ("counting",)),
    "counting_adversarial": (
        "counting-adversarial",
        691,
        "visual7w",
        "small numbers taken for large ones",
        ("counting",),
    ),
    "relations": ("relations", 535, "coco_2017", "how things lie to each other", ("spatial",)),
    "action_replacement": ("action-replacement", 648, "swig", "another action", ("compositional",)),
    "actant_swap": ("actant-swap", 949, "swig", "who does it to whom", ("compositional",)),
    "coreference_standard": ("coreference-standard", 708, "visdial_v1.0", "what a pronoun means", ("compositional",)),
    "coreference_hard": ("coreference-hard", 104, "visdial_v1.0", "what a pronoun means", ("compositional",)),
    "foil_it": ("foil-it", 943, "coco_2014", "another thing", ("compositional",)),
}
"""Piece -> file, rows that count, folder of its images, what differs, skills."""


def read(folder: pathlib.Path, file: str, images: str) -> Iterator[Item]:
    """An image, the caption and the foil, of rows that annotators found valid."""
    for key, row in read_json(folder / f"{file}.json").items():
        if row["mturk"]["caption"].integer() >= _FEWEST_VOTES:
            image = ImageFile(folder / "images" / images / row["image_file"].text())
            yield Item(key, (image,), (row["caption"].text(), row["foil"].text()))


TASKS = tuple(
    published_task(
        name=f"valse_{piece}",
        description=f"VALSE: which of two sentences is true; {differs}.",
        shape=(1, 2),
        skills=skills,
        paper="Parcalabescu et al. 2022",
        licence="MIT",
        url=_REPOSITORY,
        read=functools.partial(read, file=file, images=images),
        how_to_get=(
            f"{file}.json (from data of {_REPOSITORY}) and the folder images/{images} with the images that it"
            " names, which come with the data sets that the repository's README links"
        ),
        num_examples=num_valid,
        judged_alone=True,
        downloads=(Download(f"{file}.json", f"{_RAW}/{file}.json", note="MIT licence"),),
        shared_folder="valse",
    )
    for piece, (file, num_valid, images, differs, skills) in PIECES.items()
)

DATA_SETS = (
    DataSet(
        name="valse",
        title="VALSE",
        description="captions against foils",
        tasks=TASKS,
        downloads="annotations",
        supplies="images of the data sets that its README links",
    ),
)
