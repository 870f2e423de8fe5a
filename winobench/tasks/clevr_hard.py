"""Ours: harder questions about rendered scenes of three to five objects (`winobench.clevr.questions`).

Eight groups, each with as many questions. ``clevr_hard`` asks which of a question's candidates is true of an image,
``clevr_hard_image`` of which of two images the true one is true, where the other image is one of another candidate.
``..._256`` show the same scenes in 256 pixels. Groups differ in their number of candidates, so that each has its own
chance, and the whole their mean. They run only by name: the embedded model has not learned them.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator

from winobench.tasks import clevr_common
from winobench.tasks.base import DataSet, Example, Task

_VERSION = 1
_ROUNDS_AT_ONCE = 8  # rendered by one call of the renderer

# As in `clevr_questions.GROUPS`, which is imported only when questions are asked. A test compares the two.
CANDIDATES = {
    "counting": 4,
    "binding": 6,
    "left_right": 2,
    "front_behind": 2,
    "relation_to_both": 3,
    "size": 2,
    "negation": 4,
    "quantifiers": 3,
}
"""Group -> its number of candidates."""

CHANCE = {
    "accuracy": sum(1 / number for number in CANDIDATES.values()) / len(CANDIDATES),
    **{f"{group}/accuracy": 1 / number for group, number in CANDIDATES.items()},
}
"""Chance of the side of texts: of all questions, and of each group."""


def hard_tasks(num_rounds: int = 250, *, seed: int = 0, image_size: int = 64) -> tuple[Task, Task]:
    """The side of texts and the side of images, of ``image_size`` pixels to each side.

    A round is a question of each group, each about its own scene. ``limit`` counts rounds, and more rounds
    begin with the same ones.
    """
    suffix = "" if image_size == 64 else f"_{image_size}"

    def rounds(limit: int | None) -> int:
        return num_rounds if limit is None else min(limit, num_rounds)

    def load(side: Callable, data_dir: str | None, limit: int | None) -> Iterator[Example]:
        return side(rounds(limit), seed, image_size)

    text = f"Which caption is true of 3 to 5 objects: counts, relations, negation; {image_size} pixels."
    image = f"Of which of two images of 3 to 5 objects a caption is true; {image_size} pixels."
    return clevr_common.two_sides(
        (f"clevr_hard{suffix}", text, (1, max(CANDIDATES.values())), CHANCE, _text_side),
        (f"clevr_hard_image{suffix}", image, (2, 1), {"accuracy": 1 / 2}, _image_side),
        load=load,
        version=_VERSION,
        when_named=True,
        skills=("compositional", "attribute_binding", "spatial", "counting"),
        data_fingerprint=lambda data_dir, limit: _fingerprint(rounds(limit), seed, image_size),
        count=lambda data_dir: num_rounds * len(CANDIDATES),
    )


def _text_side(num_rounds: int, seed: int, image_size: int) -> Iterator[Example]:
    for name, question, (image,) in _rendered(num_rounds, seed, image_size, ("scene",)):
        yield Example(name, (image,), question.texts, question.target, (question.group,))


def _image_side(num_rounds: int, seed: int, image_size: int) -> Iterator[Example]:
    for name, question, images in _rendered(num_rounds, seed, image_size, ("scene", "other_scene")):
        yield Example(name, images, (question.texts[question.target],), 0, (question.group,))


def _rendered(num_rounds: int, seed: int, image_size: int, shown: tuple[str, ...]) -> Iterator[tuple]:
    """The questions, with their names and the images of these of their scenes."""
    from winobench.clevr import questions as clevr_questions
    from winobench.clevr import renderer
    from winobench.clevr import scenes as clevr_scenes

    for first in range(0, num_rounds, _ROUNDS_AT_ONCE):
        numbers = range(first, min(first + _ROUNDS_AT_ONCE, num_rounds))
        questions = [
            (number, clevr_questions.question(group, number, seed=seed)) for number in numbers for group in CANDIDATES
        ]
        scenes = [getattr(question, scene) for _, question in questions for scene in shown]
        images = iter(renderer.render(clevr_scenes.concatenate(scenes), image_size))
        for number, question in questions:
            yield f"round-{number:06d}/{question.group}", question, tuple(itertools.islice(images, len(shown)))


def _fingerprint(num_rounds: int, seed: int, image_size: int) -> str:
    from winobench.clevr import questions as clevr_questions

    about = (_VERSION, clevr_questions.VERSION, clevr_common.RENDERING_VERSION, num_rounds, seed, image_size)
    return hashlib.sha256(repr(about).encode()).hexdigest()


TASKS = (*hard_tasks(), *hard_tasks(image_size=256))

DATA_SETS = (
    DataSet(
        name="clevr_hard",
        title="CLEVR, hard",
        description="counts, relations and negation",
        tasks=TASKS,
    ),
)
