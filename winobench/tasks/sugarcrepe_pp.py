"""SugarCrepe++: are two true captions both nearer to a photograph than a wrong one? (Dumpala et al. 2024)

An example is right where both true captions score higher than the wrong one (the paper's ITT). The photographs are
COCO's of val2017.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.data.example import Item
from winobench.tasks.annotations import read_json
from winobench.tasks.base import Download
from winobench.tasks.published import published_task
from winobench.tasks.sugarcrepe import COCO_FOLDER, COCO_IMAGES, photograph

_REPOSITORY = "https://github.com/Sri-Harsha/scpp"
_RAW = "https://raw.githubusercontent.com/Sri-Harsha/scpp/main/data"
_FOLDER = "sugarcrepe_pp"

SETS = {
    "replace_att": (788, "an attribute is replaced"),
    "replace_obj": (1652, "an object is replaced"),
    "replace_rel": (1406, "a relation is replaced"),
    "swap_att": (666, "two attributes are swapped"),
    "swap_obj": (245, "two objects are swapped"),
}
"""Set -> number of rows, and what is wrong in the wrong caption."""


def read(folder: pathlib.Path, name: str) -> Iterator[Item]:
    """A photograph, its two true captions and the wrong one, which stands last."""
    seen: set[int] = set()
    for row in read_json(folder / _FOLDER / f"{name}.json").rows():
        number = row["id"].integer()
        seen.add(row["id"].unique(number, seen))
        texts = tuple(row[key].text() for key in ("caption", "caption2", "negative_caption"))
        yield Item(str(number), (photograph(folder, row),), texts)


TASKS = tuple(
    published_task(
        name=f"sugarcrepe_pp_{name}",
        description=f"SugarCrepe++: are both true captions nearer than a wrong one, in which {wrong}?",
        metric="all_true",
        shape=(1, 3),
        skills=("compositional",),
        read=functools.partial(read, name=name),
        how_to_get=(
            f"{_FOLDER}/{name}.json (from data of {_REPOSITORY}) and the folder val2017, unpacked from"
            f" {COCO_IMAGES.url}"
        ),
        num_examples=count,
        downloads=(Download(f"{_FOLDER}/{name}.json", f"{_RAW}/{name}.json", note="MIT licence"), COCO_IMAGES),
        shared_folder=COCO_FOLDER,
    )
    for name, (count, wrong) in SETS.items()
)
