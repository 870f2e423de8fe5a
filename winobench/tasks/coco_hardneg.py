"""The validation sets of fine-tuning with hard negatives: COCO captions and images with one hard negative each.

The 4,839 rows of NegCLIP's validation set (section 4) hold a caption, its image, one to five captions with words
exchanged, and the row numbers of three images that are neighbours under CLIP. The published code samples one of the
negatives again each time. Here the number of the row decides. Six captions have no negative with other words: only
capital letters or spaces differ. They stay, and are ties for a model that does not see capital letters.

``coco_hardneg_text_328`` and ``coco_hardneg_image_328`` are the rows on which the published training loop validates, in
its order: batches 0, 15, ..., 600 of the 605 batches of eight rows.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence

from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.data.word_order import letters
from winobench.tasks.annotations import Entry, python_list, read_table
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_FILE = "valid_neg_clip.tsv"
_SHA256 = "a9d00160062384faa2423df728ee3c15db05503fcbb28c212de11a6c8741eff4"
REPOSITORY = "https://github.com/mertyg/vision-language-models-are-bows"
RAW = "https://raw.githubusercontent.com/mertyg/vision-language-models-are-bows/main/temp_data"
COCO_FOLDER = "coco"
COCO_IMAGES = Download(
    "val2014.zip",
    "http://images.cocodataset.org/zips/val2014.zip",
    unpack=True,
    note="6 GB, photographs from Flickr under its terms",
)
_NUM_ROWS = 4839
# hard_neg_finetuning.py of GDBench's code: the validation loader's batches, of which every 15th is taken.
_LOADER_BATCH, _EVERY_BATCH = 8, 15


def read_texts(folder: pathlib.Path) -> Iterator[Item]:
    """An image, its caption and a hard negative of the caption."""
    for number, row in enumerate(_rows(folder)):
        caption, negatives = row["title"].text(), python_list(row["neg_caption"]).texts()
        if not negatives:
            raise row["neg_caption"].wrong("has no negative caption", "no-negative")
        others = [text for text in negatives if letters(text) != letters(caption)]
        negative = _draw(number, "caption", others or negatives)
        yield Item(f"row-{number:06d}", (_image(folder, row),), (caption, negative))


def read_images(folder: pathlib.Path) -> Iterator[Item]:
    """A caption, its image and a hard negative of the image."""
    rows = _rows(folder)
    for number, row in enumerate(rows):
        neighbours = [entry.integer() for entry in python_list(row["neg_image"]).rows()]
        if not neighbours:
            raise row["neg_image"].wrong("has no negative image", "no-negative")
        for neighbour in neighbours:
            if not 0 <= neighbour < len(rows):
                raise row["neg_image"].wrong(
                    f"names number {neighbour}, but the numbers end with {len(rows) - 1}", "no-such-image"
                )
        negative = rows[_draw(number, "image", neighbours)]
        yield Item(f"row-{number:06d}", (_image(folder, row), _image(folder, negative)), (row["title"].text(),))


def read_validated(folder: pathlib.Path, read: Callable[[pathlib.Path], Iterator[Item]]) -> Iterator[Item]:
    """The rows on which the published training loop validates, as ``read`` reads them."""
    for number, item in enumerate(read(folder)):
        if number // _LOADER_BATCH % _EVERY_BATCH == 0:
            yield item


def _rows(folder: pathlib.Path) -> list[Entry]:
    """The table. Its first column, without a name, numbers the rows from 0, and ``neg_image`` refers to that."""
    rows = list(read_table(folder / _FILE, ("", "title", "filepath", "neg_caption", "neg_image")).rows())
    for number, row in enumerate(rows):
        if row[""].value != str(number):
            raise row.wrong(f"has the number {row[''].value!r} where {number} is next", "rows-out-of-order")
    return rows


def _image(folder: pathlib.Path, row: Entry) -> ImageFile:
    return ImageFile(folder / row["filepath"].text().removeprefix("coco/"))


def _draw(row: int, what: str, choices: Sequence):
    """One of the choices, the same from run to run."""
    digest = hashlib.sha256(f"0 {what} {row}".encode()).digest()
    return choices[int.from_bytes(digest[:8]) % len(choices)]


def _task(name: str, read, description: str, shape: tuple[int, int], num_examples: int = _NUM_ROWS, **fields):
    return published_task(
        name=name,
        description=description,
        shape=shape,
        skills=("compositional",),
        paper="Yuksekgonul et al. 2023",
        licence="MIT",
        url=REPOSITORY,
        read=read,
        how_to_get=f"{_FILE} (from temp_data of {REPOSITORY}) and the folder val2014, unpacked from {COCO_IMAGES.url}",
        num_examples=num_examples,
        downloads=(Download(_FILE, f"{RAW}/{_FILE}", sha256=_SHA256, note="1 MB, MIT licence"), COCO_IMAGES),
        shared_folder=COCO_FOLDER,
        **fields,
    )


_SIDES = {
    "text": (read_texts, "a caption of a photograph against a hard negative of it", (1, 2)),
    "image": (read_images, "a caption's photograph against one like it", (2, 1)),
}
_NUM_VALIDATED = -(-_NUM_ROWS // (_LOADER_BATCH * _EVERY_BATCH)) * _LOADER_BATCH

TASKS = (
    *(_task(f"coco_hardneg_{side}", read, f"COCO: {what}.", shape) for side, (read, what, shape) in _SIDES.items()),
    *(
        _task(
            f"coco_hardneg_{side}_{_NUM_VALIDATED}",
            functools.partial(read_validated, read=read),
            f"COCO, rows of the published validation: {what}.",
            shape,
            _NUM_VALIDATED,
            when_named=True,
        )
        for side, (read, what, shape) in _SIDES.items()
    ),
)

DATA_SETS = (
    DataSet(
        name="coco_hardneg",
        title="COCO with hard negatives",
        description="captions against hard negatives",
        tasks=TASKS,
        licence="MIT, photographs: Flickr's terms",
        size="6 GB",
    ),
)
