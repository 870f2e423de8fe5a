"""CLEVR-like scenes as arrays: what stands where, before anything is rendered.

A scene has up to ten objects on a plane, seen by one fixed camera. An object has a shape, a colour, a size and a
material, as in CLEVR (Johnson et al. 2017, section 3.1), a place on the plane and a rotation about the vertical.

*Task* scenes are for the questions of GDBench's CLEVR task (Krojer et al. 2023): exactly two objects, which differ in
colour, shape and size, one clearly in each half of the image. *Free* scenes are for training: attributes are
independent. A scene is a function of (split, seed, index) alone, which are folded into its random key. Splits never
share a key, and a large set begins with the scenes of a small one.

World units: the camera looks at the origin from `CAMERA_DISTANCE`. X points right, y away from the camera, z up.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import random_numbers

SHAPES = ("cube", "sphere", "cylinder")
COLORS = ("gray", "red", "blue", "green", "brown", "purple", "cyan", "yellow")
SIZES = ("small", "large")
MATERIALS = ("rubber", "metal")
SPLITS = ("train", "evaluation", "validation")
MAX_OBJECTS = 10

CAMERA_DISTANCE = 12.0
CAMERA_ELEVATION = math.radians(24.0)
CAMERA_TARGET_HEIGHT = 0.95
HALF_VIEW_TANGENT = 0.25  # tangent of half the field of view, the same in both directions: images are square
LARGE_RADIUS = 1.33  # of a large object in a scene of two: 29 of 64 pixels wide at the target's distance
SMALL_TO_LARGE = 0.55
CUBE_HALF_SIDE = 0.74  # of the radius: a cube is then about as wide as a sphere, with any rotation below
CUBE_ROTATION = (math.radians(20.0), math.radians(70.0))  # two faces always show: never mistaken for a cylinder
_PAIR_DEPTH = 0.5  # half the depth range of two objects
_CROWD_DEPTH = (-3.0, 5.0)  # depth range of more than two, which need the space
_CROWD_ROOM = 0.85  # of the distance at which the boxes of a crowd's objects would no longer overlap in the image
WIDEST = 1.07  # half-width over radius of the widest object: a cube with an edge to the camera, with perspective
EDGE = 0.04  # free border in units of half the image's width; 1.3 pixels of 64
_GAP = 0.06  # free space between two objects that are clearly left and right
_HALF_MARGIN = 0.14  # how far a centre is from the middle before its object is "on the left" or "on the right"
_CANDIDATES = 96  # places tried for an object of a crowd
_SCENE_DRAWS = 11  # random numbers of a scene: five for its objects, six for the places of a pair
_OBJECT_DRAWS = 5  # of an object, besides its candidate places
_CHUNK = 256  # scenes sampled by one call of the compiled function


@dataclasses.dataclass(frozen=True)
class Scenes:
    """A batch of scenes. A JAX pytree of NumPy or JAX arrays.

    Objects beyond `num_objects` are padding: ignore them. Attributes are int32 [num_scenes, max_objects].
    """

    shape: np.ndarray  # index into SHAPES, and so on
    color: np.ndarray
    size: np.ndarray
    material: np.ndarray
    position: np.ndarray  # float32 [num_scenes, max_objects, 2], the ground point (x, y) below the centre
    rotation: np.ndarray  # float32 [num_scenes, max_objects], radians about the vertical. Visible on cubes only
    scale: np.ndarray  # float32 [num_scenes], radius of large objects: crowded scenes have smaller ones
    num_objects: np.ndarray  # int32 [num_scenes]

    def __len__(self) -> int:
        return self.shape.shape[0]

    def __getitem__(self, index: slice | np.ndarray | Sequence[int] | int) -> Scenes:
        """Some of the scenes. An integer gives a batch of one."""
        if isinstance(index, int | np.integer):
            index = np.asarray([index])
        return Scenes(**{name: array[index] for name, array in self.arrays().items()})

    def arrays(self) -> dict[str, np.ndarray]:
        """The fields by name; ``Scenes(**arrays)`` is the way back."""
        return {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}


jax.tree_util.register_dataclass(Scenes, [field.name for field in dataclasses.fields(Scenes)], [])


def concatenate(batches: Sequence[Scenes]) -> Scenes:
    return Scenes(**{name: np.concatenate([b.arrays()[name] for b in batches]) for name in batches[0].arrays()})


def sample_task_scenes(count: int, *, seed: int = 0, split: str = "evaluation", start: int = 0) -> Scenes:
    """Generates scenes of two objects that differ in colour, shape and size, clearly left and right."""
    return _sample(count, seed, split, start, 2, 2, 1.0, 1.0)


def sample_free_scenes(
    count: int,
    *,
    seed: int = 0,
    split: str = "train",
    start: int = 0,
    min_objects: int = 2,
    max_objects: int = 2,
    clear: float = 0.9,
    distinct: float = 0.0,
) -> Scenes:
    """Generates scenes whose objects have independent attributes.

    ``clear`` is the probability that two objects stand clearly left and right, ``distinct`` that the first two objects
    differ in colour, shape and size, as in a task scene.
    """
    if not 1 <= min_objects <= max_objects <= MAX_OBJECTS:
        raise ValueError(f"need 1 <= min_objects <= max_objects <= {MAX_OBJECTS}, got {min_objects} and {max_objects}")
    if not (0.0 <= clear <= 1.0 and 0.0 <= distinct <= 1.0):
        raise ValueError(f"clear and distinct are probabilities, got {clear} and {distinct}")
    return _sample(count, seed, split, start, min_objects, max_objects, clear, distinct)


def swap(scenes: Scenes, attribute: str) -> Scenes:
    """The scenes with one attribute, color, shape or size, exchanged between the two objects of each.

    For "size" each object also takes the mirror image of the other's place: the outline of the scene is then the mirror
    image of the original's, so that it fits the frame just as well.
    """
    if not (scenes.shape.shape[1] == 2 and np.all(np.asarray(scenes.num_objects) == 2)):
        raise ValueError("only scenes of two objects can be swapped")
    if attribute not in ("color", "shape", "size"):
        raise ValueError(f"attribute must be color, shape or size, got {attribute!r}")
    changes = {attribute: getattr(scenes, attribute)[:, ::-1]}
    if attribute == "size":
        changes["position"] = scenes.position[:, ::-1] * np.asarray([-1.0, 1.0], np.float32)
    return dataclasses.replace(scenes, **changes)


def radii(scenes: Scenes) -> jax.Array | np.ndarray:
    """World radius of every object, float32 [num_scenes, max_objects]: half the height, except for cubes."""
    return scenes.scale[:, None] * (SMALL_TO_LARGE + (1.0 - SMALL_TO_LARGE) * (scenes.size == 1))


def half_heights(scenes: Scenes) -> jax.Array | np.ndarray:
    """Half the height of every object, float32 [num_scenes, max_objects]: also the height of its centre."""
    return radii(scenes) * (1.0 - (1.0 - CUBE_HALF_SIDE) * (scenes.shape == 0))


def camera_position() -> tuple[float, float, float]:
    back, up = math.cos(CAMERA_ELEVATION) * CAMERA_DISTANCE, math.sin(CAMERA_ELEVATION) * CAMERA_DISTANCE
    return 0.0, -back, up + CAMERA_TARGET_HEIGHT


def project(points: np.ndarray) -> np.ndarray:
    """World points [..., 3] to image points [..., 2]: (right, down) in [0, 1] within the frame."""
    points = np.asarray(points, np.float64)
    sine, cosine = math.sin(CAMERA_ELEVATION), math.cos(CAMERA_ELEVATION)
    x, y, z = points[..., 0], points[..., 1], points[..., 2] - CAMERA_TARGET_HEIGHT
    scale = 0.5 / (HALF_VIEW_TANGENT * (CAMERA_DISTANCE + y * cosine - z * sine))
    return np.stack([0.5 + x * scale, 0.5 - (y * sine + z * cosine) * scale], axis=-1)


def project_centers(scenes: Scenes) -> np.ndarray:
    """Image points of the objects' centres, float64 [num_scenes, max_objects, 2]: (right, down) in [0, 1]."""
    return project(np.concatenate([scenes.position, half_heights(scenes)[..., None]], axis=-1))


def project_boxes(scenes: Scenes) -> np.ndarray:
    """Bounding boxes of the objects in the image, each as if it stood alone: float64 [num_scenes, max_objects, 4].

    Left, top, right, bottom; 0 and 1 are the frame's borders.
    """
    radius, half = np.asarray(radii(scenes), np.float64), np.asarray(half_heights(scenes), np.float64)
    center = np.concatenate([scenes.position, half[..., None]], axis=-1).astype(np.float64)
    angle = np.linspace(0.0, 2.0 * math.pi, 64, endpoint=False)
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
    corner = scenes.rotation[..., None] + math.pi / 4 + np.arange(64) % 4 * (math.pi / 2)
    square = math.sqrt(2.0) * CUBE_HALF_SIDE * np.stack([np.cos(corner), np.sin(corner)], axis=-1)
    rim = np.where((scenes.shape == 0)[..., None, None], square, circle) * radius[..., None, None]
    rims = [np.concatenate([rim, np.full((*rim.shape[:-1], 1), s) * half[..., None, None]], axis=-1) for s in (-1, 1)]
    solid = project(center[..., None, :] + np.concatenate(rims, axis=-2))
    # A sphere is outlined by a circle around the line of sight, a little nearer and smaller than its great circle.
    sight = center - np.asarray(camera_position())
    distance = np.linalg.norm(sight, axis=-1, keepdims=True)
    sight = sight / distance
    side = np.cross(sight, [0.0, 0.0, 1.0])
    side /= np.linalg.norm(side, axis=-1, keepdims=True)
    above = np.cross(side, sight)
    sine = radius[..., None] / distance
    outline = (np.sqrt(1.0 - sine**2) * radius[..., None])[..., None] * (
        circle[:, :1] * side[..., None, :] + circle[:, 1:] * above[..., None, :]
    )
    sphere = project((center - sine * radius[..., None] * sight)[..., None, :] + outline)
    sphere = np.concatenate([sphere, sphere], axis=-2)
    points = np.where((scenes.shape == 1)[..., None, None], sphere, solid)
    return np.concatenate([points.min(axis=-2), points.max(axis=-2)], axis=-1)


def sides(scenes: Scenes) -> np.ndarray:
    """Which half of the image a centre is clearly in: int32 [num_scenes, max_objects], -1 left, 1 right, else 0."""
    offset = 2.0 * project_centers(scenes)[..., 0] - 1.0
    # The tolerance keeps objects that were placed exactly at the margin on their side after rounding.
    side = np.sign(offset).astype(np.int32) * (np.abs(offset) >= _HALF_MARGIN - 1e-4)
    return np.where(np.arange(side.shape[1]) < np.asarray(scenes.num_objects)[:, None], side, 0)


def _sample(count, seed, split, start, min_objects, max_objects, clear, distinct) -> Scenes:
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, got {split!r}")
    if count < 0 or start < 0 or seed < 0:
        raise ValueError(f"count, start and seed must not be negative, got {count}, {start} and {seed}")
    batches = []
    probabilities = np.float32(clear), np.float32(distinct)
    for first in range(start, start + count, _CHUNK):
        indices = np.arange(first, first + _CHUNK, dtype=np.uint32)
        batch = _sample_chunk(np.uint32(seed), indices, *probabilities, SPLITS.index(split), min_objects, max_objects)
        batches.append(jax.tree.map(np.asarray, batch)[: start + count - first])
    if not batches:
        return _sample(1, seed, split, start, min_objects, max_objects, clear, distinct)[:0]
    return concatenate(batches)


@functools.partial(jax.jit, static_argnames=("split", "min_objects", "max_objects"))
def _sample_chunk(seed, indices, clear, distinct, split, min_objects, max_objects) -> Scenes:
    key = jax.random.fold_in(jax.random.fold_in(random_numbers.seed_key(0), split), seed)

    def one(index):
        return _sample_one(jax.random.fold_in(key, index), clear, distinct, min_objects, max_objects)

    return jax.vmap(one)(indices)


def _sample_one(key, clear, distinct, min_objects, max_objects) -> Scenes:
    # One sample for everything: each call of the generator takes a third of a second to compile.
    draws = random_numbers.uniform(key, (_SCENE_DRAWS + max_objects * (_OBJECT_DRAWS + 2 * _CANDIDATES),))
    scene = draws[:_SCENE_DRAWS]
    of_object = draws[_SCENE_DRAWS:].reshape(max_objects, -1)

    def choose(draw, count):
        return jnp.floor(draw * count).astype(jnp.int32)

    number = min_objects + choose(scene[0], max_objects - min_objects + 1)
    shape = choose(of_object[:, 0], len(SHAPES))
    color = choose(of_object[:, 1], len(COLORS))
    size = choose(of_object[:, 2], len(SIZES))
    material = choose(of_object[:, 3], len(MATERIALS))
    rotation: Any = CUBE_ROTATION[0] + (CUBE_ROTATION[1] - CUBE_ROTATION[0]) * of_object[:, 4]
    scale: Any = LARGE_RADIUS * jnp.where(number <= 2, 1.0, 0.95 * jnp.sqrt(2.0 / number))
    if max_objects >= 2:
        # A shift by 1 ... n - 1 makes the second object's attribute uniform over the values the first does not have.
        differ = scene[1] < distinct
        other_shape = (shape[0] + 1 + choose(scene[2], len(SHAPES) - 1)) % len(SHAPES)
        other_color = (color[0] + 1 + choose(scene[3], len(COLORS) - 1)) % len(COLORS)
        shape = shape.at[1].set(jnp.where(differ, other_shape, shape[1]))
        color = color.at[1].set(jnp.where(differ, other_color, color[1]))
        size = size.at[1].set(jnp.where(differ, 1 - size[0], size[1]))
    radius = scale * jnp.where(size == 1, 1.0, SMALL_TO_LARGE)
    half = radius * jnp.where(shape == 0, CUBE_HALF_SIDE, 1.0)
    position = _place_crowd(of_object[:, _OBJECT_DRAWS:].reshape(max_objects, _CANDIDATES, 2), radius, half, number)
    if max_objects >= 2:
        pair = _place_pair(scene[5:], radius[:2], half[:2])
        use_pair = (number == 2) & (scene[4] < clear)
        position = position.at[:2].set(jnp.where(use_pair, pair, position[:2]))
    return Scenes(
        shape=shape,
        color=color,
        size=size,
        material=material,
        position=position.astype(jnp.float32),
        rotation=rotation,
        scale=scale.astype(jnp.float32),
        num_objects=number,
    )


def view_scale(y, half):
    """World length that spans half the image's width at the depth of centres at `y` and height `half`."""
    sine, cosine = math.sin(CAMERA_ELEVATION), math.cos(CAMERA_ELEVATION)
    return HALF_VIEW_TANGENT * (CAMERA_DISTANCE + y * cosine - (half - CAMERA_TARGET_HEIGHT) * sine)


def _place_pair(draws, radius, half):
    """Places two objects left and right [2, 2] by six random numbers. Widths are in units of half the image's width."""
    y = (2.0 * draws[:2] - 1.0) * _PAIR_DEPTH
    view = view_scale(y, half)
    width = WIDEST * radius / view
    # The first is placed anywhere on its side that leaves space for the second, then the second. One coin says which
    # object is the first, another which side it takes, so that neither side nor object is favoured.
    first = (draws[2] < 0.5).astype(jnp.int32)
    second = 1 - first
    need = width[0] + width[1] + _GAP
    farthest = 1.0 - EDGE - width
    first_low = jnp.clip(need - farthest[second], _HALF_MARGIN, farthest[first])
    first_at = first_low + draws[3] * (farthest[first] - first_low)
    second_low = jnp.clip(need - first_at, _HALF_MARGIN, farthest[second])
    second_at = second_low + draws[4] * (farthest[second] - second_low)
    offset = jnp.zeros(2).at[first].set(first_at).at[second].set(-second_at)
    offset = offset * jnp.where(draws[5] < 0.5, 1.0, -1.0)
    return jnp.stack([offset * view, y], axis=-1)


def _place_crowd(draws, radius, half, number):
    """Places any number of objects [max_objects, 2], in frame and apart on the plane and in the image.

    Each takes the first free one of its candidates (random numbers [max_objects, candidates, 2]), or the freest.
    """
    sine, cosine = math.sin(CAMERA_ELEVATION), math.cos(CAMERA_ELEVATION)
    nearest = jnp.where(number <= 2, -_PAIR_DEPTH, _CROWD_DEPTH[0])
    farthest = jnp.where(number <= 2, _PAIR_DEPTH, _CROWD_DEPTH[1])
    y = nearest + (farthest - nearest) * draws[..., 1]
    view = view_scale(y, half[:, None])
    # Half the width and height in the image, and the centre there; 1 is half the image.
    width = WIDEST * radius[:, None] / view
    height = (half * cosine + WIDEST * radius * sine)[:, None] / view
    across = (2.0 * draws[..., 0] - 1.0) * (1.0 - EDGE - width)
    up = (y * sine + (half[:, None] - CAMERA_TARGET_HEIGHT) * cosine) / view
    candidates = jnp.stack([across * view, y], axis=-1)
    border = 1.0 - EDGE - height - jnp.abs(up)

    def place(i, chosen):
        places, image, extent = chosen
        here = jnp.stack([across[i], up[i]], axis=-1)
        reach = jnp.stack([width[i], height[i]], axis=-1)
        apart = jnp.abs(here[:, None] - image[None]) / (reach[:, None] + extent[None])
        distance = jnp.linalg.norm(candidates[i][:, None] - places[None], axis=-1) / (radius[i] + radius)
        room = jnp.minimum(apart.max(axis=-1) / _CROWD_ROOM, distance / WIDEST)
        room = jnp.where(jnp.arange(radius.shape[0]) < i, room, jnp.inf).min(axis=-1)
        room = jnp.where(border[i] >= 0.0, room, border[i])
        free = room >= 1.0
        best = jnp.where(free.any(), jnp.argmax(free), jnp.argmax(room))
        return places.at[i].set(candidates[i, best]), image.at[i].set(here[best]), extent.at[i].set(reach[best])

    start = (jnp.zeros((radius.shape[0], 2)),) * 3
    return jax.lax.fori_loop(0, radius.shape[0], place, start)[0]
