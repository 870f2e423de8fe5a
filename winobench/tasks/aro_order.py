"""ARO's order tasks: which of five orders of its words describes a photograph (Yuksekgonul et al. 2023, section 2.2).

Every caption of COCO's test images (Karpathy's split) and of Flickr30K's validation images (the default of GDBench's
code, where ARO's paper takes the test images) stands against four perturbations of it: nouns and adjectives shuffled
among themselves, all other words shuffled, words shuffled within trigrams, and trigrams shuffled.

``aro_coco_order`` and ``aro_flickr_order`` have perturbations of ours (`winobench.data.word_order`, seed 0), made with
spaCy when the task is prepared: all candidates have the same words, and none is the caption itself. A caption with too
few words for four different ones has fewer.

``aro_coco_order_published`` and ``aro_flickr_order_published`` have those of the published code
(`winobench.data.published_order`), which draws them again at every run; GDBench's seeds Python's stream with 0, which
shuffles trigrams, and leaves NumPy's, which shuffles the other two, without a seed. Here both have the seed 0. There a
candidate that equals the caption can win no more than the caption itself, which comes first and wins ties, so that
equal candidates are left out here, and the right answers are the same. They differ in spelling from the caption, and
some captions have fewer rivals, so that chance is above 20%.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable, Iterator

from winobench.data import published_order, word_order
from winobench.data.example import ImageFile, Item
from winobench.tasks.base import Download, PublishedData
from winobench.tasks.coco_hardneg import COCO_FOLDER, COCO_IMAGES
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
    """A photograph, its caption and up to four perturbations of the caption, for every caption.

    Args:
      file: rows {"image": path in the folder, "caption": [texts]}.
    """
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


def _task(
    name: str,
    photographs: str,
    file: str,
    how_to_get: str,
    num_examples: int,
    candidates: str = "ours",
    chance: float = 1 / _NUM_CANDIDATES,
    **fields,
):
    is_ours = candidates == "ours"
    of_theirs = "" if is_ours else ", those of the published code"
    return published_task(
        name=name if is_ours else f"{name}_published",
        version=2 if is_ours else 1,
        description=f"ARO: a caption of a photograph of {photographs} against four shuffles of its words{of_theirs}.",
        metric="accuracy",
        shape=(1, _NUM_CANDIDATES),
        chance={"accuracy": chance},
        images_compete=False,
        skills=("order",),
        when_named=not is_ours,
        source=PublishedData(
            read=functools.partial(read, file=file, candidates=candidates),
            how_to_get=f"{how_to_get}; {_PACKAGES[candidates]}",
            num_examples=num_examples,
            **fields,
        ),
    )


# Of guessing among the different candidates, with seeds 0 to 3: of the 5,068 captions of Flickr30K, and of 4,839 of
# COCO's validation images.
_PUBLISHED_CHANCE = {"coco": 0.210, "flickr": 0.212}

_COCO = functools.partial(
    _task,
    "aro_coco_order",
    "COCO",
    _COCO_FILE,
    f"{_COCO_FILE} ({_COCO_URL}) and the folder val2014, unpacked from {COCO_IMAGES.url}",
    25010,
    downloads=(Download(_COCO_FILE, _COCO_URL, note="2 MB"), COCO_IMAGES),
    shared_folder=COCO_FOLDER,
)
_FLICKR = functools.partial(
    _task,
    "aro_flickr_order",
    "Flickr30K",
    KARPATHY_FILE,
    f"{KARPATHY_FILE} ({KARPATHY_URL}) and {IMAGES}",
    5070,
    downloads=(Download(KARPATHY_FILE, KARPATHY_URL, note="0.5 MB"),),
    shared_folder=SHARED_FOLDER,
)

TASKS = (
    _COCO(),
    _FLICKR(),
    _COCO(candidates="published", chance=_PUBLISHED_CHANCE["coco"]),
    _FLICKR(candidates="published", chance=_PUBLISHED_CHANCE["flickr"]),
)
