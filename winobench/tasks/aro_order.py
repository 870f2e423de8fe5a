"""ARO's order tasks: which of five orders of its words describes a photograph (Yuksekgonul et al. 2023, section 2.2).

Every caption of COCO's test images (Karpathy's split) and of Flickr30K's validation images (the default of GDBench's
code, where ARO's paper takes the test images) stands against four perturbations of it: nouns and adjectives shuffled
among themselves, all other words shuffled, words shuffled within trigrams, and trigrams shuffled. They are ours
(`winobench.data.word_order`, seed 0), as the published code draws new ones at every run, and are made with spaCy when
the task is prepared. A caption with too few words for four different ones has fewer.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.data import word_order
from winobench.tasks.coco_hardneg import COCO_FOLDER, COCO_IMAGES
from winobench.tasks.flickr30k import (
    IMAGES,
    KARPATHY_FILE,
    KARPATHY_URL,
    SHARED_FOLDER,
    karpathy_image,
    karpathy_rows,
)
from winobench.tasks.published import Download, ImageFile, Item, PublishedData, published_task

_SEED = 0
_NUM_CANDIDATES = 1 + len(word_order.PERTURBATIONS)
_COCO_FILE = "coco_karpathy_test.json"
_COCO_URL = f"https://storage.googleapis.com/sfr-vision-language-research/datasets/{_COCO_FILE}"


def read(folder: pathlib.Path, file: str) -> Iterator[Item]:
    """A photograph, its caption and up to four perturbations of the caption, for every caption.

    Args:
      folder: holds the file and the images.
      file: rows {"image": path in the folder, "caption": [texts]}.

    Raises:
      InputError: the rows are missing or malformed, or spaCy or its English model is not installed.
    """
    rows = karpathy_rows(folder / file)
    tagger = word_order.spacy_tagger()
    for row in rows:
        path = row["image"].text()
        image = ImageFile(karpathy_image(folder, path))
        for number, caption in enumerate(row["caption"].texts()):
            texts = word_order.reordered_captions(caption, tagger, seed=_SEED)
            if len(texts) == 1:
                raise row["caption"].wrong(f"has {caption!r}, whose words have no other order", "no-other-order")
            yield Item(f"{pathlib.PurePosixPath(path).stem}/{number}", (image,), texts)


def _task(name: str, photographs: str, file: str, how_to_get: str, num_examples: int, **fields):
    return published_task(
        name=name,
        version=1,
        description=f"ARO: a caption of a photograph of {photographs} against four shuffles of its words.",
        metric="accuracy",
        shape=(1, _NUM_CANDIDATES),
        chance={"accuracy": 1 / _NUM_CANDIDATES},
        images_compete=False,
        skills=("order",),
        source=PublishedData(
            read=functools.partial(read, file=file),
            how_to_get=(
                f"{how_to_get}; spaCy and its English model are needed as well (`pip install 'winobench[order]'`,"
                " `python -m spacy download en_core_web_sm`)"
            ),
            num_examples=num_examples,
            **fields,
        ),
    )


TASKS = (
    _task(
        "aro_coco_order",
        "COCO",
        _COCO_FILE,
        f"{_COCO_FILE} ({_COCO_URL}) and the folder val2014, unpacked from {COCO_IMAGES.url}",
        25010,
        downloads=(Download(_COCO_FILE, _COCO_URL, note="2 MB"), COCO_IMAGES),
        shared_folder=COCO_FOLDER,
    ),
    _task(
        "aro_flickr_order",
        "Flickr30K",
        KARPATHY_FILE,
        f"{KARPATHY_FILE} ({KARPATHY_URL}) and {IMAGES}",
        5070,
        downloads=(Download(KARPATHY_FILE, KARPATHY_URL, note="0.5 MB"),),
        shared_folder=SHARED_FOLDER,
    ),
)
