"""GDBench's Flickr30K: find a caption's image, or an image's caption, among ten (appendix G).

The candidates are those that CLIP RN50x64 ranks highest among the 1,014 images of the validation set and their 5,068
different captions, the right one first. Image retrieval asks about every fifth caption, as the published code does: one
of each image. Four lists of captions name a wrong caption twice, because two images share it. It is kept once, so these
have nine candidates, where the published code can make a tie. Lists of another model (`build_lists`) have the same
layout, but their numbers do not compare with the paper's.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base.errors import InputError
from winobench.data.candidates import ContrastiveScorer, write_top_k_lists
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import DIFFUSION_ITM, DIFFUSION_ITM_RAW, Entry, not_as_published, read_json
from winobench.tasks.base import DataSet, PublishedData
from winobench.tasks.published import published_task

PUBLISHED_LISTS = "RN50x64"
NUM_CANDIDATES = 10
_CAPTIONS_PER_IMAGE = 5
# The published lists' paths are relative to their authors' machine.
_PATHS_BEGIN_WITH = "datasets/flickr30k/"
IMAGES = (
    "the images of Flickr30K as images/<number>.jpg (request them at https://shannon.cs.illinois.edu/DenotationGraph/,"
    " or take them from https://www.kaggle.com/datasets/hsankesara/flickr-image-dataset)"
)
SHARED_FOLDER = "flickr30k"
KARPATHY_FILE = "flickr30k_val.json"
KARPATHY_URL = f"https://storage.googleapis.com/sfr-vision-language-research/datasets/{KARPATHY_FILE}"


def read_image_side(folder: pathlib.Path, lists: str = PUBLISHED_LISTS) -> Iterator[Item]:
    """Ten images for every fifth caption."""
    captions = list(read_json(folder / _file(lists, "")).items())
    for number in range(0, len(captions), _CAPTIONS_PER_IMAGE):
        caption, images = captions[number]
        paths = images.texts(NUM_CANDIDATES)
        if len(set(paths)) < len(paths):
            raise images.wrong("names an image twice", "repeated-image")
        yield Item(f"caption-{number:06d}", tuple(_image(folder, path) for path in paths), (caption,))


def read_text_side(folder: pathlib.Path, lists: str = PUBLISHED_LISTS) -> Iterator[Item]:
    """Ten captions for every image, nine where the list repeats one."""
    for path, captions in read_json(folder / _file(lists, "_text")).items():
        texts = captions.texts(NUM_CANDIDATES)
        if texts.count(texts[0]) > 1:
            raise captions.wrong("offers the right caption twice", "repeated-text")
        yield Item(pathlib.PurePosixPath(path).stem, (_image(folder, path),), tuple(dict.fromkeys(texts)))


def build_lists(folder: pathlib.Path, scorer: ContrastiveScorer, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Makes both lists with a contrastive model and writes them into the folder, for `source`."""
    rows = [(row["image"].text(), row["caption"].texts()) for row in karpathy_rows(folder / KARPATHY_FILE)]
    images = [(_PATHS_BEGIN_WITH + f"images/{pathlib.PurePosixPath(path).name}", path) for path, _ in rows]
    files = [(listed, karpathy_image(folder, path)) for listed, path in images]
    missing = [file for _, file in files if not file.is_file()]
    if missing:
        raise InputError(
            f"{len(missing)} of {len(files)} images are missing, {missing[0]} first: add them", code="missing-images"
        )
    return write_top_k_lists(folder, name, scorer, files, [captions for _, captions in rows], NUM_CANDIDATES)


def karpathy_rows(path: pathlib.Path) -> list[Entry]:
    """The rows {"image", "caption"} of a file of Karpathy's splits as BLIP's authors published it."""
    rows = list(read_json(path).rows())
    if not rows:
        raise not_as_published(path, "has no rows", "empty-file")
    seen: set[str] = set()
    for row in rows:
        name = row["image"].text()
        if name in seen:
            raise row["image"].wrong(f"names {name!r} a second time", "repeated-image")
        seen.add(name)
    return rows


def karpathy_image(folder: pathlib.Path, path: str) -> pathlib.Path:
    """The file of an image of Karpathy's split: in ``images``, where the published code looks for it, too."""
    return folder / path.replace("flickr30k-images/", "images/")


def _file(lists: str, side: str) -> str:
    return f"val_top{NUM_CANDIDATES}_{lists}{side}.json"


def _image(folder: pathlib.Path, path: str) -> ImageFile:
    return ImageFile(folder / path.removeprefix(_PATHS_BEGIN_WITH))


def source(side: str, lists: str = PUBLISHED_LISTS) -> PublishedData:
    """The files for retrieval of images ("") or texts ("_text"), with GDBench's lists or lists of `build_lists`."""
    read, sha256 = _SIDES[side]
    file = _file(lists, side)
    is_published = lists == PUBLISHED_LISTS
    download = Download(file, f"{DIFFUSION_ITM_RAW}/flickr30k/{file}", sha256=sha256, note="3 MB")

    def with_lists(folder: pathlib.Path, scorer: ContrastiveScorer, name: str) -> PublishedData:
        build_lists(folder, scorer, name)
        return source(side, name)

    return PublishedData(
        read=functools.partial(read, lists=lists),
        how_to_get=f"{file} (from data/flickr30k of {DIFFUSION_ITM}) and {IMAGES}",
        num_examples=1014 if is_published else None,
        downloads=(download,) if is_published else (),
        shared_folder=SHARED_FOLDER,
        with_lists=with_lists,
    )


_SIDES = {
    "": (read_image_side, "ea4abb1fe6cce65acd73c1983c4a9c954c21644f48cad61981fb0b03af81a2b5"),
    "_text": (read_text_side, "e70ce1a3308ecc489b1757e1744b8f38d1b1ccc462b3dd9baaf830078d43a31f"),
}

TASKS = (
    published_task(
        name="flickr30k_image",
        description="Flickr30K: which of ten similar photographs a caption describes.",
        metric="recall",
        shape=(NUM_CANDIDATES, 1),
        skills=("retrieval",),
        paper="Krojer et al. 2023",
        url=DIFFUSION_ITM,
        source=source(""),
    ),
    published_task(
        name="flickr30k_text",
        description="Flickr30K: which of ten captions describes a photograph.",
        metric="recall",
        shape=(1, NUM_CANDIDATES),
        skills=("retrieval",),
        paper="Krojer et al. 2023",
        url=DIFFUSION_ITM,
        source=source("_text"),
    ),
)

DATA_SETS = (
    DataSet(
        name="flickr30k",
        title="Flickr30K, 10 candidates",
        description="one of ten photographs or texts",
        tasks=TASKS,
        downloads="candidate lists",
        supplies="images",
        licence="photographs: Flickr's terms",
        size="6 MB",
    ),
)
