"""Tiny sets in the published layouts of newer data sets, as `tests.tasks.published_layouts` has those of GDBench."""

import functools
import pathlib

from tests.tasks import published_layouts
from tests.tasks.published_layouts import write_image, write_json
from winobench.tasks import sugarcrepe, sugarcrepe_pp, valse

_COCO = ["000000000139.jpg", "000000000285.jpg", "000000000632.jpg"]
_CAPTIONS = [
    ("A red cup beside a blue plate.", "A cup in red beside a plate in blue.", "A blue cup beside a red plate."),
    ("A dog chases two cats.", "Two cats are chased by a dog.", "Two cats chase a dog."),
    ("A man under a tree.", "Below a tree there is a man.", "A man above a tree."),
]


def write_sugarcrepe(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Three rows under the keys 0, 1 and 3."""
    rows = {}
    for key, file, (caption, _, negative) in zip("013", _COCO, _CAPTIONS, strict=True):
        write_image(folder / "val2017" / file)
        rows[key] = {"filename": file, "caption": caption, "negative_caption": negative}
    write_json(folder / f"{name}.json", rows)
    return folder


def write_sugarcrepe_pp(folder: pathlib.Path, name: str) -> pathlib.Path:
    rows = []
    for number, (file, (caption, other, negative)) in enumerate(zip(_COCO, _CAPTIONS, strict=True)):
        write_image(folder / "val2017" / file)
        row = {"id": number, "filename": file, "caption": caption, "caption2": other, "negative_caption": negative}
        rows.append(row)
    write_json(folder / "sugarcrepe_pp" / f"{name}.json", rows)
    return folder


def write_valse(folder: pathlib.Path, file: str, images: str) -> pathlib.Path:
    """Three rows that annotators found valid, and a fourth one."""
    rows = {}
    for number, votes in enumerate((3, 2, 2, 1)):
        caption, _, foil = _CAPTIONS[number % 3]
        rows[f"{file}_{number}"] = {
            "dataset": images,
            "image_file": f"{number}.jpg",
            "caption": caption,
            "foil": foil,
            "mturk": {"caption": votes, "foil": 3 - votes, "other": 0},
        }
        write_image(folder / "images" / images / f"{number}.jpg")
    write_json(folder / f"{file}.json", rows)
    return folder


def write_cola(folder: pathlib.Path) -> pathlib.Path:
    rows = []
    for number, (caption, _, other) in enumerate(_CAPTIONS):
        addresses = [f"https://cs.stanford.edu/people/rak248/VG_100K/{number}{side}.jpg" for side in (0, 1)]
        for address in addresses:
            write_image(folder / "images" / address.rsplit("/", 1)[1])
        rows.append([addresses[0], caption, addresses[1], other])
    write_json(folder / "COLA_multiobjects_matching_benchmark.json", rows)
    return folder


WRITERS = {
    **{
        f"sugarcrepe_{edit}_{what}": functools.partial(write_sugarcrepe, name=f"{edit}_{what}")
        for edit, what in sugarcrepe.SETS
    },
    **{f"sugarcrepe_pp_{name}": functools.partial(write_sugarcrepe_pp, name=name) for name in sugarcrepe_pp.SETS},
    **{
        f"valse_{piece}": functools.partial(write_valse, file=file, images=images)
        for piece, (file, images, _, _) in valse.PIECES.items()
    },
    "cola": write_cola,
}
"""Task -> its writer."""

ALL = {**published_layouts.GDBENCH, **WRITERS}
"""The same with those of GDBench: every task that reads published data."""

ANNOTATIONS = {
    "sugarcrepe_swap_att": "swap_att.json",
    "sugarcrepe_pp_swap_obj": "sugarcrepe_pp/swap_obj.json",
    "valse_existence": "existence.json",
    "cola": "COLA_multiobjects_matching_benchmark.json",
}
"""Task -> its annotation file; of tasks that one function reads, one task."""
