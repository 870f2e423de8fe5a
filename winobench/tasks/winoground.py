"""Winoground: which of two captions with the same words belongs to which of two images.

The 400 items are a gated data set on the Hugging Face hub; GDBench's ``data.json`` has the same rows. Sub-scores: by
the collapsed tag (``Object``, ``Relation``, ``Both``), by each linguistic tag of the swap (``Adjective-Color``,
``Scope``, ...), by each secondary tag (``Symbolic``, ``Series``, ``Pragmatics``, ``Morpheme-Level``), and by the number
of main predicates.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import DIFFUSION_ITM, Entry, read_json, read_json_lines
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_HUB_ID = "facebook/winoground"
_PAGE = f"https://huggingface.co/datasets/{_HUB_ID}"


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Two images and two captions an item. The diagonal is right."""
    path = folder / "data.json"
    rows = read_json(path) if path.exists() else read_json_lines(folder / "examples.jsonl")
    images = folder / "images" if (folder / "images").is_dir() else folder
    seen: set[int] = set()
    for row in rows.rows():
        number = row["id"].integer()
        files = tuple(ImageFile(images / f"ex_{number}_img_{side}.png") for side in (0, 1))
        texts = (row["caption_0"].text(), row["caption_1"].text())
        groups = _groups(row)
        seen.add(row["id"].unique(number, seen))
        yield Item(str(number), files, texts, None, groups)


def _groups(row: Entry) -> tuple[str, ...]:
    predicates = row["num_main_preds"].integer()
    groups = [row["collapsed_tag"].text(), *_tags(row["tag"]), *_tags(row["secondary_tag"])]
    groups.append(f"{predicates} main predicate{'' if predicates == 1 else 's'}")
    return tuple(dict.fromkeys(groups))


def _tags(tags: Entry) -> list[str]:
    """Several tags are separated by commas. Most items have no secondary tag."""
    if not isinstance(tags.value, str):
        raise tags.wrong("is not a text", "not-a-text")
    return [tag.strip() for tag in tags.value.split(",") if tag.strip()]


TASKS = (
    published_task(
        name="winoground",
        description="Winoground: which of two captions with the same words belongs to which of two images.",
        metric="winoground",
        shape=(2, 2),
        skills=("compositional",),
        paper="Thrush et al. 2022",
        url=_PAGE,
        read=read,
        how_to_get=(
            "examples.jsonl and the content of images.zip in the folder images, from data of"
            f" {_PAGE} (log in and accept the terms there first; data.json from"
            f" data/winoground of {DIFFUSION_ITM} may stand for examples.jsonl)"
        ),
        num_examples=400,
        downloads=(
            Download("examples.jsonl", hub_id=_HUB_ID, filename="data/examples.jsonl", note="gated"),
            Download("images.zip", hub_id=_HUB_ID, filename="data/images.zip", unpack=True, note="gated"),
        ),
    ),
)

DATA_SETS = (
    DataSet(
        name="winoground",
        title="Winoground",
        description="same words in another order",
        tasks=TASKS,
        is_gated=True,
        licence="on its page",
    ),
)
