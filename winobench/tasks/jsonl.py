"""Questions of the user's own: ``--tasks=jsonl:my_set.jsonl``, and ``jsonl:my_set.jsonl:METRIC``.

A line is a question: ``{"images": ["a.jpg"], "texts": ["a cat", "a dog"], "answer": 0}``. Images are files, relative to
the folder of the .jsonl file. The answer is the number of the right text of one image, or of the right image of one
text, from 0 on. Null where as many images as texts belong together in order. ``groups``, names of sub-tasks that the
question also counts for, and ``id`` may be left out. A file has one kind of answer, numbers or nulls.

A metric is a name in `winobench.metrics.METRICS`, or ``FILE.py:NAME``, a `winobench.metrics.Metric` in a Python file.
By default it is ``accuracy`` for numbers, and ``winoground`` for nulls.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from winobench import metrics
from winobench.base import files, json_files, near_names, options, registry
from winobench.base.errors import InputError
from winobench.data import images as image_files
from winobench.tasks.annotations import Entry
from winobench.tasks.base import Example, Task

FIELDS = ("images", "texts", "answer", "groups", "id")
_REMEDY = "correct the line"
# What other data sets call the fields.
_OTHER_NAMES = {"caption": "texts", "captions": "texts", "label": "answer", "target": "answer"}


def task_from_jsonl(path: str | os.PathLike[str], name: str | None = None, metric: str | None = None) -> Task:
    """A task of the questions in a file.

    Args:
      path: the .jsonl file. The module's first lines describe it.
      name: of the task. The file's name without its ending by default.
      metric: a name in `winobench.metrics.METRICS`, or ``FILE.py:NAME``, a metric in a Python file, which is executed.

    Raises:
      InputError: the file cannot be read, has no question, or a question cannot be asked. Names the line and the field.
        The metric is unknown.
    """
    file = pathlib.Path(files.user_path(path))
    examples = _read(file)
    (has_target,) = {example.target is not None for example in examples}
    judge = metrics.METRICS.named(metric or ("accuracy" if has_target else "winoground"))
    shape = (max(len(example.images) for example in examples), max(len(example.texts) for example in examples))
    shapes = [(len(example.images), len(example.texts)) for example in examples]
    with registry.foreign_code(f"chance() of metric {judge.name!r}"):
        chance = {outcome: judge.mean_chance(outcome, shapes) for outcome in judge.chance(shape)}
    # Another metric makes another run, which takes over the recorded errors.
    by = [] if metric is None else [metric.rpartition(":")[2], judge.name, *_digest_of(metric)]

    def fingerprint(data_dir: str | None, limit: int | None) -> str:
        del data_dir
        hashed = [(example, list(map(image_files.image_hash, example.images))) for example in examples[:limit]]
        rows = [[example.id, hashes, example.texts, example.target, example.groups] for example, hashes in hashed]
        return files.digest(rows + by)

    return Task(
        name=file.stem if name is None else name,
        version=1,
        description=f"Questions of {file.name}.",
        metric=judge.name,
        shape=shape,
        chance=chance,
        chance_by_question=True,
        load=lambda data_dir, limit: examples[:limit],
        ready=lambda data_dir: None,
        images_compete=shape[0] > 1,
        data_fingerprint=fingerprint,
        count=lambda data_dir: len(examples),
        when_named=True,
    )


def make(sources: Sequence[str]) -> list[Task]:
    """A task for each file."""
    from winobench.tasks import TASKS

    tasks: list[Task] = []
    for source in sources:
        path, metric = _parted(source)
        task = task_from_jsonl(path, metric=metric)
        if task.name in TASKS or task.name in {other.name for other in tasks}:
            raise InputError(
                f"{source} would make a task {task.name!r}, which there is already: rename the file",
                code="already-exists",
            )
        tasks.append(task)
    return tasks


def _parted(source: str) -> tuple[str, str | None]:
    """The file and the metric of ``FILE``, ``FILE:NAME`` or ``FILE:FILE.py:NAME``."""
    parts = re.fullmatch(r"(.+?):((?:[^:]+\.py:)?\w+)", source)
    if parts is None or os.path.exists(files.user_path(source)):
        return source, None
    return parts[1], parts[2]


def _digest_of(metric: str) -> list[str]:
    """A digest of the Python file of a metric, if it has one."""
    path, _, _ = metric.rpartition(":")
    return [hashlib.sha256(pathlib.Path(files.user_path(path)).read_bytes()).hexdigest()] if path else []


def _read(path: pathlib.Path) -> list[Example[pathlib.Path, str]]:
    examples: list[Example[pathlib.Path, str]] = []
    ids: set[str] = set()
    for number, value in json_files.read_lines(path, "correct it"):
        row = Entry(value, f"line {number} of {path}", _REMEDY)
        if isinstance(value, list):
            raise row.wrong("is an array, but a line is one question: write an object a line", "not-an-object")
        example = _example(row, path.parent, number)
        if example.id in ids:
            raise row["id"].wrong(f"is {options.quote(example.id)}, as in an earlier line", "repeated-id")
        if examples and (example.target is None) != (examples[0].target is None):
            raise row["answer"].wrong(
                "is a number in some lines and null in others, which are judged differently", "contradicting-options"
            )
        ids.add(example.id)
        examples.append(example)
    if not examples:
        raise InputError(f"{path} has no question: write one a line", code="no-examples")
    return examples


def _example(row: Entry, folder: pathlib.Path, number: int) -> Example[pathlib.Path, str]:
    for key, _ in row.items():
        if key not in FIELDS:
            meant = near_names.did_you_mean(_OTHER_NAMES.get(key, key), FIELDS, f"the fields are {', '.join(FIELDS)}")
            raise InputError(f"{row.where} has the unknown field {options.quote(key)}: {meant}", code="unknown-field")
    paths = tuple(_image(folder, entry) for entry in row["images"].rows())
    texts = row["texts"].texts()
    target = _answer(row, len(paths), len(texts))
    groups = row["groups"].texts() if "groups" in row else ()
    name = row["id"].text() if "id" in row else f"line-{number:06d}"
    return Example(name, paths, texts, target, groups)


def _image(folder: pathlib.Path, entry: Entry) -> pathlib.Path:
    path = folder / files.user_path(entry.text())
    if not path.is_file():
        raise entry.wrong(f"names the image {path}, which is not a file", "missing-images")
    return path


def _answer(row: Entry, num_images: int, num_texts: int) -> int | None:
    def misfit(problem: str) -> NoReturn:
        counts = ((num_images, "image"), (num_texts, "text"))
        given = " and ".join(f"{count} {noun}{'s' * (count != 1)}" for count, noun in counts)
        raise row["answer"].wrong(f"{problem}, but the question has {given}", "wrong-shape")

    if row["answer"].value is None:
        if num_images != num_texts or num_images < 2:
            misfit("is null, which needs as many images as texts, two at least")
        return None
    target = row["answer"].integer()
    if min(num_images, num_texts) != 1 or max(num_images, num_texts) < 2:
        misfit("is a number, which needs one image and several texts, or one text and several images")
    if not 0 <= target < max(num_images, num_texts):
        misfit(f"is {target}, counted from 0")
    return target


SOURCES: Mapping[str, Callable[[Sequence[str]], list[Task]]] = {"jsonl": make}
"""Word before the colon of ``--tasks`` -> what makes the tasks."""
