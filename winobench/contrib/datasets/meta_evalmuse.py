"""EvalMuse-40K: does a scorer rank generated images as people do, wholly and element by element?

Prompts of DiffusionDB and synthetic ones (the groups of ``meta_evalmuse``), each with images of several models. Three
people or more say from 1 to 5 how well an image fits its prompt, and whether it shows each element of the prompt.
Ratings are means. The published annotations are of the training part. ``meta_evalmuse_elements`` asks for each element
of a prompt by its words. Its groups are the kinds of elements.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable, Iterator

from winobench.contrib.datasets.people import mean_answer
from winobench.data.example import ImageFile, Item
from winobench.tasks.annotations import Entry, read_json
from winobench.tasks.base import DataSet
from winobench.tasks.published import published_task

_HUB = "https://huggingface.co/datasets/DY-Evalab/EvalMuse"
_ELEMENT = re.compile(r"(.*\S)\s*\(([^()]*\S)\s*\)\s*", re.DOTALL)  # its words and its kind, as "a lady (human)"


def read(folder: pathlib.Path) -> Iterator[Item]:
    """Prompts with people's mean ratings of their images."""
    for prompt, rows in _prompts(folder).items():
        ratings = tuple(mean_answer(row["total_score"], 1, 5) for row in rows)
        kind = rows[0]["type"].text().lower()
        yield Item(rows[0]["prompt_id"].text(), _images(folder, rows), (prompt,), None, (kind,), ratings)


def read_elements(folder: pathlib.Path) -> Iterator[Item]:
    """Elements of prompts with the shares of people who see them in the images of the prompt."""
    for rows in _prompts(folder).values():
        elements: dict[str, list[tuple[Entry, Entry]]] = {}
        for row in rows:
            for name, answers in row["element_score"].items():
                elements.setdefault(name, []).append((row, answers))
        for name, given in elements.items():
            match = _ELEMENT.fullmatch(name)
            if match is None:
                raise given[0][1].wrong("is not an element that ends with its kind in brackets", "wrong-value")
            shares = tuple(mean_answer(answers, 0, 1) for _, answers in given)
            images, id = _images(folder, [row for row, _ in given]), f"{rows[0]['prompt_id'].text()}/{name}"
            yield Item(id, images, (match[1],), None, (match[2].lower().replace("/", "_"),), shares)


def _prompts(folder: pathlib.Path) -> dict[str, list[Entry]]:
    """The text of each prompt and the rows of its images."""
    prompts: dict[str, list[Entry]] = {}
    numbers: dict[str, str] = {}
    seen: set[str] = set()
    for row in read_json(folder / "train_list.json").rows():
        path, number, prompt = row["img_path"], row["prompt_id"], row["prompt"].text()
        seen.add(path.unique(path.text(), seen))
        if numbers.setdefault(number.text(), prompt) != prompt:
            raise row["prompt"].wrong(
                f"differs from an earlier row with prompt_id {number.value}", "contradicting-rows"
            )
        prompts.setdefault(prompt, []).append(row)
    return prompts


def _images(folder: pathlib.Path, rows: list[Entry]) -> tuple[ImageFile, ...]:
    return tuple(ImageFile(folder / "images" / row["img_path"].text()) for row in rows)


def _task(name: str, description: str, metric: str, read: Callable, prompt_of: Callable[[str], str] = str):
    return published_task(
        name=name,
        description=f"EvalMuse-40K: {description}",
        metric=metric,
        shape=(10, 1),
        skills=("people",),
        prompt_of=prompt_of,
        paper="Han et al. 2024",
        licence="BSD 3-Clause",
        url=_HUB,
        read=read,
        how_to_get=(
            f"train_list.json and the folder images, unpacked from images.zip, which its parts make together:"
            f" `cat images.zip.part-* > images.zip` (from {_HUB}, BSD-3-Clause)"
        ),
        num_examples=None,
    )


TASKS = (
    _task(
        *("meta_evalmuse", "whether the scorer ranks images as people do.", "correlation_agreement"),
        read,
    ),
    _task(
        *(
            "meta_evalmuse_elements",
            "whether the scorer sees the elements of a prompt that people see.",
            "element_agreement",
        ),
        *(read_elements, lambda id: id.partition("/")[0]),
    ),
)

DATA_SETS = (
    DataSet(
        name="meta_evalmuse",
        title="EvalMuse-40K",
        description="people's ranks of images",
        tasks=TASKS,
        downloads="",
        supplies="the hub's files, DY-Evalab/EvalMuse",
        size="54 GB",
    ),
)
