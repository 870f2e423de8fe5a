"""SugarCrepe++: are two true captions both nearer to a photograph than a wrong one?

With the photograph, an example is right where both true captions score higher than the wrong one (the paper's ITT). The
photographs are COCO's of val2017. Without it (TOT), a question is right where the two true captions are more similar to
each other than either of them is to the wrong one.
"""

from __future__ import annotations

import functools
import hashlib
import json
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from winobench.contrib.datasets.sugarcrepe import COCO_FOLDER, COCO_IMAGES, photograph
from winobench.data.example import Item
from winobench.data.prepared import data_folder
from winobench.data.sources import Download
from winobench.metrics.intervals import clustered
from winobench.runs.requests import ANSWERED, FAILED, UNPARSABLE, Response, Similarity
from winobench.tasks.annotations import read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task
from winobench.tasks.questions import Answer, Protocol, TextQuestion, TextTask
from winobench.tasks.votes import counted, entry, is_right

_REPOSITORY = "https://github.com/Sri-Harsha/scpp"
_RAW = "https://raw.githubusercontent.com/Sri-Harsha/scpp/main/data"
_ABOUT = {"paper": "Dumpala et al. 2024", "licence": "MIT", "url": _REPOSITORY}
_FOLDER = "sugarcrepe_pp"

SETS = {
    "replace_att": (788, "an attribute is replaced"),
    "replace_obj": (1652, "an object is replaced"),
    "replace_rel": (1406, "a relation is replaced"),
    "swap_att": (666, "two attributes are swapped"),
    "swap_obj": (245, "two objects are swapped"),
}
"""Set -> number of rows, and the fault of the wrong caption."""


def read(folder: pathlib.Path, name: str) -> Iterator[Item]:
    """A photograph, its two true captions and the wrong one, which stands last."""
    seen: set[int] = set()
    for row in read_json(folder / _FOLDER / f"{name}.json").rows():
        number = row["id"].integer()
        seen.add(row["id"].unique(number, seen))
        texts = tuple(row[key].text() for key in ("caption", "caption2", "negative_caption"))
        yield Item(str(number), (photograph(folder, row),), texts)


TASKS = tuple(
    published_task(
        name=f"sugarcrepe_pp_{name}",
        description=f"SugarCrepe++: whether both true captions are nearer than a wrong one, in which {wrong}.",
        metric="all_true",
        shape=(1, 3),
        skills=("compositional",),
        **_ABOUT,
        read=functools.partial(read, name=name),
        how_to_get=(
            f"{_FOLDER}/{name}.json (from data of {_REPOSITORY}) and the folder val2017, unpacked from"
            f" {COCO_IMAGES.url}"
        ),
        num_examples=count,
        downloads=(Download(f"{_FOLDER}/{name}.json", f"{_RAW}/{name}.json", note="MIT licence"), COCO_IMAGES),
        shared_folder=COCO_FOLDER,
    )
    for name, (count, wrong) in SETS.items()
)


def _requests(question: TextQuestion) -> tuple[Similarity, Similarity]:
    """Each true caption with the other one, and with the wrong one."""
    caption, (other, wrong) = question.texts["caption"], question.options
    return Similarity(caption, (other, wrong)), Similarity(other, (caption, wrong))


def _read(_: TextQuestion, responses: Sequence[Response | None]) -> Answer:
    """The other true caption, if no similarity to the wrong one is as high. A tie is wrong."""
    if None in responses:
        return Answer(FAILED)
    if any(response.scores is None for response in responses):
        return Answer(UNPARSABLE)
    true = min(response.scores[0] for response in responses)
    wrong = max(response.scores[1] for response in responses)
    return Answer(ANSWERED, int(wrong > true), scores=(true, wrong), tie=true == wrong)


PROTOCOLS = {
    "similarity": Protocol(
        "similarity",
        "whether the true captions are more similar to each other than to the wrong one (section 4, TOT)",
        *(Similarity.kind, _requests, _read),
    )
}

CHANCE = {"accuracy": 1 / 3}  # each of three similarities is as likely as any other to be the highest


def metrics(questions: Sequence[TextQuestion], answers: Sequence[Answer]) -> dict[str, dict[str, Any]]:
    """The accuracy, with a 95% interval. Questions whose call failed count nowhere."""
    judged = counted(questions, answers)
    if not judged:
        return {}
    right, ties = [is_right(*judgement) for judgement in judged], sum(answer.tie for _, answer in judged)
    interval = clustered(right, [question.id for question, _ in judged])
    return {"accuracy": entry(interval, CHANCE["accuracy"], len(judged), ties)}


def _text_task(name: str) -> TextTask:
    file = f"{name}.json"

    def path(data_dir: str | None) -> pathlib.Path:
        """The published file: where the user puts it, or where ``winobench prepare`` has downloaded it."""
        given = data_folder(data_dir) / _FOLDER / file
        downloaded = data_folder(data_dir) / "sources" / COCO_FOLDER / _FOLDER / file
        return downloaded if downloaded.is_file() and not given.is_file() else given

    def rows(data_dir: str | None) -> list[Item]:
        return list(read(path(data_dir).parent.parent, name))

    def questions(data_dir: str | None, limit: int | None) -> list[TextQuestion]:
        """``limit`` takes the same ones from run to run, in an order that has nothing to do with the file's."""
        items = sorted(rows(data_dir), key=lambda item: hashlib.sha256(item.id.encode()).digest())
        return [TextQuestion(item.id, {"caption": item.texts[0]}, item.texts[1:], 0) for item in items[slice(0, limit)]]

    def load(data_dir: str | None, limit: int | None = None) -> list[TextQuestion]:
        if (count := len(rows(data_dir))) != SETS[name][0]:
            warnings.warn(
                f"{path(data_dir)} has {count:,} rows and the published file {SETS[name][0]:,}: numbers over others"
                " cannot be compared with the paper's",
                stacklevel=2,
            )
        return questions(data_dir, limit)

    def ready(data_dir: str | None) -> str | None:
        file_path = path(data_dir)
        if file_path.is_file():
            return None
        return f"get data/{file} of {_REPOSITORY} (MIT licence) and put it at {file_path}"

    def fingerprint(data_dir: str | None, limit: int | None) -> str:
        content = [(question.id, dict(question.texts), question.options) for question in questions(data_dir, limit)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def count(data_dir: str | None) -> int | None:
        return None if ready(data_dir) else len(rows(data_dir))

    about = f"SugarCrepe++, texts alone: whether two true captions are more alike than a wrong one: {SETS[name][1]}."
    task = f"sugarcrepe_pp_tot_{name}"
    return TextTask(task, 1, about, PROTOCOLS, CHANCE, load, ready, fingerprint, metrics, count, **_ABOUT)


TEXT_TASKS = tuple(map(_text_task, SETS))

DATA_SETS = (
    DataSet(
        name="sugarcrepe_pp",
        title="SugarCrepe++",
        description="two true captions, a wrong one",
        tasks=TASKS,
        licence="MIT, photographs: Flickr's terms",
        size="0.8 GB",
    ),
    DataSet(
        name="sugarcrepe_pp_tot",
        title="SugarCrepe++, texts alone",
        description="two true captions, a wrong one",
        tasks=TEXT_TASKS,
        downloads="",
        supplies="files of its folder data",
        size="2 MB",
    ),
)
