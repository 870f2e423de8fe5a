"""SVO-Probes: which of two images fits a sentence; they differ in subject, verb or object (Hendricks et al. 2021).

The images are photographs on many web sites, listed in ``svo_probes.csv``, and many are gone: every user has the
rest of them, as did GDBench's authors, so numbers of examples and accuracies differ a little from user to user.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.tasks.annotations import DIFFUSION_ITM, read_json
from winobench.tasks.published import ImageFile, Item, PublishedData, published_task

_PARTS = {"subj": "subject", "verb": "verb", "obj": "object"}


def read(folder: pathlib.Path, part: str) -> Iterator[Item]:
    """The image that fits, one that does not, and the sentence, for every row whose images differ in one part of it.

    Args:
      folder: holds ``svo.json``, rows {"pos_id", "neg_id", "sentence", "neg_type"}, and ``images/<pos_id or neg_id>``.
      part: ``subj``, ``verb`` or ``obj``.

    Raises:
      InputError: the rows are missing or malformed.
    """
    images = folder / "images"
    for number, row in enumerate(read_json(folder / "svo.json").rows()):
        kind = row["neg_type"]
        if kind.text() not in _PARTS:
            raise kind.wrong(f"is {kind.value!r}, which is none of {', '.join(_PARTS)}", "unknown-name")
        files = tuple(ImageFile(images / row[key].text()) for key in ("pos_id", "neg_id"))
        sentence = row["sentence"].text()
        if kind.value == part:
            yield Item(f"row-{number:06d}", files, (sentence,))


TASKS = tuple(
    published_task(
        name=f"svo_{part}",
        version=1,
        description=f"SVO-Probes: which of two images fits a sentence; they differ in its {word}.",
        metric="accuracy",
        shape=(2, 1),
        chance={"accuracy": 1 / 2},
        images_compete=True,
        skills=("recognition",),
        source=PublishedData(
            read=functools.partial(read, part=part),
            how_to_get=(
                "svo.json and the folder images: run data/svo/download.py of"
                f" {DIFFUSION_ITM} on svo_probes.csv (https://github.com/google-deepmind/svo_probes), which fetches the"
                " images from their web sites, many of which are gone, and lists in svo.json what it got; add"
                " --allow_partial if images that svo.json lists are missing"
            ),
            num_examples=None,
            shared_folder="svo",
        ),
    )
    for part, word in _PARTS.items()
)
