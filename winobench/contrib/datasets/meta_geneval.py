"""GenEval's study with people: does a scorer find the images that fit their prompt?

100 of GenEval's prompts, each with four images by Stable Diffusion 2, by IF-XL, and found with CLIP (the groups): 1,200
images with five answers each. A rating is the share of people who gave 4 of 4, "fully captures the meaning of the
caption". People say yes where most do. Four answers of the published IF-XL file are cut in two by a line break that is
not quoted. They are put together again.
"""

from __future__ import annotations

import itertools
import pathlib
import re
from collections.abc import Iterator

from winobench.base import options
from winobench.contrib.datasets.people import answer
from winobench.data.example import ImageFile, Item
from winobench.data.sources import Download
from winobench.tasks.annotations import Entry, read_table
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

SETS = {
    "sdv2": "973f029073f9b7f2ee7b3bbbff6a473db92486af94beebae1eb2bd2d01a5a6a7",
    "if-xl": "107cfe75e232374609c28278e734dfa0c88daed3fc5cea21d34631075a0f7a32",
    "clip": "84c5f364945543d15f5407ca1c2542cfaa571550dbf4922eff1399e7f91b7ce1",
}
"""Where images are from -> SHA-256 of their annotation file."""

PROMPTS = (
    *(0, 14, 20, 23, 33, 35, 38, 48, 53, 61, 69, 70, 74, 81, 87, 89, 90, 94, 103, 108, 116, 129, 141, 144, 148, 149),
    *(151, 156, 159, 166, 171, 181, 182, 187, 195, 202, 208, 211, 218, 220, 228, 232, 238, 240, 241, 250, 251, 252),
    *(260, 262, 267, 273, 283, 286, 295, 307, 311, 316, 317, 320, 327, 328, 335, 343, 345, 349, 352, 362, 371, 379),
    *(382, 388, 389, 390, 406, 410, 412, 416, 417, 421, 422, 424, 431, 433, 437, 446, 451, 456, 465, 469, 477, 480),
    *(483, 494, 497, 501, 502, 516, 532, 542),
)
"""Numbers of the prompts among GenEval's 553, from 0 on."""

NUM_IMAGES = 4  # of a prompt and a place
NUM_ANSWERS = 5  # of an image
FULLY = 4  # the answer that an image fully captures the meaning of its caption

_REPOSITORY = "https://github.com/djghosh13/geneval"
_RAW = "https://raw.githubusercontent.com/djghosh13/geneval/af4902f24d3ca90ebbb446dd9891a59e0f82725f/annotations"
_IMAGES = "https://huggingface.co/datasets/djghosh/aigen-images/resolve/main/images"
_QUALITY = "Answer.task-quality"
_COLUMNS = ("Input.index", "Input.prompt_id", "Input.image_id", "Input.caption", "Answer.task-objects", _QUALITY)
_INDEX = re.compile(r"[0-9]+_[0-9]+")


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Prompts with the share of people who find that an image fully captures it."""
    for name in SETS:
        prompts: dict[str, str] = {}
        answers: dict[str, dict[str, list[int]]] = {}
        table = read_table(folder / f"annotations_{name}.csv", _COLUMNS, delimiter=",")
        for row, quality in _answers(table):
            number, image_id = (f"{answer(row[key], 0, 99_999):05d}" for key in ("Input.prompt_id", "Input.image_id"))
            caption = row["Input.caption"].text()
            if prompts.setdefault(number, caption) != caption:
                problem = f"is {options.quote(caption)}, and {options.quote(prompts[number])} in an earlier row"
                raise row["Input.caption"].wrong(problem, "contradicting-rows")
            answers.setdefault(number, {}).setdefault(image_id, []).append(quality)
        for number in sorted(prompts):
            answers_of_images = sorted(answers[number].items())
            for image_id, given in answers_of_images:
                if len(given) != NUM_ANSWERS:
                    what = f"has {len(given)} answers to image {image_id} of prompt {number}, not {NUM_ANSWERS}"
                    raise table.wrong(what, "wrong-number-of-entries")
            samples = folder / "images" / name / number / "samples"
            images = tuple(ImageFile(samples / f"{image_id}.png") for image_id, _ in answers_of_images)
            shares = tuple(sum(quality == FULLY for quality in given) / len(given) for _, given in answers_of_images)
            yield Item(f"{name}/{number}", images, (prompts[number],), None, (name,), shares)


def _answers(table: Entry) -> Iterator[tuple[Entry, int]]:
    """The rows, each with how well people say the image fits, also of rows that are cut in two."""
    rows = list(table.rows())
    is_cut = False
    for row, following in itertools.zip_longest(rows, rows[1:]):
        if not _INDEX.fullmatch(row["Input.index"].value or ""):
            if not is_cut:  # else it is the second part of the row before
                raise row["Input.index"].wrong("is not a prompt and image such as 328_1", "wrong-value")
            is_cut = False
            continue
        quality = row[_QUALITY]
        is_cut = quality.value is None
        if is_cut:
            if following is None or _INDEX.fullmatch(following["Input.index"].value or ""):
                raise row.wrong("breaks off before its answers", "incomplete-row")
            # The line breaks within the list of objects, whose rest begins the next one.
            columns = list(row.value)
            quality = following[columns[columns.index(_QUALITY) - columns.index("Answer.task-objects")]]
        yield row, answer(quality, 1, FULLY)


def _downloads() -> Iterator[Download]:
    for name, digest in SETS.items():
        file = f"annotations_{name}.csv"
        yield Download(file, f"{_RAW}/{file}", sha256=digest, note="MIT licence")
        for prompt in PROMPTS:
            for image in range(NUM_IMAGES):
                path = f"{name}/{prompt:05d}/samples/{image:05d}.png"
                yield Download(f"images/{path}", f"{_IMAGES}/{path}")


TASKS = (
    published_task(
        name="meta_geneval",
        description="GenEval's study with people: whether the scorer tells images that fit their prompt from others.",
        metric="yes_no_agreement",
        shape=(NUM_IMAGES, 1),
        skills=("people",),
        prompt_of=lambda id: id.partition("/")[2],  # its number, without the source of the images
        paper="Ghosh et al. 2023",
        licence="MIT",
        url=_REPOSITORY,
        read=read,
        how_to_get=(
            f"annotations_sdv2.csv, annotations_if-xl.csv and annotations_clip.csv (from annotations of"
            f" {_REPOSITORY}) and the images that they name as images/sdv2/00000/samples/00000.png (their page,"
            " https://huggingface.co/datasets/djghosh/aigen-images, has the licence)"
        ),
        num_examples=len(SETS) * len(PROMPTS),
        downloads=tuple(_downloads()),
    ),
)

DATA_SETS = (
    DataSet(
        name="meta_geneval",
        title="GenEval, people",
        description="people's verdicts on images",
        tasks=TASKS,
        licence="MIT, images: on their page",
    ),
)
