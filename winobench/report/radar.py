"""Several results of several runs as a radar chart."""

from __future__ import annotations

import dataclasses
import itertools
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from winobench.report.figures import EM_HIGH, GRID, MUTED, NO_MARGINS, POINTS_AN_INCH, Mark, Panel, text_width
from winobench.runs.labels import shortened

_MAX_LETTERS = 36


def radar_labels(labels: Sequence[str]) -> RadarLabels:
    """Places labels around a circle that grows with their number, clear of each other and of the circle."""
    count = len(labels)
    radius = 2.0 + 0.06 * max(0, min(count, 24) - 8)
    size = 10.5 - 0.1 * max(0, min(count, 24) - 8)
    line = EM_HIGH * size / POINTS_AN_INCH
    away = radius + 0.14
    texts, halves = [], []
    for label in labels:
        lines = textwrap.wrap(shortened(label, _MAX_LETTERS), 16) or [""]
        texts.append("\n".join(lines))
        halves.append((text_width(max(lines, key=len), size), len(lines) * line / 2))
    directions = _directions(count)
    places = [(float(x) * away, float(y) * (away + half)) for (x, y), (_, half) in zip(directions, halves, strict=True)]
    sides = ["center" if abs(x) < 1e-9 else "left" if x > 0 else "right" for x, _ in directions]
    for side in ("left", "right"):
        # From the middle of a side upwards, and then downwards, each label moves until it is clear of the last one.
        members = sorted((index for index in range(count) if sides[index] == side), key=lambda index: places[index][1])
        upper = [index for index in members if places[index][1] >= 0]
        lower = [index for index in reversed(members) if places[index][1] < 0]
        for sign, half_circle in ((1, upper), (-1, [*upper[:1], *lower])):
            for before, index in itertools.pairwise(half_circle):
                least = sign * places[before][1] + halves[before][1] + halves[index][1] + 0.04
                places[index] = (places[index][0], sign * max(sign * places[index][1], least))
        for index in members:
            # The label's edge that is nearest to the middle lies outside the circle.
            nearest = max(0.0, abs(places[index][1]) - halves[index][1])
            across = max(math.sqrt(max(0.0, away**2 - nearest**2)), abs(places[index][0]))
            places[index] = (across if side == "left" else -across, places[index][1])
    wide = max(
        abs(x) + (width if side != "center" else width / 2)
        for (x, _), (width, _), side in zip(places, halves, sides, strict=True)
    )
    tops = [y + half for (_, y), (_, half) in zip(places, halves, strict=True)]
    bottoms = [y - half for (_, y), (_, half) in zip(places, halves, strict=True)]
    return RadarLabels(
        texts, places, sides, radius, size, wide + 0.05, max(radius, *tops) + 0.05, min(-radius, *bottoms) - 0.05
    )


@dataclasses.dataclass(frozen=True)
class RadarLabels:
    """The places of a radar chart's labels, in inches from its centre."""

    texts: Sequence[str]  # with their line breaks
    places: Sequence[
        tuple[float, float]
    ]  # x of the edge towards the circle, or of the middle above and below. Then the middle's y
    sides: Sequence[str]  # left, right or center: the part of the text at x
    radius: float  # of the outer ring
    size: float  # of the font, in points
    side: float  # half of the chart's width
    top: float
    bottom: float


def radar_panel(
    title: str, labels: Sequence[str], series: Sequence[tuple[Mark, np.ndarray]], description: str
) -> Panel:
    """A panel with a radar chart."""
    placed = radar_labels(labels)
    size = (2 * placed.side, placed.top - placed.bottom)
    return Panel(title, lambda axes: radar(axes, placed, series), *size, description, NO_MARGINS)


def radar(axes: Axes, labels: RadarLabels, series: Sequence[tuple[Mark, np.ndarray]], *, floor: float = -0.25) -> None:
    """A polygon a series, looks and values [num_axes], over axes that share one scale: 0 is chance, 1 is perfect.

    A NaN leaves a gap.
    """
    directions = _directions(len(labels.texts))

    def radius(value: np.ndarray | float) -> np.ndarray:
        return labels.radius * (np.maximum(value, floor) - floor) / (1 - floor)

    circle = np.linspace(0, 2 * np.pi, 181)
    around = np.stack([np.cos(circle), np.sin(circle)])
    between = np.pi / 2 - np.pi / len(labels.texts)  # two spokes, where no polygon has a corner
    for level in (0, 0.25, 0.5, 0.75, 1):
        look: dict[str, Any] = {"color": GRID, "linewidth": 0.8, "linestyle": "-"}
        if level == 0:
            look = {"color": MUTED, "linewidth": 1.2, "linestyle": (0, (3, 2))}
        axes.plot(*(radius(level) * around), zorder=1, **look)
        position = (radius(level) * np.cos(between), radius(level) * np.sin(between))
        name = "chance" if level == 0 else f"{level:g}"
        axes.text(*position, name, fontsize=9, color=MUTED, ha="center", va="center", zorder=5)
    for direction, text, (x, y), side in zip(directions, labels.texts, labels.places, labels.sides, strict=True):
        tip = labels.radius * direction
        axes.plot([0, tip[0]], [0, tip[1]], color=GRID, linewidth=0.8, zorder=1)
        if side != "center":
            outside = 0.03 if side == "right" else -0.03
            axes.plot([tip[0], x + outside], [tip[1], y], color=GRID, linewidth=0.8, zorder=1)
        axes.text(x, y, text, ha=side, va="center", fontsize=labels.size, linespacing=1.1)
    for mark, values in series:
        points = radius(np.asarray(values, np.float64))[:, None] * directions
        closed = np.concatenate([points, points[:1]])
        axes.plot(*closed.T, color=mark.colour, marker=mark.marker, linestyle=mark.dash, zorder=3)
        # The paper's polygons are for orientation: another surface would hide ours.
        if mark.colour != MUTED and not np.isnan(closed).any():
            axes.fill(*points.T, color=mark.colour, alpha=0.10, linewidth=0, zorder=2)
    axes.set_xlim(-labels.side, labels.side)
    axes.set_ylim(labels.bottom, labels.top)
    axes.set_axis_off()


def _directions(count: int) -> np.ndarray:
    """[count, 2] unit vectors, clockwise from the top."""
    angles = np.pi / 2 - 2 * np.pi * np.arange(count) / count
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)
