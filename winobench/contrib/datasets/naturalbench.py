"""NaturalBench: two images, and two questions whose answers differ between them

In question form, for scorers that answer questions (`winobench.scorers.base`). ``naturalbench`` is every question about
every image, ``_questions`` a question about both images, ``_images`` both questions about an image, and ``_groups`` all
four: Acc, Q-Acc, I-Acc and G-Acc of the paper, of the same pairs. An answer counts where its score is higher than the
other one's. The published code looks for the first of them in what a model writes. ``naturalbench_retrieval`` is the
authors' set for scorers of image and text: captions instead of questions, judged as in Winoground.
"""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Iterator

from winobench.base import options
from winobench.data import question_texts
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet
from winobench.tasks.hub_tables import read_rows, unpack
from winobench.tasks.published import published_task

_HUB_ID = "BaiqiL/NaturalBench"
_PAGE = f"https://huggingface.co/datasets/{_HUB_ID}"
_COLUMNS = (
    *("Question_0", "Question_1", "Image_0", "Image_1", "Question_Type"),
    *(f"Image_{image}_Question_{question}" for image in (0, 1) for question in (0, 1)),
)
_NUM_ROWS = 1900
_RETRIEVAL = "NaturalBench-Retrieval"
_ARCHIVE = f"{_RETRIEVAL}.zip"

ENDINGS = {
    "yes_no": "Please answer Yes or No.",
    "multiple_choice": "Please output the letter corresponding to the correct option.",
}
"""Type of a question -> what the published code puts behind it, without a space."""


def read(folder: pathlib.Path, form: str) -> Iterator[Item]:
    """Images, and texts of a question with an answer (`winobench.data.question_texts`). The group is the type."""
    for number, row in read_rows(folder, "train", _COLUMNS):
        name = f"row-{number:04d}"
        images = tuple(unpack(row[f"Image_{side}"], folder, f"{name}-{side}") for side in (0, 1))
        answers = [_answers(row, question) for question in (0, 1)]
        group = (row["Question_Type"].text(),)
        yield from FORMS[form](name, images, answers, group)


def _answers(row: Entry, question: int) -> tuple[str, str]:
    """The question with the right answer for the first image, and with that for the second one."""
    kind = row["Question_Type"].one_of(ENDINGS)
    entries = [row[f"Image_{image}_Question_{question}"] for image in (0, 1)]
    first, second = (entry.text().strip() for entry in entries)
    if first == second:
        raise entries[1].wrong(f"is {options.quote(second)}, as for the other image", "same-answers")
    text = row[f"Question_{question}"].text() + ENDINGS[kind]
    return question_texts.join(text, first), question_texts.join(text, second)


def _singly(name, images, answers, group) -> Iterator[Item]:
    for image, question in ((0, 0), (0, 1), (1, 0), (1, 1)):
        yield Item(f"{name}/image-{image}/question-{question}", (images[image],), answers[question], image, group)


def _by_question(name, images, answers, group) -> Iterator[Item]:
    for question in (0, 1):
        yield Item(f"{name}/question-{question}", images, answers[question], None, group)


def _by_image(name, images, answers, group) -> Iterator[Item]:
    for image in (0, 1):
        right_first = tuple(text for pair in answers for text in (pair[image], pair[1 - image]))
        yield Item(f"{name}/image-{image}", (images[image],), right_first, None, group)


def _together(name, images, answers, group) -> Iterator[Item]:
    yield Item(name, images, (*answers[0], *answers[1]), None, group)


FORMS = {"": _singly, "_questions": _by_question, "_images": _by_image, "_groups": _together}
"""End of a task's name -> the examples of a row."""


def read_retrieval(folder: pathlib.Path) -> Iterator[Item]:
    """Two images and two captions. The diagonal is right."""
    root, seen = folder / _RETRIEVAL, set()
    for row in read_json(root / "metadata.json").rows():
        index = row["index"].unique(row["index"].integer(), seen)
        seen.add(index)
        images = tuple(ImageFile(root / "images" / row[f"image_{side}"].text()) for side in (0, 1))
        yield Item(f"{index}", images, tuple(row[f"caption_{side}"].text() for side in (0, 1)), None)


def _in_question_form(form: str, what: str, metric: str, shape: tuple[int, int], per_row: int):
    return published_task(
        name=f"naturalbench{form}",
        description=f"NaturalBench in question form: {what}.",
        metric=metric,
        shape=shape,
        images_compete=False,
        asks_questions=True,
        when_named=True,
        skills=("compositional",),
        paper="Li et al. 2024",
        licence="Apache 2.0",
        url=_PAGE,
        read=functools.partial(read, form=form),
        how_to_get=(
            f"the files data/train-*.parquet of {_PAGE}"
            f" (`hf download {_HUB_ID} --repo-type=dataset --include='data/*' --local-dir=DIR`; Apache 2.0)"
        ),
        num_examples=per_row * _NUM_ROWS,
        shared_folder="naturalbench",
    )


TASKS = (
    _in_question_form("", "whether a question about an image is answered", "accuracy", (1, 2), 4),
    _in_question_form("_questions", "whether a question about two images is answered", "own_texts", (2, 2), 2),
    _in_question_form("_images", "whether two questions about an image are answered", "all_answers", (1, 4), 2),
    _in_question_form("_groups", "whether two questions about two images are answered", "all_answers", (2, 4), 1),
    published_task(
        name="naturalbench_retrieval",
        description="NaturalBench-Retrieval: which of two captions belongs to which of two images.",
        metric="winoground",
        shape=(2, 2),
        skills=("compositional",),
        paper="Li et al. 2024",
        licence="Apache 2.0",
        url=_PAGE,
        read=read_retrieval,
        how_to_get=f"the folder {_RETRIEVAL}, unpacked from {_ARCHIVE} of {_HUB_ID} on the hub (Apache 2.0)",
        num_examples=None,
        downloads=(Download(_ARCHIVE, hub_id=_HUB_ID, filename=_ARCHIVE, unpack=True, note="Apache 2.0"),),
        shared_folder="naturalbench",
    ),
)

DATA_SETS = (
    DataSet(
        name="naturalbench",
        title="NaturalBench",
        description="questions about natural images",
        tasks=tuple(task for task in TASKS if task.asks_questions),
        downloads="",
        supplies="the hub's tables, BaiqiL/NaturalBench",
    ),
    DataSet(
        name="naturalbench_retrieval",
        title="NaturalBench-Retrieval",
        description="two images, two captions",
        tasks=tuple(task for task in TASKS if not task.asks_questions),
    ),
)
