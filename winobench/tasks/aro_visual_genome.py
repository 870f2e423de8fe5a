"""ARO's Visual Genome tasks: who acts on whom, and which thing has which attribute.

The image is the part of an image that shows both things. Outside of the image's edge it is black, as in the published
code. GDBench reports the accuracy over all rows (Table 1b). ARO reports means over relations and over pairs of
attributes (``macro_accuracy``): of all relations but 157 that its notebook lists as symmetric, and of pairs of
attributes with at least 25 rows. Other rows have no group.
"""

from __future__ import annotations

import collections
import pathlib
from collections.abc import Iterator

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_REPOSITORY = "https://github.com/mertyg/vision-language-models-are-bows"
# Needs no account, and does not ask first whether a large file is wanted unchecked for viruses.
_DRIVE = "https://drive.usercontent.google.com/download?export=download&confirm=t&id="
_IMAGES = Download(
    "vgr_vga_images.zip",
    f"{_DRIVE}1qaPlrwhGNMrR3a11iopZUT_GPP_LrgP9",
    unpack=True,
    note="1 GB, from Google Drive. Photographs of Visual Genome",
)
_MIN_ROWS_OF_ATTRIBUTES = 25  # dataset_zoo/aro_datasets.py, VG_Attribution.evaluate_scores

_SYMMETRIC = """
adjusting, attached to, between, bigger than, biting, boarding, brushing, chewing, cleaning, climbing, close to, coming
from, coming out of, contain, crossing, dragging, draped over, drinking, drinking from, driving, driving down, driving
on, eating from, eating in, enclosing, exiting, facing, filled with, floating in, floating on, flying, flying above,
flying in, flying over, flying through, full of, going down, going into, going through, grazing in, growing in, growing
on, guiding, hanging from, hanging in, hanging off, hanging over, higher than, holding onto, hugging, in between,
jumping off, jumping on, jumping over, kept in, larger than, leading, leaning over, leaving, licking, longer than,
looking in, looking into, looking out, looking over, looking through, lying next to, lying on top of, making, mixed
with, mounted on, moving, on the back of, on the edge of, on the front of, on the other side of, opening, painted on,
parked at, parked beside, parked by, parked in, parked in front of, parked near, parked next to, perched on, petting,
piled on, playing, playing in, playing on, playing with, pouring, reaching for, reading, reflected on, riding on,
running in, running on, running through, seen through, sitting behind, sitting beside, sitting by, sitting in front of,
sitting near, sitting next to, sitting under, skiing down, skiing on, sleeping in, sleeping on, smiling at, sniffing,
splashing, sprinkled on, stacked on, standing against, standing around, standing behind, standing beside, standing in
front of, standing near, standing next to, staring at, stuck in, surrounding, swimming in, swinging, talking to, topped
with, touching, traveling down, traveling on, tying, typing on, underneath, wading in, waiting for, walking across,
walking by, walking down, walking next to, walking through, working in, working on, worn on, wrapped around, wrapped in,
by, of, near, next to, with, beside, on the side of, around
"""
SYMMETRIC_RELATIONS = frozenset(" ".join(name.split()) for name in _SYMMETRIC.split(","))
"""Relations that ARO leaves out of its mean: ``symmetric`` in its notebook "Replicate ARO!"."""


def read_relations(folder: pathlib.Path) -> Iterator[Item]:
    """The rows of ``visual_genome_relation.json``. The group is the relation, where it counts for the mean."""
    for number, row in enumerate(read_json(folder / "visual_genome_relation.json").rows()):
        relation = row["relation_name"].text()
        yield _item(number, row, folder, () if relation in SYMMETRIC_RELATIONS else (relation,))


def read_attributes(folder: pathlib.Path) -> Iterator[Item]:
    """The rows of ``visual_genome_attribution.json``. The group is the pair of attributes, where it counts."""
    rows = list(read_json(folder / "visual_genome_attribution.json").rows())
    pairs = ["_".join(row["attributes"].texts(2)) for row in rows]
    counts = collections.Counter(pairs)
    for number, (row, pair) in enumerate(zip(rows, pairs, strict=True)):
        yield _item(number, row, folder, (pair,) if counts[pair] >= _MIN_ROWS_OF_ATTRIBUTES else ())


def _item(number: int, row: Entry, folder: pathlib.Path, groups: tuple[str, ...]) -> Item:
    box = row.box(*(row[f"bbox_{side}"].number() for side in "xywh"))
    image = ImageFile(folder / "images" / row["image_path"].text(), box)
    texts = (row["true_caption"].text(), row["false_caption"].text())
    return Item(f"row-{number:06d}", (image,), texts, 0, groups)


def _task(name: str, read, description: str, file: str, drive_id: str, num_examples: int, *skills: str):
    return published_task(
        name=name,
        description=description,
        metric="macro_accuracy",
        shape=(1, 2),
        skills=skills,
        paper="Yuksekgonul et al. 2023",
        url=_REPOSITORY,
        read=read,
        how_to_get=(
            f"{file} ({_DRIVE}{drive_id}) and the folder images, unpacked from {_IMAGES.to} ({_IMAGES.url}, 1 GB;"
            f" the links of {_REPOSITORY})"
        ),
        num_examples=num_examples,
        downloads=(Download(file, f"{_DRIVE}{drive_id}", note="from Google Drive"), _IMAGES),
        shared_folder="aro_visual_genome",
    )


TASKS = (
    _task(
        "aro_vg_relation",
        read_relations,
        "ARO: which of two captions is true of an image. Who does what to whom is swapped in the other.",
        "visual_genome_relation.json",
        "1kX2iCHEv0CADL8dSO1nMdW-V0NqIAiP3",
        23937,
        "compositional",
    ),
    _task(
        "aro_vg_attribution",
        read_attributes,
        "ARO: which of two captions is true of an image. Two attributes are swapped in the other.",
        "visual_genome_attribution.json",
        "13tWvOrNOLHxl3Rm9cR3geAdHx2qR3-Tw",
        28748,
        "compositional",
        "attribute_binding",
    ),
)

DATA_SETS = (
    DataSet(
        name="aro_vg",
        title="ARO, Visual Genome",
        description="relations and attributes",
        tasks=TASKS,
        licence="photographs: Visual Genome",
        size="1 GB",
    ),
)
