"""The plan of a run: the unique images, texts and pairs behind the examples of all chosen tasks.

Before: `winobench.evaluation.evaluate` has chosen the tasks. After: `winobench.evaluation.runner` hands the pairs in
batches to a scorer. A diffusion model's error of a batch is computed in `winobench.scorers.denoising`.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from winobench.base.errors import InputError
from winobench.base.texts import EMPTY_TEXT, text_hash
from winobench.data import images as image_files
from winobench.data.images import GRAY_IMAGE
from winobench.evaluation import contracts
from winobench.metrics import normalization
from winobench.tasks.base import Example, ImageSource, Task

Question = Example[int, int]
"""An example whose images and texts are their indices in the plan's tables."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Every image, text and pair once, any number of tasks and examples needs it."""

    images: list[ImageSource]  # in the order in which the tasks name them
    image_hashes: list[str]  # SHA-256 of each image's content and size
    texts: list[str]
    text_hashes: list[str]  # SHA-256
    pairs: np.ndarray  # [num_pairs, 2] int32, (image, text), in the order of scoring
    questions: Mapping[str, list[Question]]  # task -> its examples
    terms: Mapping[str, tuple[normalization.Term, ...]]  # task -> what its scores are made of

    def rows_of(self, images: np.ndarray, texts: np.ndarray) -> np.ndarray:
        """The rows of ``pairs`` of images [n, images, 1] and texts [n, 1, texts], int64 [n, images, texts]."""
        keys, order = self._sorted
        wanted = images * len(self.texts) + texts
        positions = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        if not np.array_equal(keys[positions], wanted):
            raise KeyError("a pair that is not in the plan")
        return order[positions]

    @functools.cached_property
    def _sorted(self) -> tuple[np.ndarray, np.ndarray]:
        """A number of each pair, in ascending order, and the pairs' rows in this order."""
        keys = self.pairs[:, 0].astype(np.int64) * len(self.texts) + self.pairs[:, 1]
        order = np.argsort(keys)
        return keys[order], order


def make_plan(
    tasks: Sequence[Task],
    *,
    data_dir: str | None,
    limit: int | None,
    normalize: str,
    failed: dict[str, InputError] | None = None,
) -> Plan:
    """Loads the tasks' examples and collects the images, texts and pairs of them. Equal images are one.

    Pairs are ordered by image and, within an image, as the tasks name them, so that work on an image can be shared.
    """
    if not tasks:
        raise InputError("no task is chosen: name at least one, or list them with --list_tasks.", code="nothing-named")

    hash_of_file: dict[str, str] = {}
    needs = _Needs()
    questions: dict[str, list[Question]] = {}
    terms: dict[str, tuple[normalization.Term, ...]] = {}
    for task in tasks:
        if task.name in questions:
            raise InputError(f"task {task.name!r} is named twice.", code="named-twice")
        # A whole task is read before any of it enters the tables: a task that fails leaves nothing behind.
        try:
            examples = _read(task, data_dir, limit, hash_of_file)
        except InputError as error:
            if failed is None:
                raise
            failed[task.name] = error
            continue
        # Bias compares differences between texts of one image, and these between images: subtracted terms cancel.
        terms[task.name] = normalization.terms_of(
            normalize, images_compete=task.images_compete and task.association is None, texts_compete=task.texts_compete
        )
        questions[task.name] = needs.add(examples, terms[task.name])

    texts = list(needs.text_numbers)
    return Plan(
        images=needs.images,
        image_hashes=list(needs.image_numbers),
        texts=texts,
        text_hashes=[text_hash(text) for text in texts],
        pairs=needs.pairs(),
        questions=questions,
        terms=terms,
    )


class _Needs:
    """The images, texts and pairs that tasks need, numbered in the order in which they are met."""

    def __init__(self) -> None:
        self.images: list[ImageSource] = []
        self.image_numbers: dict[str, int] = {}  # by content hash
        self.text_numbers: dict[str, int] = {}
        self._wanted = array.array("i")  # image, text, image, text, ... with repetitions

    def add(
        self, examples: collections.deque[tuple[Example, list[str]]], terms: Sequence[normalization.Term]
    ) -> list[Question]:
        """Takes in a task's examples, each with its images' content hashes. They are let go one by one."""
        rows = []
        while examples:
            example, contents = examples.popleft()
            images = tuple(self._image(*image) for image in zip(example.images, contents, strict=True))
            texts = tuple(self._text(text) for text in example.texts)
            rows.append(Example(example.id, images, texts, example.target, example.groups, example.ratings))
            for image in images:
                for term in terms:
                    if not term.of_gray_image:
                        needed = [self._text(EMPTY_TEXT)] if term.of_empty_text else texts
                        self._want(image, needed)
        for term in terms:
            if term.of_gray_image:
                gray = self._image(GRAY_IMAGE, image_files.image_hash(GRAY_IMAGE))
                for question in rows:
                    self._want(gray, question.texts)
        return rows

    def pairs(self) -> np.ndarray:
        """int32 [num_pairs, 2], ordered by image."""
        pairs = np.array(self._wanted, np.int32).reshape(-1, 2)
        keys = pairs[:, 0].astype(np.int64) * len(self.text_numbers) + pairs[:, 1]
        first = np.sort(np.unique(keys, return_index=True)[1])
        return pairs[first[np.argsort(pairs[first, 0], kind="stable")]]

    def _want(self, image: int, texts: Iterable[int]) -> None:
        for text in texts:
            self._wanted.extend((image, text))

    def _image(self, source: ImageSource, content: str) -> int:
        if content not in self.image_numbers:
            self.image_numbers[content] = len(self.images)
            self.images.append(source)
        return self.image_numbers[content]

    def _text(self, text: str) -> int:
        return self.text_numbers.setdefault(text, len(self.text_numbers))


def _read(
    task: Task, data_dir: str | None, limit: int | None, hash_of_file: dict[str, str]
) -> collections.deque[tuple[Example, list[str]]]:
    """A task's examples, checked, each with the content hashes of its images."""

    def content_hash(source: ImageSource) -> str:
        # An array or an image may be changed in place. A path's content is taken to stay while it is planned.
        if not isinstance(source, str | os.PathLike):
            return image_files.image_hash(source)
        if str(source) not in hash_of_file:
            hash_of_file[str(source)] = image_files.image_hash(source)
        return hash_of_file[str(source)]

    examples: collections.deque[tuple[Example, list[str]]] = collections.deque()
    seen = set()
    for example in contracts.load(task, data_dir, limit):
        contracts.check_example(task, example)
        if example.id in seen:
            raise InputError(f"task {task.name!r} has two examples with the id {example.id!r}.", code="repeated-id")
        seen.add(example.id)
        examples.append((example, [content_hash(source) for source in example.images]))
    if not examples:
        raise InputError(f"task {task.name!r} has no examples: check its data and --limit.", code="no-examples")
    return examples
