"""GDBench's CLEVR task: which of two captions is true of an image? Seven sub-tasks (section 4 of the paper).

The images are rendered by us, as the paper's authors rendered theirs, unless the published ones are prepared: 574
images, each with two items in each of the seven files.

The first of an item's two captions is taken as true, as in the published code. Self-Bench's code (Jeong et al. 2025)
takes the second one of ``spatial``, in all 1,148 items. ``clevr_spatial_selfbench`` has these labels. The images were
not available to decide which are right (docs/reference/tasks.md).
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Callable, Iterable, Iterator

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks import clevr_common
from winobench.tasks.annotations import DIFFUSION_ITM, DIFFUSION_ITM_RAW, read_json
from winobench.tasks.base import DataSet, Example, PublishedData
from winobench.tasks.published import published_task

_ITEMS_PER_SCENE = 14
_ZENODO = "https://zenodo.org/records/8096756"
_SHA256 = {
    "recognition_color": "d81d2ffaa2a384bce0c92e2c1a866888e6a8376a75125d2751e6270ece15ec32",
    "recognition_shape": "191a807c2aae056b83cf86d629ed63d9a6d1596114968fdfe67a62e1984b7c9f",
    "binding_color_shape": "f4b548a2ad9e6aa858262a2c7c9ae7162b6a3d3fbd7ae234c08ff1c8167ce930",
    "binding_shape_color": "db9c8df71a138f555c384226b5a20e75a089fbe38b5812ad2e4427b9505636a8",
    "pair_binding_color": "64cbc8a9d3b7e0b02484413af3ecd9d4cd5c168e68795ec73950f3764ba745ba",
    "pair_binding_size": "3db44662c7700b3b1042a12e46b50a0ce5373b08cdce0afb606af9f9e0975d03",
    "spatial": "2319f549c1de1f40f7a1019bcbce57ea5f6d9cdcffa4b35191d34be080070c29",
}


def read(folder: pathlib.Path, *, as_selfbench: bool = False) -> Iterator[Item]:
    """The published items, all of an image one after another."""
    names = ("spatial",) if as_selfbench else _SHA256
    captions = {name: dict(read_json(folder / "captions" / f"{name}.json").items()) for name in names}
    for image in dict.fromkeys(image for items in captions.values() for image in items):
        file = ImageFile(folder / "images" / image)
        for sub_task, items in captions.items():
            for number, pair in enumerate(items[image].rows() if image in items else ()):
                texts, groups = (pair.texts(2)[::-1], ()) if as_selfbench else (pair.texts(2), (sub_task,))
                yield Item(f"{image}/{sub_task}/{number}", (file,), texts, 0, groups)


def load(data_dir: str | None, limit: int | None) -> Iterable[Example]:
    """Two examples a scene and sub-task."""
    return _PUBLISHED.load(data_dir, _num_items(limit)) if _is_prepared(data_dir) else _rendered(limit)


def _num_items(limit: int | None) -> int | None:
    return None if limit is None else limit * _ITEMS_PER_SCENE


def _rendered(limit: int | None) -> Iterator[Example]:
    from winobench.clevr import captions as clevr_captions

    images = clevr_common.evaluation_images(limit)
    for index, things in enumerate(clevr_common.evaluation_things(limit)):
        items = clevr_captions.items(things, clevr_common.distractor_color(index, things))
        for name, pairs in items.items():
            for number, texts in enumerate(pairs):
                yield Example(f"scene-{index:06d}/{name}/{number}", (images[index],), texts, 0, (name,))


def _is_prepared(data_dir: str | None) -> bool:
    """True for a damaged set and a set for another version, too: these are errors, not reasons to render."""
    from winobench.data import prepared

    return prepared.has_state(prepared.task_folder(_PUBLISHED.name, data_dir))


def _ready(data_dir: str | None) -> str | None:
    return _PUBLISHED.ready(data_dir) if _is_prepared(data_dir) else None


def _count(data_dir: str | None) -> int | None:
    return _PUBLISHED.count(data_dir) if _is_prepared(data_dir) else clevr_common.NUM_SCENES * _ITEMS_PER_SCENE


def _data_fingerprint(data_dir: str | None, limit: int | None) -> str:
    if _is_prepared(data_dir):
        return _PUBLISHED.data_fingerprint(data_dir, _num_items(limit))
    return clevr_common.fingerprint(limit)


_FIELDS = dict(
    name="clevr",
    description="Which caption is true of two objects: colour, shape, size, and what belongs to what and where.",
    metric="accuracy",
    shape=(1, 2),
    skills=("recognition", "compositional", "attribute_binding", "spatial"),
    paper="Krojer et al. 2023",
    url=DIFFUSION_ITM,
)


def _source(read: Callable[[pathlib.Path], Iterator[Item]], num_examples: int, *names: str) -> PublishedData:
    files = [f"captions/{name}.json" for name in names]
    captions = (
        Download(file, f"{DIFFUSION_ITM_RAW}/clevr/{file}", sha256=_SHA256[name])
        for name, file in zip(names, files, strict=True)
    )
    return PublishedData(
        read=read,
        how_to_get=(
            f"the folders captions (data/clevr/captions of {DIFFUSION_ITM}) and images, unpacked from images.zip of"
            f" {_ZENODO}"
        ),
        num_examples=num_examples,
        downloads=(*captions, Download("images.zip", f"{_ZENODO}/files/images.zip", unpack=True)),
        shared_folder="clevr",
    )


_PUBLISHED = published_task(**_FIELDS, source=_source(read, 8036, *_SHA256))

TASKS = (
    dataclasses.replace(_PUBLISHED, load=load, ready=_ready, data_fingerprint=_data_fingerprint, count=_count),
    published_task(
        **_FIELDS
        | dict(
            name="clevr_spatial_selfbench",
            description="CLEVR's published items on left and right. True is the caption that Self-Bench takes as true.",
            skills=("spatial",),
            when_named=True,
        ),
        source=_source(functools.partial(read, as_selfbench=True), 1148, "spatial"),
    ),
)

DATA_SETS = (
    DataSet(
        name="clevr",
        title="CLEVR",
        description="captions of two rendered objects",
        tasks=tuple(task for task in TASKS if task.name == "clevr"),
    ),
    DataSet(
        name="clevr_spatial",
        title="CLEVR, labels of Self-Bench",
        description="left and right, as in Self-Bench",
        tasks=tuple(task for task in TASKS if task.name != "clevr"),
    ),
)
