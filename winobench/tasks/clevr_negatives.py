"""A training set with hard negatives that is rendered by us, so that fine-tuning needs no download.

Each scene gives the questions of GDBench's CLEVR task (`winobench.clevr.captions.items`) as rows: a true caption is the
row's, the false one its negative, and its negative images are the scene with changes that make it false. ``color``,
``shape`` and ``size``: the two objects have exchanged this attribute (`clevr_scenes.swap`). ``place``: the scene is
mirrored. ``recolored``: both have colours that the scene lacks. ``reshaped``: both have the shape that it lacks.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections.abc import Sequence

import numpy as np

from winobench.clevr import captions, renderer
from winobench.clevr import scenes as clevr_scenes
from winobench.clevr.scenes import COLORS, SHAPES, Scenes
from winobench.data.hard_negatives import Row

VERSION = 1  # raised whenever a row or a pixel could change
VARIANTS = ("scene", "color", "shape", "size", "place", "recolored", "reshaped")
"""The images of a scene, in their order: itself and its changes."""

FALSIFIERS = {
    "recognition_color": ("recolored",),
    "recognition_shape": ("reshaped",),
    "binding_color_shape": ("color", "shape"),
    "binding_shape_color": ("color", "shape"),
    "pair_binding_color": ("color", "shape"),
    "pair_binding_size": ("size", "shape"),
    "spatial": ("place", "color", "shape"),
}
"""Sub-task -> the changes that make its captions false with the least change. A mirrored scene says the same in every
other form. For sizes, the places are mirrored as well, so that each object stays on its side."""

_CACHED_CHUNKS = 4


@dataclasses.dataclass(frozen=True)
class ClevrNegatives:
    """Rows about rendered scenes, as `winobench.data.hard_negatives.Source` describes them.

    Image number n is ``VARIANTS[n % 7]`` of scene ``n // 7``. A scene depends on (split, seed, its number) alone.
    """

    num_scenes: int  # at least 2. Each has 14 rows and 7 images
    seed: int = 0
    split: str = "train"
    image_size: int = 64  # height and width in pixels

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(repr((VERSION, dataclasses.astuple(self))).encode()).hexdigest()

    @functools.cached_property
    def rows(self) -> list[Row]:
        """The records, 14 a scene, grouped by sub-task in `captions.SUBTASKS`' order."""
        rows = []
        for scene, things in enumerate(captions.describe(self.scenes)):
            first = scene * len(VARIANTS)
            items = captions.items(things, COLORS[self._absent_colors[scene, 0]])
            for sub_task, pairs in items.items():
                images = tuple(first + VARIANTS.index(variant) for variant in FALSIFIERS[sub_task])
                rows += [Row(first, true, (false,), images) for true, false in pairs]
        return rows

    @property
    def groups(self) -> list[str]:
        """The sub-task of each row."""
        return [sub_task for sub_task in captions.SUBTASKS for _ in range(2)] * self.num_scenes

    @functools.cached_property
    def images(self) -> Sequence[np.ndarray]:
        """The images, uint8 [image_size, image_size, 3], rendered when they are requested, best in their order."""
        return _Images(self)

    def verify(self) -> None:
        """Nothing is stored that could be damaged."""

    @functools.cached_property
    def scenes(self) -> Scenes:
        """The scenes without changes."""
        return clevr_scenes.sample_task_scenes(self.num_scenes, seed=self.seed, split=self.split)

    def variant(self, name: str, part: slice) -> Scenes:
        """Some of the scenes with a change."""
        scenes = self.scenes[part]
        if name == "scene":
            return scenes
        if name == "place":
            return dataclasses.replace(scenes, position=scenes.position * np.asarray([-1.0, 1.0], np.float32))
        if name == "recolored":
            return dataclasses.replace(scenes, color=self._absent_colors[part])
        if name == "reshaped":
            # The three shapes are numbered 0, 1, 2, and the scene has two of them.
            absent = sum(range(len(SHAPES))) - scenes.shape.sum(axis=1, keepdims=True, dtype=np.int32)
            return dataclasses.replace(scenes, shape=np.repeat(absent, 2, axis=1))
        return clevr_scenes.swap(scenes, name)

    @functools.cached_property
    def _absent_colors(self) -> np.ndarray:
        """Two colours that each scene lacks, int32 [num_scenes, 2]."""
        drawn = []
        for scene, present in enumerate(self.scenes.color.tolist()):
            absent = [color for color in range(len(COLORS)) if color not in present]
            generator = np.random.default_rng((self.seed, clevr_scenes.SPLITS.index(self.split), scene))
            drawn.append(generator.permutation(absent)[:2])
        return np.asarray(drawn, np.int32)


class _Images(Sequence):
    """The images of a set by number. Those of a few chunks of scenes are kept, for readers in order."""

    def __init__(self, source: ClevrNegatives):
        self._source = source
        self._scenes_a_chunk = renderer.chunk_size(source.image_size)
        self._lock = threading.Lock()
        self._chunk = functools.lru_cache(_CACHED_CHUNKS)(self._render)

    def __len__(self) -> int:
        return self._source.num_scenes * len(VARIANTS)

    def __getitem__(self, number: int) -> np.ndarray:  # type: ignore[override]  # no reader takes slices
        if not 0 <= number < len(self):
            raise IndexError(number)
        scene, variant = divmod(number, len(VARIANTS))
        chunk, index = divmod(scene, self._scenes_a_chunk)
        # Otherwise every thread that needs a chunk would render it.
        with self._lock:
            return self._chunk(chunk)[index, variant]

    def _render(self, chunk: int) -> np.ndarray:
        """uint8 [scenes, variants, size, size, 3]."""
        part = slice(chunk * self._scenes_a_chunk, (chunk + 1) * self._scenes_a_chunk)
        size = self._source.image_size
        images = [renderer.render(self._source.variant(name, part), size) for name in VARIANTS]
        stacked = np.stack(images, axis=1)
        stacked.setflags(write=False)
        return stacked
