"""ARO's order tasks: which of five orders of its words describes a photograph (section 2.2).

Captions of COCO's test images (Karpathy's split) and of Flickr30K's validation images (the default of GDBench's code)
stand against four perturbations: nouns and adjectives shuffled, all other words, words within trigrams, and trigrams.
``aro_coco_order`` and ``aro_flickr_order`` have perturbations of ours (`winobench.data.word_order`), made with spaCy
when the task is prepared: all candidates have the same words, and none is the caption itself.

Tasks with the perturbations of the published code (`winobench.data.published_order`) end in ``_published``. That code
samples them again at every run, and seeds only some. Here all have the seed 0. A candidate that equals the caption
cannot win there, as the caption comes first and wins ties, so that it is left out here. Chance is then above 20%.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator

from winobench.data import published_order, word_order
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.base import DataSet
from winobench.tasks.coco_hardneg import COCO_FOLDER, COCO_IMAGES, REPOSITORY
from winobench.tasks.flickr30k import (
    IMAGES,
    KARPATHY_FILE,
    KARPATHY_URL,
    SHARED_FOLDER,
    karpathy_image,
    karpathy_rows,
)
from winobench.tasks.published import published_task

_SEED = 0
_NUM_CANDIDATES = 1 + len(word_order.PERTURBATIONS)
_COCO_FILE = "coco_karpathy_test.json"
_COCO_URL = f"https://storage.googleapis.com/sfr-vision-language-research/datasets/{_COCO_FILE}"


def read(folder: pathlib.Path, file: str, candidates: str = "ours") -> Iterator[Item]:
    """A photograph, its caption and up to four perturbations of the caption, for every caption."""
    rows = karpathy_rows(folder / file)
    reorder = _REORDERINGS[candidates]()
    for row in rows:
        path = row["image"].text()
        image = ImageFile(karpathy_image(folder, path))
        for number, caption in enumerate(row["caption"].texts()):
            texts = reorder(caption)
            if len(texts) == 1 and candidates == "ours":
                raise row["caption"].wrong(f"has {caption!r}, whose words have no other order", "no-other-order")
            yield Item(f"{pathlib.PurePosixPath(path).stem}/{number}", (image,), texts)


def _ours() -> Callable[[str], tuple[str, ...]]:
    return functools.partial(word_order.reordered_captions, tagger=word_order.spacy_tagger(), seed=_SEED)


def _published() -> Callable[[str], tuple[str, ...]]:
    tokenizer = published_order.nltk_tokenizer()
    shuffles = published_order.PublishedShuffles(word_order.spacy_tagger(with_spaces=True), tokenizer, seed=_SEED)
    return lambda caption: tuple(dict.fromkeys(shuffles(caption)))


_REORDERINGS = {"ours": _ours, "published": _published}
_PACKAGES = {
    "ours": (
        "spaCy and its English model are needed as well (`pip install 'winobench[order]'`, `python -m spacy download"
        " en_core_web_sm`)"
    ),
    "published": (
        "spaCy, its English model, NLTK and its data are needed as well (`pip install 'winobench[order_published]'`,"
        " `python -m spacy download en_core_web_sm`, `python -m nltk.downloader punkt_tab`)"
    ),
}
# Data set -> its photographs, file, how to get both, number of captions, downloads, folder, and the chance of guessing
# among the published code's different candidates, with seeds 0 to 3: of 4,839 captions of COCO's validation images, and
# of the 5,068 of Flickr30K.
_SETS = {
    "coco": (
        *("COCO", _COCO_FILE, f"({_COCO_URL}) and the folder val2014, unpacked from {COCO_IMAGES.url}", 25010),
        *((Download(_COCO_FILE, _COCO_URL, note="2 MB"), COCO_IMAGES), COCO_FOLDER, 0.210),
    ),
    "flickr": (
        *("Flickr30K", KARPATHY_FILE, f"({KARPATHY_URL}) and {IMAGES}", 5070),
        *((Download(KARPATHY_FILE, KARPATHY_URL, note="0.5 MB"),), SHARED_FOLDER, 0.212),
    ),
}


def _task(name: str, candidates: str):
    photographs, file, how_to_get, num_examples, downloads, shared_folder, published_chance = _SETS[name]
    is_ours = candidates == "ours"
    of_theirs = "" if is_ours else ", by the published code"
    return published_task(
        name=f"aro_{name}_order{'' if is_ours else '_published'}",
        version=2 if is_ours else 1,
        description=f"ARO: a caption of a photograph of {photographs} against four shuffles of its words{of_theirs}.",
        shape=(1, _NUM_CANDIDATES),
        chance={"accuracy": 1 / _NUM_CANDIDATES if is_ours else published_chance},
        chance_by_question=True,
        skills=("order",),
        when_named=not is_ours,
        paper="Yuksekgonul et al. 2023",
        url=REPOSITORY,
        read=functools.partial(read, file=file, candidates=candidates),
        how_to_get=f"{file} {how_to_get}; {_PACKAGES[candidates]}",
        num_examples=num_examples,
        downloads=downloads,
        shared_folder=shared_folder,
    )


TASKS = tuple(_task(name, candidates) for candidates in _REORDERINGS for name in _SETS)

DATA_SETS = (
    DataSet(
        name="aro_coco_order",
        title="ARO, COCO order",
        description="word order, COCO captions",
        tasks=tuple(task for task in TASKS if "coco" in task.name),
        supplies="a tagger",
        licence="photographs: Flickr's terms",
        size="6 GB",
    ),
    DataSet(
        name="aro_flickr_order",
        title="ARO, Flickr order",
        description="word order, Flickr30K captions",
        tasks=tuple(task for task in TASKS if "flickr" in task.name),
        downloads="captions",
        supplies="Flickr30K's images, a tagger",
        licence="photographs: Flickr's terms",
        size="0.5 MB",
    ),
)
