"""The objects of CLEVR-like scenes one by one: what a verifier finds in an image, and what truly is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from winobench.clevr import renderer
from winobench.clevr import scenes as clevr_scenes
from winobench.clevr.scenes import COLORS, MATERIALS, SHAPES, SIZES, Scenes

ATTRIBUTES = {"shape": SHAPES, "color": COLORS, "size": SIZES, "material": MATERIALS}
"""Attribute of an object -> its values, in the order of their numbers."""

TOLERANCE = 0.05
"""How far from the truth a found centre may be, in widths of the image: 3.2 of 64 pixels."""


class SceneObject(NamedTuple):
    """One object in an image.

    Attributes:
      shape: of `clevr_scenes.SHAPES`.
      color: of ``COLORS``.
      size: of ``SIZES``.
      material: of ``MATERIALS``.
      right: where its centre is across the image, from 0 (left border) to 1.
      down: the same from the upper border.
      radius: half the width of its box, in widths of the image.
      depth: of its place on the ground in world units, greater is farther away; 0 is the camera's target.
      confidence: from 0 to 1; 1 for what is known.
    """

    shape: str
    color: str
    size: str
    material: str
    right: float
    down: float
    radius: float
    depth: float
    confidence: float = 1.0


def of_scenes(scenes: Scenes) -> list[list[SceneObject]]:
    """The true objects of each scene, in the order of the scene's arrays."""
    places = measures(scenes).tolist()
    attributes = np.stack([getattr(scenes, name) for name in ATTRIBUTES], axis=-1).tolist()
    return [
        [
            SceneObject(*(names[at] for names, at in zip(ATTRIBUTES.values(), attributes[n][i], strict=True)), *place)
            for i, place in enumerate(places[n][:number])
        ]
        for n, number in enumerate(np.asarray(scenes.num_objects).tolist())
    ]


def measures(scenes: Scenes) -> np.ndarray:
    """Right, down, radius and depth of every object, as in `SceneObject`: float64 [num_scenes, max_objects, 4]."""
    boxes = clevr_scenes.project_boxes(scenes)
    radius = (boxes[..., 2:3] - boxes[..., 0:1]) / 2
    depth = np.asarray(scenes.position, np.float64)[..., 1:2]
    return np.concatenate([clevr_scenes.project_centers(scenes), radius, depth], axis=-1)


def visible_fractions(scenes: Scenes, size: int = 64) -> np.ndarray:
    """How much of each object nothing is in front of: its pixels over those that it would have alone.

    Args:
      scenes: a batch of scenes.
      size: height and width in pixels of the images in which pixels are counted.

    Returns:
      float64 [num_scenes, max_objects]; NaN where there is no object, or one without its own pixel.
    """
    slots = scenes.shape.shape[1]
    together = renderer.object_masks(scenes, size)
    shares = []
    for slot in range(slots):
        own = {
            name: array[:, slot : slot + 1]
            for name, array in scenes.arrays().items()
            if name not in ("scale", "num_objects")
        }
        here = (np.asarray(scenes.num_objects) > slot).astype(np.int32)
        alone = renderer.object_masks(dataclasses.replace(scenes, **own, num_objects=here), size)
        seen, whole = ((mask == at).sum(axis=(1, 2)) for mask, at in ((together, slot), (alone, 0)))
        shares.append(np.where(whole > 0, seen / np.maximum(whole, 1), np.nan))
    return np.stack(shares, axis=-1)


def match(
    found: Sequence[SceneObject], truth: Sequence[SceneObject], *, tolerance: float = TOLERANCE
) -> list[tuple[int, int]]:
    """Pairs found objects with true ones by their places alone.

    As many pairs as possible within the tolerance, and of these choices the one with the smallest sum of distances
    (an assignment problem, solved exactly).

    Args:
      found: objects of one image.
      truth: objects of the same image.
      tolerance: greatest distance of two centres, in widths of the image.

    Returns:
      pairs (index in ``found``, index in ``truth``), by the index in ``found``.
    """
    from scipy.optimize import linear_sum_assignment

    if not found or not truth:
        return []
    here, there = (np.asarray([(o.right, o.down) for o in objects], np.float64) for objects in (found, truth))
    distance = np.linalg.norm(here[:, None] - there[None], axis=-1)
    # A pair beyond the tolerance costs more than all allowed ones together, so no allowed pair is given up for it.
    forbidden = (1.0 + min(distance.shape)) * tolerance
    rows, columns = linear_sum_assignment(np.where(distance <= tolerance, distance, forbidden))
    return [(int(r), int(c)) for r, c in zip(rows, columns, strict=True) if distance[r, c] <= tolerance]
