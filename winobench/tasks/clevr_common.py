"""The rendered evaluation scenes that the CLEVR tasks share, and what their tasks have in common."""

from __future__ import annotations

import functools
import hashlib
import pathlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from winobench.tasks.base import Task

if TYPE_CHECKING:
    from winobench.clevr.captions import Thing
    from winobench.clevr.scenes import Scenes

IMAGE_SIZE = 64  # what the embedded model was trained on. Other scorers resize to their own size
NUM_SCENES = 1000
# The split "evaluation" has another tree of random keys than "train": no training run can see these scenes.
SEED = 0
_MOST_KEPT = 400  # scenes: 5 MB of images
RENDERING_VERSION = 1  # raised whenever a scene, an image or a caption could change


def evaluation_scenes(limit: int | None) -> Scenes:
    """The first ``limit`` (None: 1,000) task scenes of the evaluation split. Fewer scenes are a prefix of more."""
    from winobench.clevr import scenes

    count = NUM_SCENES if limit is None else limit

    def sample() -> dict[str, np.ndarray]:
        return scenes.sample_task_scenes(count, seed=SEED, split="evaluation").arrays()

    return scenes.Scenes(**_kept(count, ["scenes", count], sample))


@functools.lru_cache(maxsize=4)
def evaluation_images(limit: int | None) -> np.ndarray:
    """Their images, as `images_of` gives them."""
    return images_of(evaluation_scenes(limit))


def images_of(scenes: Scenes) -> np.ndarray:
    """Images of scenes, uint8 [num_scenes, size, size, 3]. Read-only, as they are shared between tasks."""
    from winobench.clevr import renderer

    content = hashlib.sha256(b"".join(array.tobytes() for array in scenes.arrays().values())).hexdigest()
    made = _kept(len(scenes), ["images", IMAGE_SIZE, content], lambda: {"images": renderer.render(scenes, IMAGE_SIZE)})
    made["images"].setflags(write=False)
    return made["images"]


def _kept(count: int, about: list[Any], make: Callable[[], dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays of so many scenes. For few, an earlier start may have kept them: tracing the programs takes longer."""
    from winobench.base import caches, random_numbers
    from winobench.clevr import renderer
    from winobench.clevr import scenes as clevr_scenes

    if count > _MOST_KEPT:
        return make()
    sources = [pathlib.Path(str(module.__file__)).read_bytes() for module in (random_numbers, clevr_scenes, renderer)]
    return caches.kept_arrays([*about, SEED, hashlib.sha256(b"".join(sources)).hexdigest()], make)


def evaluation_things(limit: int | None) -> list[tuple[Thing, ...]]:
    """Their objects in words."""
    from winobench.clevr import captions

    return captions.describe(evaluation_scenes(limit))


def distractor_color(index: int, things: tuple[Thing, ...]) -> str:
    """A colour that scene ``index`` lacks, the same from run to run."""
    from winobench.clevr.scenes import COLORS

    absent = [color for color in COLORS if color not in {thing.color for thing in things}]
    return absent[np.random.default_rng((SEED, index)).integers(len(absent))]


def fingerprint(limit: int | None) -> str:
    """Changes whenever rendered examples could."""
    about = (RENDERING_VERSION, IMAGE_SIZE, SEED, NUM_SCENES if limit is None else limit)
    return hashlib.sha256(repr(about).encode()).hexdigest()


def two_sides(*sides: tuple, load: Callable, **fields: Any) -> tuple[Task, Task]:
    """A task for each of two (name, description, shape, chance, what ``load`` takes first)."""
    first, second = (
        Task(
            name=name,
            description=description,
            metric="accuracy",
            shape=shape,
            chance=chance,
            load=functools.partial(load, side),
            ready=lambda data_dir: None,
            images_compete=shape[0] > 1,
            **fields,
        )
        for name, description, shape, chance, side in sides
    )
    return first, second


def swap_task(name: str, description: str, load: Callable, **fields: Any) -> Task:
    """A task with an example for each scene and attribute that is swapped between its objects."""
    return Task(
        name=name,
        version=1,
        description=description,
        load=load,
        ready=lambda data_dir: None,
        images_compete=True,
        skills=("compositional", "attribute_binding"),
        data_fingerprint=lambda data_dir, limit: fingerprint(limit),
        count=lambda data_dir: 3 * NUM_SCENES,
        **fields,
    )
