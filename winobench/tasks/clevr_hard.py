"""Ours: harder questions about rendered scenes of three to five objects (`winobench.clevr.questions`).

Eight groups, each with as many questions: counting, binding among three, two relations, a relation to two objects,
sizes, negation and quantifiers. ``clevr_hard`` asks which of a question's candidates is true of an image,
``clevr_hard_image`` of which of two images the true one is true. The other image is one of another candidate, from
the same draws. ``clevr_hard_256`` and ``clevr_hard_image_256`` show the same scenes in 256 pixels, for models that
were not made for small images.

Groups differ in their number of candidates, so that each has its own chance. That of the whole is their mean. They are
asked when they are named: the embedded model, on which every installation is tried, knows nothing of them.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator

from winobench.tasks.base import Example, Task

NUM_ROUNDS = 250
SEED = 0

_VERSION = 1
_ROUNDS_AT_ONCE = 8  # drawn by one call of the renderer

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


def hard_tasks(num_rounds: int = NUM_ROUNDS, *, seed: int = SEED, image_size: int = 64) -> tuple[Task, Task]:
    """The side of texts and the side of images.

    A round is a question of each group, each about its own scene; ``limit`` counts rounds, and fewer rounds are
    the first ones of more.

    Args:
      image_size: height and width of the images in pixels. Other sizes than 64 are in the tasks' names.
    """
    suffix = "" if image_size == 64 else f"_{image_size}"

    def rounds(limit: int | None) -> int:
        return num_rounds if limit is None else min(limit, num_rounds)

    def load(side: Callable, data_dir: str | None, limit: int | None) -> Iterator[Example]:
        return side(rounds(limit), seed, image_size)

    fields = dict(
        version=_VERSION,
        metric="accuracy",
        when_named=True,
        skills=("compositional", "attribute_binding", "spatial", "counting"),
        ready=lambda data_dir: None,
        data_fingerprint=lambda data_dir, limit: _fingerprint(rounds(limit), seed, image_size),
        count=lambda data_dir: num_rounds * len(CANDIDATES),
    )
    return (
        Task(
            name=f"clevr_hard{suffix}",
            description=f"Which caption is true of 3 to 5 objects: counts, relations, negation; {image_size} pixels.",
            shape=(1, max(CANDIDATES.values())),
            chance=CHANCE,
            images_compete=False,
            load=functools.partial(load, _text_side),
            **fields,
        ),
        Task(
            name=f"clevr_hard_image{suffix}",
            description=f"Of which of two images of 3 to 5 objects a caption is true; {image_size} pixels.",
            shape=(2, 1),
            chance={"accuracy": 1 / 2},
            images_compete=True,
            load=functools.partial(load, _image_side),
            **fields,
        ),
    )


def _text_side(num_rounds: int, seed: int, image_size: int) -> Iterator[Example]:
    from winobench.clevr import questions as clevr_questions
    from winobench.clevr import renderer
    from winobench.clevr import scenes as clevr_scenes

    for first, questions in _questions(num_rounds, seed):
        scenes = clevr_scenes.concatenate([question.scene for question in questions])
        for index, picture in enumerate(renderer.render(scenes, image_size)):
            question: clevr_questions.Question = questions[index]
            yield Example(_id(first, index, question), (picture,), question.texts, question.target, (question.group,))


def _image_side(num_rounds: int, seed: int, image_size: int) -> Iterator[Example]:
    from winobench.clevr import renderer
    from winobench.clevr import scenes as clevr_scenes

    for first, questions in _questions(num_rounds, seed):
        scenes = clevr_scenes.concatenate([scene for q in questions for scene in (q.scene, q.other_scene)])
        pictures = renderer.render(scenes, image_size)
        for index, question in enumerate(questions):
            pair = (pictures[2 * index], pictures[2 * index + 1])
            yield Example(_id(first, index, question), pair, (question.texts[question.target],), 0, (question.group,))


def _questions(num_rounds: int, seed: int):
    """The questions of some rounds at a time, with the number of the first of these rounds."""
    from winobench.clevr import questions as clevr_questions

    for first in range(0, num_rounds, _ROUNDS_AT_ONCE):
        numbers = range(first, min(first + _ROUNDS_AT_ONCE, num_rounds))
        yield first, [clevr_questions.question(group, n, seed=seed) for n in numbers for group in CANDIDATES]


def _id(first: int, index: int, question) -> str:
    return f"round-{first + index // len(CANDIDATES):06d}/{question.group}"


def _fingerprint(num_rounds: int, seed: int, image_size: int) -> str:
    from winobench.clevr import questions as clevr_questions
    from winobench.tasks.clevr_common import RENDERING_VERSION

    about = (_VERSION, clevr_questions.VERSION, RENDERING_VERSION, num_rounds, seed, image_size)
    return hashlib.sha256(repr(about).encode()).hexdigest()


TASKS = (*hard_tasks(), *hard_tasks(image_size=256))
