"""ConMe: questions about photographs that vision-language models get wrong, with two options each

In question form, for scorers that answer questions (`winobench.scorers.base`). A row has a photograph of COCO's
val2017, a right option and a wrong one, which models wrote. ``conme_replace_*`` asks as published: the question lists
both options in the file's order, and the answers are their letters. ``conme_replace_*_options`` asks the base question,
and the answers are the options themselves. The published code takes the answer with the lower loss, and of equal losses
the option that is listed first. Here a tie is wrong. The human-filtered files have other columns and are not read. No
number of rows is published, so that none is checked.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.contrib.datasets.sugarcrepe import COCO_FOLDER, COCO_IMAGES
from winobench.data import question_texts
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_table
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_PAGE = "https://huggingface.co/conme/ConMe"
PARTS = {"att": "attributes", "obj": "objects", "rel": "relations"}
"""Part of a file's name -> what SugarCrepe replaces in the captions of its photographs."""

ENDING = "\nAnswer with the option's letter from the given choices directly."
"""The words that the published code puts behind a question with its options."""

_LETTERS = {"A": "B", "B": "A"}  # of the right option -> of the wrong one
_COLUMNS = {"": ("question", "answer"), "_options": ("base_question", "correct_option", "incorrect_option")}
"""End of a task's name -> the columns that it needs."""


def read(folder: pathlib.Path, part: str, form: str) -> Iterator[Item]:
    """A photograph, and the question with its right and its wrong answer."""
    columns = ("image", *_COLUMNS[form])
    for number, row in enumerate(read_table(folder / f"replace-{part}.csv", columns, delimiter=",").rows()):
        name = pathlib.PurePosixPath(row["image"].text()).name
        question = row[columns[1]].text().strip() + (ENDING if not form else "")
        answers = tuple(question_texts.join(question, text) for text in _answers(row, form))
        yield Item(f"row-{number:04d}", (ImageFile(folder / "val2017" / name),), answers)


def _answers(row: Entry, form: str) -> tuple[str, str]:
    """The right answer and the wrong one, each in one line."""
    if not form:
        right = row["answer"].one_of(_LETTERS)
        return right, _LETTERS[right]
    right, wrong = (" ".join(row[column].text().split()) for column in _COLUMNS[form][1:])
    if right == wrong:
        raise row["incorrect_option"].wrong(f"is {options.quote(wrong)}, as the right option", "same-answers")
    return right, wrong


TASKS = tuple(
    published_task(
        name=f"conme_replace_{part}{form}",
        description=f"ConMe, {what}: which of two options answers a question about a photograph, {how}.",
        shape=(1, 2),
        asks_questions=True,
        when_named=True,
        skills=("compositional",),
        paper="Huang et al. 2024",
        licence="Apache 2.0",
        url=_PAGE,
        read=functools.partial(read, part=part, form=form),
        how_to_get=(
            f"replace-{part}.csv (from {_PAGE}, Apache 2.0) and the folder val2017, unpacked from {COCO_IMAGES.url}"
        ),
        num_examples=None,
        downloads=(
            Download(f"replace-{part}.csv", f"{_PAGE}/resolve/main/replace-{part}.csv", note="Apache 2.0"),
            COCO_IMAGES,
        ),
        shared_folder=COCO_FOLDER,
    )
    for form, how in (("", "by its letter"), ("_options", "by its text"))
    for part, what in PARTS.items()
)

DATA_SETS = (
    DataSet(
        name="conme",
        title="ConMe",
        description="two answers to a hard question",
        tasks=TASKS,
        licence="Apache 2.0, images: Flickr's terms",
        size="0.8 GB",
    ),
)
