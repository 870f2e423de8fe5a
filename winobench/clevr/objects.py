"""The objects of CLEVR-like scenes one by one: what a verifier finds in an image, and what truly is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from winobench.clevr import scenes as clevr_scenes
from winobench.clevr.scenes import COLORS, MATERIALS, SHAPES, SIZES, Scenes

ATTRIBUTES = {"shape": SHAPES, "color": COLORS, "size": SIZES, "material": MATERIALS}
"""Attribute of an object -> its values, in the order of their numbers."""

TOLERANCE = 0.05  # how far from the truth a found centre may be, in widths of the image: 3.2 of 64 pixels


class SceneObject(NamedTuple):
    """One object in an image."""

    shape: str
    color: str
    size: str
    material: str
    right: float  # of its centre across the image, from 0 (left border) to 1
    down: float  # the same from the upper border
    radius: float  # half the width of its box, in widths of the image
    depth: float  # of its place on the ground in world units, greater is farther; 0 is the camera's target
    confidence: float = 1.0  # from 0 to 1


def of_scenes(scenes: Scenes) -> list[list[SceneObject]]:
    """The true objects of each scene, in the order of the scene's arrays."""
    values = measures(scenes).tolist()
    attributes = np.stack([getattr(scenes, name) for name in ATTRIBUTES], axis=-1).tolist()
    return [
        [
            SceneObject(*(names[at] for names, at in zip(ATTRIBUTES.values(), attributes[n][i], strict=True)), *row)
            for i, row in enumerate(values[n][:number])
        ]
        for n, number in enumerate(np.asarray(scenes.num_objects).tolist())
    ]


def measures(scenes: Scenes) -> np.ndarray:
    """Right, down, radius and depth of every object, as in `SceneObject`: float64 [num_scenes, max_objects, 4]."""
    boxes = clevr_scenes.project_boxes(scenes)
    radius = (boxes[..., 2:3] - boxes[..., 0:1]) / 2
    depth = np.asarray(scenes.position, np.float64)[..., 1:2]
    return np.concatenate([clevr_scenes.project_centers(scenes), radius, depth], axis=-1)


def match(
    seen: Sequence[SceneObject], truth: Sequence[SceneObject], *, tolerance: float = TOLERANCE
) -> list[tuple[int, int]]:
    """Pairs of seen and true objects by their places: (index in ``seen``, index in ``truth``), by the first.

    As many pairs as possible within the tolerance, and of these choices the one with the smallest sum of distances.
    """
    from scipy.optimize import linear_sum_assignment

    if not seen or not truth:
        return []
    seen_at, true_at = (np.asarray([(o.right, o.down) for o in objects], np.float64) for objects in (seen, truth))
    distance = np.linalg.norm(seen_at[:, None] - true_at[None], axis=-1)
    # A pair beyond the tolerance costs more than all allowed ones together, so no allowed pair is given up for it.
    forbidden = (1.0 + min(distance.shape)) * tolerance
    rows, columns = linear_sum_assignment(np.where(distance <= tolerance, distance, forbidden))
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if distance[r, c] <= tolerance]
