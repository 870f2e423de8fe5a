"""The validation sets of fine-tuning with hard negatives: COCO captions and images with one hard negative each.

The 4,839 rows of NegCLIP's validation set (Yuksekgonul et al. 2023, section 4) hold a caption, its image, one to five
captions with words exchanged, and the row numbers of three images that are neighbours under CLIP. The published code
draws one of the negatives again each time. Here the number of the row decides.

Six of the captions have no negative with other words: only capital letters or spaces differ ("Luggage ... luggage").
They stay, so that the rows are the published ones. For a model that does not see capital letters they are ties, which
count as wrong. Where a row has other negatives, such a one is not taken.

``coco_hardneg_text_328`` and ``coco_hardneg_image_328`` are the rows on which the published training loop validates, in
its order: batches 0, 15, ..., 600 of the 605 batches of eight rows as the file has them.
"""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Callable, Iterator, Sequence

from winobench.data.example import ImageFile, Item
from winobench.data.word_order import letters
from winobench.tasks.annotations import Entry, python_list, read_table
from winobench.tasks.base import Download, PublishedData
from winobench.tasks.published import published_task

_FILE = "valid_neg_clip.tsv"
REPOSITORY = "https://github.com/mertyg/vision-language-models-are-bows"
RAW = "https://raw.githubusercontent.com/mertyg/vision-language-models-are-bows/main/temp_data"
COCO_FOLDER = "coco"
COCO_IMAGES = Download(
    "val2014.zip",
    "http://images.cocodataset.org/zips/val2014.zip",
    unpack=True,
    note="6 GB, photographs from Flickr under its terms",
)
_SEED = 0
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
    """A caption, its image and a hard negative of the image. Arguments and errors as in `read_texts`."""
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
    digest = hashlib.sha256(f"{_SEED} {what} {row}".encode()).digest()
    return choices[int.from_bytes(digest[:8]) % len(choices)]


def _task(name: str, read, description: str, shape: tuple[int, int], num_examples: int = _NUM_ROWS, **fields):
    return published_task(
        name=name,
        version=1,
        description=description,
        metric="accuracy",
        shape=shape,
        chance={"accuracy": 1 / 2},
        images_compete=shape[0] > 1,
        skills=("compositional",),
        source=PublishedData(
            read=read,
            how_to_get=(
                f"{_FILE} (from temp_data of {REPOSITORY}) and the folder val2014, unpacked from {COCO_IMAGES.url}"
            ),
            num_examples=num_examples,
            downloads=(
                Download(
                    _FILE,
                    f"{RAW}/{_FILE}",
                    sha256="a9d00160062384faa2423df728ee3c15db05503fcbb28c212de11a6c8741eff4",
                    note="1 MB, MIT licence",
                ),
                COCO_IMAGES,
            ),
            shared_folder=COCO_FOLDER,
        ),
        **fields,
    )


_TEXT, _IMAGE = "a caption of a photograph against a hard negative of it", "a caption's photograph against one like it"


def _validated(name: str, read, description: str, shape: tuple[int, int]):
    num_batches = -(-_NUM_ROWS // (_LOADER_BATCH * _EVERY_BATCH))
    read = functools.partial(read_validated, read=read)
    return _task(name, read, description, shape, num_batches * _LOADER_BATCH, when_named=True)


TASKS = (
    _task("coco_hardneg_text", read_texts, f"COCO: {_TEXT}.", (1, 2)),
    _task("coco_hardneg_image", read_images, f"COCO: {_IMAGE}.", (2, 1)),
    _validated("coco_hardneg_text_328", read_texts, f"COCO, rows of the published validation: {_TEXT}.", (1, 2)),
    _validated("coco_hardneg_image_328", read_images, f"COCO, rows of the published validation: {_IMAGE}.", (2, 1)),
)
