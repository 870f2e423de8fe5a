"""CREPE: which of several captions is true of a part of an image of Visual Genome?

*Productivity* has captions of growing complexity, 4 to 12 (the example's group), against ones in which a word is
replaced (``atom``), words are swapped (``swap``) or something is negated (``negate``). *Systematicity* has captions
whose compounds a training set holds or lacks (the group: ``seen``, ``unseen``), here LAION-400M, against ones with
another word (``atom``) or other compounds (``comp``). Parts of a box outside of the image are black, as in the
published code. A false caption that occurs twice in a row is one candidate, and rows without any are left out.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download, LeftOut
from winobench.tasks.annotations import Entry, python_list, read_table
from winobench.tasks.base import DataSet
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
"""Task, without ``crepe_`` -> the fault of the false captions."""


def read(folder: pathlib.Path, kind: str) -> Iterator[Item | LeftOut]:
    """A part of an image, its caption, and false ones. Tables may lie in the folders of their archive and kind."""
    part, _, negatives = kind.partition("_")
    if part == "productivity":
        column = "hard_negs"
        files = {str(level): f"prod_vg_hard_negs_{negatives}_complexity_{level}.csv" for level in COMPLEXITIES}
    else:
        column = f"valid_hard_negs_{negatives}"
        files = {seen: f"syst_vg_hard_negs_{seen}_compounds_in_laion.csv" for seen in ("seen", "unseen")}
    archive = PRODUCTIVITY if part == "productivity" else SYSTEMATICITY
    for group, name in files.items():
        table = _annotations(folder, archive, negatives, name)
        for number, row in enumerate(read_table(table, (*_COLUMNS, column), ",").rows()):
            caption = row["caption"].text()
            false = dict.fromkeys(python_list(row[column]).texts())
            false.pop(caption, None)
            name = f"{group}/{number:05d}"
            if false:
                yield Item(name, (_image(folder, row),), (caption, *false), 0, (group,))
            else:
                yield LeftOut(name, "no false caption")


def _annotations(folder: pathlib.Path, archive: str, negatives: str, name: str) -> pathlib.Path:
    paths = (folder / name, folder / archive / name, folder / negatives / name, folder / archive / negatives / name)
    return next((path for path in paths if path.is_file()), paths[-1])


def _image(folder: pathlib.Path, row: Entry) -> ImageFile:
    x, y, width, height = (_whole(row[name]) for name in ("x", "y", "width", "height"))
    box = row.box(x, y, width, height)
    name = f"{_whole(row['image_id'])}.jpg"
    paths = [folder / images / name for images in _IMAGES]
    path = next((candidate for candidate in paths if candidate.is_file()), paths[0])
    return ImageFile(path, box)


def _whole(entry: Entry) -> int:
    text = entry.text()
    try:
        return int(text)
    except ValueError:
        raise entry.wrong(f"is {options.quote(text)}, no whole number", "not-a-number") from None


def _task(kind: str):
    is_productivity = kind.startswith("productivity")
    archive = PRODUCTIVITY if is_productivity else SYSTEMATICITY
    return published_task(
        name=f"crepe_{kind}",
        description=f"CREPE, {kind.partition('_')[0]}: which caption is true of an image; {KINDS[kind]}.",
        metric="recall_1_3_5_10",
        shape=(1, 6),
        # Rows of systematicity differ in their number of captions, so that listings have no level.
        chance={} if is_productivity else {f"recall@{k}": None for k in (1, 3, 5, 10)},
        chance_by_question=True,
        skills=("compositional",),
        paper="Ma et al. 2023",
        url=_REPOSITORY,
        read=functools.partial(read, kind=kind),
        how_to_get=(
            f"the folder {archive}, unpacked from data/{archive}.zip of {_REPOSITORY} (no licence is stated), and"
            f" Visual Genome's folders {' and '.join(_IMAGES)} (https://homes.cs.washington.edu/~ranjay/visualgenome)"
        ),
        num_examples=None,
        downloads=(Download(f"{archive}.zip", f"{_RAW}/{archive}.zip", unpack=True, note="no licence is stated"),),
        shared_folder="crepe",
    )


TASKS = tuple(map(_task, KINDS))

DATA_SETS = (
    DataSet(
        name="crepe",
        title="CREPE",
        description="one caption against hard ones",
        tasks=TASKS,
        downloads="tables",
        supplies="Visual Genome's images",
        licence="none stated",
    ),
)
