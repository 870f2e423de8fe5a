"""VL-CheckList: which of two phrases is true of an image, by object, attribute and relation

A task has the rows of several sources of annotations, which are its groups. Phrases stay as they are published,
mechanically made and at times wrong ("specton the left ofor"). The authors state no number of rows by task, so that
none is checked. The checks of objects are by the place and the size of the object that one phrase exchanges.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/om-ai-lab/VL-CheckList"


def _of_objects(aspect: str, value: str) -> tuple[str, ...]:
    """The files of a check of objects; Visual Genome and SWiG have one for each role of the object."""
    root = f"Object/{aspect.capitalize()}"
    roles = {"vg": ("obj", "subj"), "swig": ("agent", "destination", "item", "tool"), "hake": ("obj",)}
    return tuple(
        f"{root}/{source}_{aspect}/{f'swig_{role}/' if source == 'swig' else ''}{source}_{role}_{value}"
        for source, names in roles.items()
        for role in names
    )


CHECKS = {
    **{
        f"object_{aspect}_{value}": (_of_objects(aspect, value), ("recognition",))
        for aspect, values in (("location", ("center", "mid", "margin")), ("size", ("small", "medium", "large")))
        for value in values
    },
    **{
        f"attribute_{what}": ((f"Attribute/vg/{what}", f"Attribute/vaw/{what}"), ("recognition",))
        for what in ("action", "color", "material", "size", "state")
    },
    "relation_action": (("Relation/vg/action", "Relation/swig_action", "Relation/hake_action"), ("compositional",)),
    "relation_spatial": (("Relation/vg/spatial",), ("spatial",)),
}
"""Check -> its files, without ending, skills."""

_IMAGES = {"vg": "vg", "vaw": "vg", "swig": "swig", "hake": "hake"}


def read(folder: pathlib.Path, check: str) -> Iterator[Item]:
    """An image, the true phrase and the false one, the first of each. The group is the source."""
    for file in CHECKS[check][0]:
        source = _source(file)
        for number, row in enumerate(read_json(folder / "data" / f"{file}.json").rows()):
            name, phrases = row.rows(2)
            true, false = (phrases[key].texts() for key in ("POS", "NEG"))
            if not true or not false:
                raise row.wrong("has no phrase of one of the two kinds", "empty-list")
            image = ImageFile(folder / _IMAGES[source] / name.text())
            yield Item(f"{_part(file)}/{number:06d}", (image,), (true[0], false[0]), 0, (source,))


def _part(file: str) -> str:
    """The prefix of the rows' names: the source, and the role of objects, as in ``swig_agent``."""
    return file.rsplit("/", 1)[-1].rpartition("_")[0] if file.startswith("Object/") else _source(file)


def _source(file: str) -> str:
    """``vg`` of Attribute/vg/action, ``swig`` of Relation/swig_action."""
    return next(source for source in _IMAGES if source in file.replace("_", "/").split("/"))


TASKS = tuple(
    published_task(
        name=f"vlchecklist_{check}",
        description=f"VL-CheckList: which of two phrases is true; {check.replace('_', ', ')}.",
        shape=(1, 2),
        skills=skills,
        paper="Zhao et al. 2022",
        url=_REPOSITORY,
        read=functools.partial(read, check=check),
        how_to_get=(
            f"the folder data of {_REPOSITORY} (no licence is stated) and the images in"
            f" {', '.join(dict.fromkeys(_IMAGES[_source(file)] for file in files))}, as its DATASETS.md says"
        ),
        num_examples=None,
        shared_folder="vlchecklist",
    )
    for check, (files, skills) in CHECKS.items()
)

DATA_SETS = (
    DataSet(
        name="vlchecklist",
        title="VL-CheckList",
        description="objects, attributes, relations",
        tasks=TASKS,
        downloads="",
        supplies="its folder data, and the images",
        licence="none stated",
    ),
)
