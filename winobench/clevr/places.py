"""Places for the objects of a question's scene: all over the image, in frame, and not in each other's way.

Places are sampled as if every object were a large sphere with the space of a large cube, so they do not reveal the
objects that will stand on them.
"""

from __future__ import annotations

import math
import random
from typing import NamedTuple

from winobench.clevr import scenes

NEAREST, FARTHEST = -2.8, 3.8  # the range of depths in world units; 0 is the camera's target
SIDE_MARGIN = 0.25
"""How far two centres are apart to be left and right of each other, in halves of the image: 8 of 64 pixels."""

DEPTH_MARGIN = 1.6
"""How far two centres are apart to be in front of and behind each other, in world units: about 7 pixels of 64."""

_ROOM = 0.85  # of the distance at which the boxes of two large objects would no longer overlap in the image
_CANDIDATES = 48  # places tried before a layout is begun again
_SINE, _COSINE = math.sin(scenes.CAMERA_ELEVATION), math.cos(scenes.CAMERA_ELEVATION)


class Place(NamedTuple):
    """A free place: `across` is the centre's in the image, from -1 (left) to 1; `x` and `y` are world units."""

    across: float
    x: float
    y: float


def large_radius(number: int) -> float:
    """The radius of a scene's large objects in world units. Many objects are smaller than few."""
    return scenes.LARGE_RADIUS * min(0.66, 1.25 / math.sqrt(number))


def draw(rng: random.Random, number: int) -> list[Place]:
    """Places for ``number`` objects, in the order in which they were found: no place is special."""
    radius = large_radius(number)
    ground = (2.0 * scenes.WIDEST * radius) ** 2
    while True:
        places: list[_Spot] = []
        for _ in range(_CANDIDATES):
            spot = _spot(rng.random(), rng.random(), radius)
            if spot is not None and all(_apart(spot, other, ground) for other in places):
                places.append(spot)
                if len(places) == number:
                    return [Place(*spot[:3]) for spot in places]


# Across, x, y, and in the image the height of the centre, half the width and half the height: a plain tuple, as
# thousands are tried a second.
_Spot = tuple[float, float, float, float, float, float]


def _spot(across: float, depth: float, radius: float) -> _Spot | None:
    """A place from two numbers in [0, 1); None where an object would not be in the frame."""
    y = NEAREST + (FARTHEST - NEAREST) * depth
    view = scenes.view_scale(y, radius)
    height = radius * (_COSINE + scenes.WIDEST * _SINE) / view
    up = (y * _SINE + (radius - scenes.CAMERA_TARGET_HEIGHT) * _COSINE) / view
    if abs(up) + height > 1.0 - scenes.EDGE:
        return None
    width = scenes.WIDEST * radius / view
    at = (2.0 * across - 1.0) * (1.0 - scenes.EDGE - width)
    return at, at * view, y, up, width, height


def _apart(first: _Spot, other: _Spot, ground: float) -> bool:
    across, x, y, up, width, height = first
    across2, x2, y2, up2, width2, height2 = other
    if abs(across - across2) < _ROOM * (width + width2) and abs(up - up2) < _ROOM * (height + height2):
        return False
    return (x - x2) ** 2 + (y - y2) ** 2 >= ground
