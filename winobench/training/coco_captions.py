"""Training sets of captioned photographs with hard negatives: the layout of NegCLIP's, and sets that have it.

A table, such as ``train_neg_clip.tsv``, has a row for each caption: its number, ``title`` (the caption), ``filepath``
(the image), ``neg_caption`` (a Python list of captions) and ``neg_image`` (a Python list of numbers of rows). The
published ones are of COCO (Yuksekgonul et al. 2023, section 4.1, used by Krojer et al. 2023, section 3.2).
"""

from __future__ import annotations

import csv
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from winobench.base import files
from winobench.base.errors import InputError
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.data.word_order import letters
from winobench.tasks import published
from winobench.tasks.annotations import python_list, read_json, read_json_lines, read_table
from winobench.tasks.base import DataSet, PublishedData
from winobench.tasks.coco_hardneg import COCO_FOLDER, COCO_IMAGES, RAW, REPOSITORY

if TYPE_CHECKING:
    from winobench.data.candidates import ContrastiveScorer
    from winobench.data.hard_negatives import PreparedSource

_COLUMNS = ("", "title", "filepath", "neg_caption", "neg_image")
_TABLE = "train_neg_{}.tsv"
_PUBLISHED = "clip"
_CAPTIONS = "captions.jsonl"
_KARPATHY = "dataset_*.json"
_KARPATHY_SPLITS = ("train", "restval")
_COCO_TRAIN_IMAGES = Download(
    "train2014.zip",
    "http://images.cocodataset.org/zips/train2014.zip",
    unpack=True,
    note="13 GB, photographs from Flickr under its terms",
)


@dataclasses.dataclass(frozen=True)
class TrainingSet:
    """A training set that ``winobench prepare`` prepares, like the data of a task."""

    name: str
    version: int
    description: str
    source: PublishedData

    def ready(self, data_dir: str | None) -> str | None:
        """None, or one sentence on how to get the data."""
        return published.problem(self.name, self.version, self.source, data_dir)

    def load(self, data_dir: str | None = None) -> PreparedSource:
        from winobench.data import hard_negatives, prepared

        problem = self.ready(data_dir)
        if problem is not None:
            raise InputError(f"the training set {self.name!r} is not ready: {problem}", code="data-not-ready")
        return hard_negatives.PreparedSource(prepared.task_folder(self.name, data_dir))


class TableRow(NamedTuple):
    """A row of a table."""

    caption: str
    image: str  # a file relative to the table's folder
    negative_captions: tuple[str, ...]
    negative_images: tuple[int, ...]  # numbers of rows


def read_rows(path: pathlib.Path, prefix: str = "") -> Iterator[Item]:
    """The rows of a table, each with its image and caption first and the negatives behind them.

    Left out are negatives that are the image itself, or that differ from the caption in capital letters and spaces
    alone, and rows without any other.
    """
    rows = list(read_table(path, _COLUMNS[1:]).rows())
    images = [ImageFile(path.parent / row["filepath"].text().removeprefix(prefix)) for row in rows]
    for number, row in enumerate(rows):
        caption, captions = row["title"].text(), python_list(row["neg_caption"]).texts()
        neighbours = [entry.integer() for entry in python_list(row["neg_image"]).rows()]
        if not captions:
            raise row["neg_caption"].wrong("has no negative caption", "no-negative")
        if not neighbours:
            raise row["neg_image"].wrong("has no negative image", "no-negative")
        for neighbour in neighbours:
            if not 0 <= neighbour < len(rows):
                raise row["neg_image"].wrong(
                    f"names number {neighbour}, but the numbers end with {len(rows) - 1}", "no-such-image"
                )
        texts = dict.fromkeys(text for text in captions if letters(text) != letters(caption))
        others = dict.fromkeys(images[n] for n in neighbours if images[n] != images[number])
        if texts and others:
            yield Item(f"row-{number:06d}", (images[number], *others), (caption, *texts))


def write_table(path: pathlib.Path, rows: Sequence[TableRow]) -> None:
    """Writes a table that `read_rows` and the published code read, whole or not at all."""
    with files.atomic_path(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(_COLUMNS)
        for number, row in enumerate(rows):
            negatives = list(row.negative_captions), list(row.negative_images)
            writer.writerow([number, row.caption, row.image, *map(repr, negatives)])


def build_table(folder: pathlib.Path, scorer: ContrastiveScorer, name: str, *, seed: int = 0) -> pathlib.Path:
    """Makes negatives of ours (`winobench.data.negatives`) for a folder's captioned images and writes them as a table.

    A caption's negatives have two of its elements exchanged. Its image's are the three nearest ones under the scorer.
    Captions without two elements to exchange are left out, as in the published tables, and so are images without any
    other caption. The folder has ``captions.jsonl`` or a file of Karpathy's splits (its training images are taken).
    """
    from winobench.data import negatives, word_order

    tagger = word_order.spacy_tagger()
    captioned = _read_captions(folder)
    missing = [image for image in captioned if not (folder / image).is_file()]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(captioned)} images are missing, {folder / missing[0]} first: add them",
            code="missing-images",
        )
    swapped = {
        image: own
        for image, captions in captioned.items()
        if (own := {text: wrong for text in captions if (wrong := negatives.swapped_captions(text, tagger, seed=seed))})
    }
    if not swapped:
        raise InputError(
            f"{folder} has no caption with two words of the same kind to exchange: add captions", code="no-negative"
        )
    vectors = scorer.encode_images([folder / image for image in swapped])
    # Captions that were left out still forbid images as each other's negatives.
    neighbours = negatives.nearest_images(vectors, [captioned[image] for image in swapped])
    first_row, count = [], 0
    for own in swapped.values():
        first_row.append(count)
        count += len(own)
    rows = [
        TableRow(caption, image, wrong, tuple(first_row[other] for other in near))
        for (image, own), near in zip(swapped.items(), neighbours.tolist(), strict=True)
        for caption, wrong in own.items()
    ]
    path = folder / _TABLE.format(name)
    write_table(path, rows)
    return path


def _read_captions(folder: pathlib.Path) -> dict[str, list[str]]:
    """Image file, relative to the folder -> captions."""
    path = folder / _CAPTIONS
    captions: dict[str, list[str]] = {}
    if path.is_file():
        for row in read_json_lines(path).rows():
            caption = row["caption"]
            texts = caption.texts() if isinstance(caption.value, list) else (caption.text(),)
            captions.setdefault(row["image"].text(), []).extend(texts)
        if not captions:
            raise InputError(f"{path} has no rows: give it one for each caption", code="empty-file")
        return captions
    splits = sorted(folder.glob(_KARPATHY))
    if len(splits) != 1:
        content = f"{len(splits)} files {_KARPATHY}" if splits else f"no file {_CAPTIONS} or {_KARPATHY}"
        raise InputError(
            f'{folder} has {content}: put {_CAPTIONS} there, with rows {{"image": file, "caption": text}}, or one file'
            " of Karpathy's splits",
            code="missing-files",
        )
    for image in read_json(splits[0])["images"].rows():
        if image["split"].text() in _KARPATHY_SPLITS:
            folder_name = image["filepath"].text() if "filepath" in image else "images"
            sentences = [sentence["raw"].text() for sentence in image["sentences"].rows()]
            captions[f"{folder_name}/{image['filename'].text()}"] = sentences
    if not captions:
        raise InputError(f"{splits[0]} has no training images: get the file again", code="empty-file")
    return captions


def _source(how_to_get: str, *, table: str = _PUBLISHED, prefix: str = "", **fields: Any) -> PublishedData:
    """Reads the table of this name; ``how_to_get`` is of everything but the table."""

    def with_lists(folder: pathlib.Path, scorer: ContrastiveScorer, name: str) -> PublishedData:
        build_table(folder, scorer, name)
        return _source(how_to_get, table=name)

    file = _TABLE.format(table)
    return PublishedData(
        read=lambda folder: read_rows(folder / file, prefix),
        how_to_get=f"{file} {how_to_get}",
        num_examples=None,
        with_lists=with_lists,
        **fields,
    )


_COCO_TABLE = _TABLE.format(_PUBLISHED)

# The second one is for any images, and `build_table` makes negatives for either.
_SETS = (
    TrainingSet(
        "coco_hardneg_train",
        1,
        "COCO's training captions with the hard negatives of NegCLIP.",
        _source(
            f"(from temp_data of {REPOSITORY}) and the folders train2014 and val2014, unpacked from"
            f" {_COCO_TRAIN_IMAGES.url} and {COCO_IMAGES.url}",
            prefix="coco/",
            downloads=(
                Download(_COCO_TABLE, f"{RAW}/{_COCO_TABLE}", note="MIT licence"),
                _COCO_TRAIN_IMAGES,
                COCO_IMAGES,
            ),
            shared_folder=COCO_FOLDER,
        ),
    ),
    TrainingSet(
        "captions_hardneg_train",
        1,
        "Your captioned images, with our hard negatives or yours.",
        _source(f"and the images that it names. Or, with --lists, {_CAPTIONS} or a file {_KARPATHY} and the images"),
    ),
)
TRAINING_SETS: Mapping[str, TrainingSet] = {training_set.name: training_set for training_set in _SETS}

DATA_SETS = (
    DataSet(
        name="coco_hardneg_train",
        title="COCO with hard negatives, for training",
        description="for winobench train",
        tasks=(TRAINING_SETS["coco_hardneg_train"],),
        licence="MIT, photographs: Flickr's terms",
        size="19 GB",
    ),
    DataSet(
        name="captions_hardneg_train",
        title="your captioned images, for training",
        description="for winobench train",
        tasks=(TRAINING_SETS["captions_hardneg_train"],),
        downloads="",
        supplies="images and captions",
    ),
)
