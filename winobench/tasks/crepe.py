"""CREPE: which of several captions is true of a part of an image of Visual Genome? (Ma et al. 2023)

*Productivity* has captions of growing complexity, 4 to 12 (the example's group), and false ones in which a word is
replaced (``atom``), words are swapped (``swap``) or something is negated (``negate``). *Systematicity* has captions
whose compounds a training set holds or lacks (the group: ``seen``, ``unseen``), here LAION-400M. Its authors ask it of
models alone that were trained on that set. False captions have another word (``atom``) or other compounds (``comp``).

The image is cut out as the row's box says. What of a box lies outside of the image is black, as in the published
code. A false caption that occurs twice in a row is one candidate, and rows without any are left out. The published
code also reports recall at 3 and 10, and no number of rows.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.data.example import ImageFile, Item
from winobench.data.sources import LeftOut
from winobench.tasks.annotations import Entry, python_list, read_table
from winobench.tasks.base import Download, PublishedData
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/RAIVNLab/CREPE"
_RAW = "https://raw.githubusercontent.com/RAIVNLab/CREPE/master/data"
_COLUMNS = ("image_id", "caption", "x", "y", "width", "height")
_IMAGES = ("VG_100K", "VG_100K_2")

PRODUCTIVITY, SYSTEMATICITY = "prod_hard_negatives", "syst_hard_negatives"
"""The archives of the two, without ending."""

COMPLEXITIES = range(4, 13)

KINDS = {
    "productivity_atom": "a word is replaced in the others",
    "productivity_swap": "words are swapped in the others",
    "productivity_negate": "something is negated in the others",
    "systematicity_atom": "a word is replaced in the others",
    "systematicity_comp": "compounds are replaced in the others",
}
"""Task, without ``crepe_`` -> what is wrong in the false captions."""


def read(folder: pathlib.Path, kind: str) -> Iterator[Item | LeftOut]:
    """A part of an image, its caption, and false ones.

    Args:
      folder: holds the tables, comma-separated, as they are named by their authors, next to each other, in the folder
        of their archive, or in its folder of the kind, and the images in ``VG_100K`` and ``VG_100K_2``.
    """
    part, _, negatives = kind.partition("_")
    if part == "productivity":
        column = "hard_negs"
        files = {str(level): f"prod_vg_hard_negs_{negatives}_complexity_{level}.csv" for level in COMPLEXITIES}
    else:
        column = f"valid_hard_negs_{negatives}"
        files = {seen: f"syst_vg_hard_negs_{seen}_compounds_in_laion.csv" for seen in ("seen", "unseen")}
    archive = PRODUCTIVITY if part == "productivity" else SYSTEMATICITY
    for group, name in files.items():
        table = _found(folder, archive, negatives, name)
        for number, row in enumerate(read_table(table, (*_COLUMNS, column), ",").rows()):
            caption = row["caption"].text()
            false = dict.fromkeys(python_list(row[column]).texts())
            false.pop(caption, None)
            name = f"{group}/{number:05d}"
            if false:
                yield Item(name, (_image(folder, row),), (caption, *false), 0, (group,))
            else:
                yield LeftOut(name, "no false caption")


def _found(folder: pathlib.Path, archive: str, negatives: str, name: str) -> pathlib.Path:
    places = (folder / name, folder / archive / name, folder / negatives / name, folder / archive / negatives / name)
    return next((path for path in places if path.is_file()), places[-1])


def _image(folder: pathlib.Path, row: Entry) -> ImageFile:
    x, y, width, height = (_whole(row[name]) for name in ("x", "y", "width", "height"))
    if width < 1 or height < 1 or x + width <= 0 or y + height <= 0:
        raise row.wrong(f"has a box outside of the image: {width} x {height} pixels at ({x}, {y})", "bad-box")
    name = f"{_whole(row['image_id'])}.jpg"
    places = [folder / images / name for images in _IMAGES]
    path = next((place for place in places if place.is_file()), places[0])
    return ImageFile(path, (x, y, x + width, y + height))


def _whole(entry: Entry) -> int:
    text = entry.text()
    try:
        return int(text)
    except ValueError:
        raise entry.wrong(f"is {options.shown(text)}, no whole number", "not-a-number") from None


def _task(kind: str):
    is_productivity = kind.startswith("productivity")
    archive = PRODUCTIVITY if is_productivity else SYSTEMATICITY
    return published_task(
        name=f"crepe_{kind}",
        version=1,
        description=f"CREPE, {kind.partition('_')[0]}: which caption is true of an image; {KINDS[kind]}.",
        metric="recall",
        shape=(1, 6),
        # Rows of systematicity differ in their number of captions.
        chance={} if is_productivity else {"recall@1": None, "recall@5": None},
        images_compete=False,
        skills=("compositional",),
        source=PublishedData(
            read=functools.partial(read, kind=kind),
            how_to_get=(
                f"the folder {archive}, unpacked from data/{archive}.zip of {_REPOSITORY} (no licence is stated), and"
                f" Visual Genome's folders {' and '.join(_IMAGES)} (https://homes.cs.washington.edu/~ranjay/visualgenome)"
            ),
            num_examples=None,
            downloads=(Download(f"{archive}.zip", f"{_RAW}/{archive}.zip", unpack=True, note="no licence is stated"),),
            shared_folder="crepe",
        ),
    )


TASKS = tuple(map(_task, KINDS))
