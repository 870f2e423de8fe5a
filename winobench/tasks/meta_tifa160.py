"""TIFA160: does a scorer rank 800 images as people do by how well they fit their prompt? (Hu et al. 2023)

160 prompts, each drawn by five models. People say from 1 to 5 how well an image fits: five answers an image in
``meta_tifa160``, collected for DSG (Cho et al. 2024), which VQAScore's paper ranks by (Lin et al. 2024), and the two of
TIFA's authors in ``meta_tifa160_authors``. A rating is their mean. Groups are where prompts are from: coco, drawbench,
partiprompt, paintskill. Four images of DSG have fewer than five answers, which are taken as they are.
"""

from __future__ import annotations

import collections
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence

from winobench.base import options
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, read_json, read_table
from winobench.tasks.base import Download, PublishedData
from winobench.tasks.people import answer, rated_task

NUM_PROMPTS, NUM_MODELS = 160, 5
_RAW = "https://raw.githubusercontent.com"
_T2V = "https://github.com/linzhiqiu/t2v_metrics"
_T2V_RAW = f"{_RAW}/linzhiqiu/t2v_metrics/6ecb74f92028f42c7e64546d3a71e98c8c73068f/datasets"
_TIFA = "https://github.com/Yushi-Hu/tifa"
_TIFA_RAW = f"{_RAW}/Yushi-Hu/tifa/8e37050f44ab4ee681e4251f3c8a9d4cc86e901e/human_annotations"
_IMAGES = (
    f"the folder tifa160 with the 800 pictures, of the archive on Google Drive that human_annotations/README.md of"
    f" {_TIFA} links"
)
_MODELS = {
    "mini-dalle": "mini_dalle",
    "sd1dot1": "stable_diffusion_v1_1",
    "sd1dot5": "stable_diffusion_v1_5",
    "sd2dot1": "stable_diffusion_v2_1",
    "vq-diffusion": "vq_diffusion",
}
"""DSG's name of a model -> that in the names of images."""


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Prompts with DSG's answers.

    Args:
      folder: holds ``tifa160.json`` {image: {"text_id", "image_path", "text"}}, ``dsg_tifa160_anns.csv``, a row an
        answer, with ``model_type``, ``source_id`` and ``answer``, and the folder ``tifa160``.

    Raises:
      InputError: a file is missing or malformed, an answer is of no image, or an image has none.
    """
    pictures = _pictures(folder / "tifa160.json")
    columns = ("model_type", "source_id", "answer")
    answers: dict[str, list[int]] = collections.defaultdict(list)
    for row in read_table(folder / "dsg_tifa160_anns.csv", columns, delimiter=",").rows():
        model = row["model_type"].text()
        if model not in _MODELS:
            raise row["model_type"].wrong(f"is {options.shown(model)}, none of {', '.join(_MODELS)}", "unknown-name")
        name = f"{row['source_id'].text()}_{_MODELS[model]}"
        if name not in pictures:
            raise row.wrong(f"is of {options.shown(name)}, which tifa160.json does not have", "unknown-name")
        answers[name].append(answer(row["answer"], 1, 5))
    yield from _items(folder, pictures, answers)


def read_authors(folder: pathlib.Path) -> Iterator[Item]:
    """Prompts with the answers of TIFA's authors.

    Args:
      folder: holds ``human_annotations.json`` {image: {"text_id", "image_path", "text", "human_scores"}}, and the
        folder ``tifa160``.

    Raises:
      InputError: the file is missing or malformed, or an image has no answer.
    """
    pictures = _pictures(folder / "human_annotations.json")
    answers = {name: [answer(one, 1, 5) for one in row["human_scores"].rows()] for name, row in pictures.items()}
    yield from _items(folder, pictures, answers)


def _pictures(path: pathlib.Path) -> dict[str, Entry]:
    """The rows of a file, which name their prompt."""
    pictures = dict(read_json(path).items())
    for row in pictures.values():
        row["text_id"].text()
    return pictures


def _items(folder: pathlib.Path, pictures: Mapping[str, Entry], answers: Mapping[str, Sequence[int]]) -> Iterator[Item]:
    prompts: dict[str, list[str]] = {}
    for name, row in pictures.items():
        if not answers.get(name):
            raise row.wrong("has no answer by people", "missing-answer")
        prompts.setdefault(row["text_id"].text(), []).append(name)
    for prompt, names in prompts.items():
        (text, *_) = texts = [pictures[name]["text"].text() for name in names]
        if other := next((name for name, one in zip(names, texts, strict=True) if one != text), None):
            raise pictures[other]["text"].wrong(f"is not that of {names[0]}, of the same prompt", "contradicting-rows")
        images = tuple(ImageFile(folder / "tifa160" / pictures[name]["image_path"].text()) for name in names)
        ratings = tuple(float(statistics.mean(answers[name])) for name in names)
        yield Item(prompt, images, (text,), None, (prompt.partition("_")[0],), ratings)


TASKS = (
    rated_task(
        name="meta_tifa160",
        description="TIFA160: does the scorer rank pictures as people do, by DSG's five answers a picture.",
        metric="rank_agreement",
        most_pictures=NUM_MODELS,
        source=PublishedData(
            read=read,
            how_to_get=f"tifa160.json and dsg_tifa160_anns.csv (from datasets of {_T2V}) and {_IMAGES}",
            num_examples=NUM_PROMPTS,
            downloads=(
                Download(
                    "tifa160.json",
                    f"{_T2V_RAW}/tifa160.json",
                    sha256="29cb6aafc3d64fbe0b0b709a596d3741d146c1db5273660f132843b5a55b8814",
                    note="Apache 2.0",
                ),
                Download(
                    "dsg_tifa160_anns.csv",
                    f"{_T2V_RAW}/dsg_tifa160_anns.csv",
                    sha256="4a5318392952fa11e3f4db9918172e4c92bef1693e2d4339aab9744800dd38a1",
                    note="Apache 2.0",
                ),
            ),
            shared_folder="tifa160",
        ),
    ),
    rated_task(
        name="meta_tifa160_authors",
        description="TIFA160: does the scorer rank pictures as people do, by the two answers of TIFA's authors.",
        metric="rank_agreement",
        most_pictures=NUM_MODELS,
        source=PublishedData(
            read=read_authors,
            how_to_get=f"human_annotations.json (from human_annotations of {_TIFA}) and {_IMAGES}",
            num_examples=NUM_PROMPTS,
            downloads=(
                Download(
                    "human_annotations.json",
                    f"{_TIFA_RAW}/human_annotations.json",
                    sha256="1e41c66e78b7f1e74e8a5e86251f813498def7dd8bc3019c24ae8d56c57b349f",
                    note="Apache 2.0",
                ),
            ),
            shared_folder="tifa160",
        ),
    ),
)
