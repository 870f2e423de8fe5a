"""SVO-Probes: which of two images fits a sentence. They differ in subject, verb or object.

The images are photographs on many web sites, listed in ``svo_probes.csv``. Many are gone, so numbers of examples and
accuracies differ a little from user to user. `fetch` gets those that are left (`winobench.data.web_images`).
"""

from __future__ import annotations

import functools
import json
import pathlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from winobench.base import files
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_json, read_table
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

if TYPE_CHECKING:
    from winobench.data import web_images

_PARTS = {"subj": "subject", "verb": "verb", "obj": "object"}
_ROWS, _TABLE = "svo.json", "svo_probes.csv"
PROBES = Download(
    _TABLE,
    f"https://raw.githubusercontent.com/google-deepmind/svo_probes/main/{_TABLE}",
    note="CC BY 4.0. The images belong to their web sites",
)
_COLUMNS = ("sentence", "pos_triplet", "neg_triplet", "pos_url", "neg_url", "pos_image_id", "neg_image_id")
_FLAGS = tuple(f"{part}_neg" for part in _PARTS)


def read(folder: pathlib.Path, part: str) -> Iterator[Item]:
    """The image that fits, one that does not, and the sentence, of the rows whose images differ in one part of it."""
    images = folder / "images"
    for number, row in enumerate(read_json(folder / _ROWS).rows()):
        kind = row["neg_type"].one_of(_PARTS)
        files = tuple(ImageFile(images / row[key].text()) for key in ("pos_id", "neg_id"))
        sentence = row["sentence"].text()
        if kind == part:
            yield Item(f"row-{number:06d}", files, (sentence,))


def fetch(
    folder: pathlib.Path,
    progress: Callable[[str, str], AbstractContextManager[Any]],
    manners: web_images.RateLimits | None = None,
) -> str:
    """Downloads ``svo_probes.csv`` and the images that it lists, and writes ``svo.json`` with all of its rows.

    A folder with another ``svo.json`` is the user's own, and stays as it is.
    """
    # Late, as the libraries for the web would take a tenth of the time of a listing.
    from winobench.data import downloads, web_images

    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder, f"another process downloads images to {folder}: wait for it or stop it"):
        own = folder / _ROWS
        if own.exists() and not (folder / _TABLE).exists():
            return f"{own} was there before: no image is requested"
        with progress(f"downloading {_TABLE} ({PROBES.note})", "bytes") as display:
            downloads.fetch(PROBES, folder, display)
        rows, addresses = read_probes(folder)
        text = json.dumps(rows, indent=1) + "\n"
        if own.exists() and own.read_text(encoding="utf-8", errors="replace") != text:
            return f"{own} has other rows than {_TABLE}: no image is requested"
        files.write_text(own, text)
        with progress("asking web sites for images", "images") as display:
            fetched = web_images.fetch(folder, addresses, display, manners or web_images.DEFAULT_LIMITS)
    sentences = [f"{fetched.there:,} of {len(addresses):,} images are in {folder / 'images'}"]
    if num_silent := len(read_table(folder / _TABLE, _COLUMNS, ",").value) - len(rows):
        sentences.append(f"rows of {_TABLE} without a sentence, which are left out: {num_silent:,}")
    if fetched.dead:
        sentences.append(f"{fetched.dead:,} addresses are dead ({folder / web_images.DEAD})")
    if fetched.failed:
        sentences.append(f"{fetched.failed:,} failed and are requested again next time ({folder / web_images.FAILED})")
    return "; ".join(sentences)


def read_probes(folder: pathlib.Path) -> tuple[list[dict[str, str]], dict[str, str]]:
    """The rows of ``svo_probes.csv`` as ``svo.json`` has them, and the address of every image's file.

    The part in which two images differ follows the published code: the subject if that is marked, else the
    verb if that is, else the object. Rows without a sentence are left out.
    """
    rows: list[dict[str, Any]] = []
    addresses: dict[str, str] = {}
    for row in read_table(folder / _TABLE, (*_COLUMNS, *_FLAGS), ",").rows():
        if not (row["sentence"].value or "").strip():
            continue
        files_of_row = {}
        for side in ("pos", "neg"):
            name, address = f"{_image_id(row[f'{side}_image_id'])}.jpg", row[f"{side}_url"].text().strip()
            if addresses.setdefault(name, address) != address:
                raise row[f"{side}_url"].wrong(f"is another address of the image {name}", "repeated-id")
            files_of_row[f"{side}_id"] = name
        marked = [part for part in ("subj", "verb") if row[f"{part}_neg"].text().strip().lower() in ("true", "1")]
        rows.append(
            {
                **files_of_row,
                "sentence": row["sentence"].text(),
                "pos_triplet": row["pos_triplet"].text(),
                "neg_triplet": row["neg_triplet"].text(),
                "neg_type": marked[0] if marked else "obj",
            }
        )
    return rows, addresses


def _image_id(entry: Entry) -> int:
    text = entry.text().strip()
    if not (text.isascii() and text.isdecimal()):
        raise entry.wrong(f"is {text!r}, which is not a number", "not-a-number")
    return int(text)


TASKS = tuple(
    published_task(
        name=f"svo_{part}",
        description=f"SVO-Probes: which of two images fits a sentence. They differ in its {word}.",
        shape=(2, 1),
        skills=("recognition",),
        paper="Hendricks et al. 2021",
        licence="CC BY 4.0",
        url="https://github.com/google-deepmind/svo_probes",
        read=functools.partial(read, part=part),
        how_to_get=(
            "svo.json and the folder images, both as winobench prepare makes them without --source from svo_probes.csv"
            f" ({PROBES.url}) and the web sites that it lists, many of which are gone. Add --allow_partial if"
            " images that svo.json lists are missing"
        ),
        num_examples=None,
        shared_folder="svo",
        fetch=fetch,
    )
    for part, word in _PARTS.items()
)

DATA_SETS = (
    DataSet(
        name="svo",
        title="SVO-Probes",
        description="subject, verb or object differs",
        tasks=TASKS,
        downloads="14,102 photographs on the web",
        licence="each owner's",
    ),
)
