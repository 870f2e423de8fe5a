"""Figures in one style: as SVG that takes its colours from the page, and as PNG files next to it.

Every figure is a list of panels, functions that plot into given axes, so that a page can flow them as its width allows
while the file on disk holds them in one grid. The runs have the colours of M. Okabe and K. Ito, "Color universal
design" (2008), which the common kinds of colour blindness distinguish. Markers and dashes differ, too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import textwrap
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import blended_transform_factory

from winobench.runs.labels import shortened

# Of text and axes, of less important text, and of lines in the background.
INK, MUTED, GRID = "#1f2330", "#667085", "#dfe3ea"

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5c1e")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (1.5, 1.5)), (0, (6, 1.5, 1.5, 1.5)))
NO_LINE = "none"  # instead of dashes: the mark is its marker alone
ON_COLOUR = "#fffffe"  # of text on a surface in one of the colours below
RIGHT, WRONG, BOTH = "#0072c6", "#d55f0e", "#475467"  # of candidates, and of answers that two runs share

# Colour in the figure -> the page's variable for it, which differs between light and dark.
VARIABLES = {
    INK: "--ink",
    MUTED: "--muted",
    GRID: "--line",
    ON_COLOUR: "--on-colour",
    RIGHT: "--right",
    WRONG: "--wrong",
    BOTH: "--both",
    **{colour: f"--run-{number}" for number, colour in enumerate(COLOURS)},
}

_STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],  # comes with matplotlib, and is wider than browsers' fonts
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.edgecolor": MUTED,
    "axes.linewidth": 0.8,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "winobench",
    **dict.fromkeys(("axes.spines.top", "axes.spines.right"), False),
    **dict.fromkeys(("axes.grid", "axes.axisbelow"), True),
    **dict.fromkeys(("axes.labelsize", "legend.fontsize"), 9),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize"), 8),
    **dict.fromkeys(("xtick.color", "ytick.color"), MUTED),
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.labelcolor", "ytick.labelcolor"), INK),
}
_BAND_ALPHA = 0.18


# Width and height in em of a letter and a line of the font above, a little more than their average. With them every
# panel has its margins: searching for margins takes longer than drawing, and fails where a label is long.
_EM_WIDE, EM_HIGH = 0.64, 1.2
POINTS_AN_INCH = 72
_LEGEND_LETTERS, _FOREST_LETTERS, _BAR_LETTERS = 60, 30, 16
_LETTERS_BELOW_BARS = 80  # of all labels of a panel's bars together
# More bars than this are too narrow for their numbers.
_MOST_BAR_NUMBERS = 16

Draw = Callable[[Axes], None]


@dataclasses.dataclass(frozen=True)
class Margins:
    """Room around the axes, in inches."""

    left: float = 0.62
    right: float = 0.12
    top: float = 0.1
    bottom: float = 0.48


NO_MARGINS = Margins(0, 0, 0, 0)


@dataclasses.dataclass(frozen=True)
class Mark:
    """How a run or a kind looks in all figures, with its name for legends."""

    label: str
    colour: str
    marker: str = "o"
    dash: Any = "-"  # a name, or a pattern, of matplotlib's

    @property
    def handle(self) -> Line2D:
        """An entry for matplotlib's legend."""
        label = shortened(self.label, _LEGEND_LETTERS)
        size = 7 if self.dash == NO_LINE else _STYLE["lines.markersize"]
        return Line2D([], [], color=self.colour, marker=self.marker, linestyle=self.dash, markersize=size, label=label)


@dataclasses.dataclass(frozen=True)
class Panel:
    """A drawing and the size, in inches, at which it is legible. The size includes the margins."""

    title: str
    draw: Draw
    width: float = 3.4
    height: float = 2.5
    description: str = ""
    margins: Margins = Margins()


def run_mark(number: int, label: str) -> Mark:
    """The looks of a run. Colour and marker repeat after seven, the dashes shift with each round."""
    round_number, place = divmod(number, len(COLOURS))
    return Mark(label, COLOURS[place], MARKERS[place], DASHES[(place + round_number) % len(DASHES)])


@contextlib.contextmanager
def style() -> Iterator[None]:
    """The style of all figures. Letters of users' names may be missing from its font."""
    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font", UserWarning)
        yield


def sample_curves(
    axes: Axes,
    curves: Sequence[tuple[Mark, np.ndarray, np.ndarray, np.ndarray, np.ndarray]],
    levels: Sequence[tuple[Mark, float]],
    chance: float | None,
) -> None:
    """Accuracy in percent against the number of samples.

    Curves are looks, sizes, mean, low, high of each sampled run. Levels are other runs' accuracies, in [0, 1] as all.
    """
    for mark, sizes, mean, low, high in curves:
        axes.fill_between(sizes, 100 * low, 100 * high, color=mark.colour, alpha=_BAND_ALPHA, linewidth=0)
        axes.plot(sizes, 100 * mean, color=mark.colour, marker=mark.marker, linestyle=mark.dash)
    for mark, value in levels:
        axes.axhline(100 * value, color=mark.colour, linestyle=(0, (8, 2)), linewidth=1.6)
    if chance is not None:
        axes.axhline(100 * chance, color=MUTED, linestyle=(0, (3, 2)), linewidth=1)
    longest = max((int(sizes[-1]) for _, sizes, *_ in curves), default=1)
    axes.set_xscale("log", base=2)
    ticks = [2**power for power in range(0, max(1, math.ceil(math.log2(max(2, longest)))) + 1)]
    step = math.ceil(len(ticks) / 7)
    axes.set_xticks(ticks[::step])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlim(0.9, max(2, longest) * 1.1)
    _percent_axis(axes.yaxis)
    axes.set_ylabel("right")
    axes.set_xlabel("samples a pair")


def timestep_lines(
    axes: Axes, timesteps: np.ndarray, lines: Sequence[tuple[Mark, np.ndarray]], ylabel: str, *, zero: bool
) -> None:
    """Errors against the timestep or noise level, [bins]. Lines are looks and [3, bins] (mean, low, high)."""
    if zero:
        axes.axhline(0, color=MUTED, linewidth=1, linestyle=(0, (3, 2)))
    for mark, (mean, low, high) in lines:
        axes.fill_between(timesteps, low, high, color=mark.colour, alpha=_BAND_ALPHA, linewidth=0)
        axes.plot(timesteps, mean, color=mark.colour, marker=mark.marker, linestyle=mark.dash)
    are_levels = np.max(timesteps) <= 1  # of flow models
    axes.set_xlabel("noise level" if are_levels else "timestep (larger = noisier)")
    axes.set_ylabel(ylabel)
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=not are_levels))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    # Long numbers would leave the margin.
    axes.ticklabel_format(axis="y", scilimits=(-2, 4))


def label_points(axes: Axes, labels: Sequence[tuple[str, float, float]], size: float = 7) -> None:
    """Writes a label next to each point (label, x, y), clear of earlier labels. Limits must be final."""
    high, taken, scale = EM_HIGH * size, np.empty((0, 4)), POINTS_AN_INCH / axes.figure.dpi
    values = [(x, y) for _, x, y in labels]
    points = axes.transData.transform(values) * scale
    edges = np.array(axes.get_window_extent().extents) * scale
    for (label, *_), value, (x, y) in zip(labels, values, points, strict=True):
        wide = _EM_WIDE * size * len(label)
        rows = sorted(range(-2 * len(labels), 2 * len(labels)), key=lambda row: abs(row + 0.5))
        places = [(left, 4 + row * high if row >= 0 else row * high) for row in rows for left in (4, -4 - wide)]
        boxes = np.array([(x + left, y + low, x + left + wide, y + low + high) for left, low in places])
        apart = np.any((boxes[:, None, :2] >= taken[:, 2:]) | (boxes[:, None, 2:] <= taken[:, :2]), axis=-1)
        inside = np.all((boxes[:, :2] >= edges[:2]) & (boxes[:, 2:] <= edges[2:]), axis=1)
        best = int(np.argmax(2 * np.all(apart, axis=1) + inside))
        taken = np.concatenate([taken, boxes[best : best + 1]])
        axes.annotate(label, value, places[best], textcoords="offset points", fontsize=size)


def image_row(axes: Axes, images: Sequence[tuple[str, np.ndarray]]) -> None:
    """Images side by side, [height, width, 3] uint8 each, with a line of text below each."""
    axes.set_axis_off()
    share = 1 / len(images)
    for place, (said, pixels) in enumerate(images):
        inset = axes.inset_axes((place * share + 0.02, 0.14, share - 0.04, 0.86))
        inset.imshow(pixels)
        inset.set_axis_off()
        axes.text((place + 0.5) * share, 0.04, said, ha="center", va="center", fontsize=8, transform=axes.transAxes)


def overlap_bars(axes: Axes, pairs: Sequence[tuple[Mark, Mark, Sequence[float], float]]) -> None:
    """A stacked bar a pair of runs, whose markers come before it: both right, only the one, only the other, neither."""
    for row, (first, second, shares, expected) in enumerate(pairs):
        left = 0.0
        for share, colour in zip(shares, (BOTH, first.colour, second.colour, GRID), strict=True):
            axes.barh(-row, 100 * share, left=100 * left, height=0.6, color=colour)
            if share >= 0.12:
                words: dict[str, Any] = {"ha": "center", "va": "center", "color": INK if colour == GRID else ON_COLOUR}
                axes.text(100 * (left + share / 2), -row, f"{100 * share:.0f}", fontsize=8, **words)
            left += share
        axes.plot([100 * expected] * 2, [-row - 0.4, -row + 0.4], color=INK, linewidth=1.6)
        for mark, before in ((first, -0.13), (second, -0.06)):
            beyond = blended_transform_factory(axes.transAxes, axes.transData)
            look: dict[str, Any] = {"color": mark.colour, "marker": mark.marker, "markersize": 6.5, "linestyle": "none"}
            axes.plot(before, -row, transform=beyond, clip_on=False, **look)
    axes.set_xlim(0, 100)
    axes.set_ylim(-len(pairs) + 0.45, 0.55)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.grid(False)
    _percent_axis(axes.xaxis)


def set_bars(axes: Axes, marks: Sequence[Mark], sets: Sequence[tuple[Sequence[bool], int]], total: int) -> None:
    """The number of examples that exactly these runs have right: a bar each, with dots for the runs."""
    longest = max(count for _, count in sets)
    step = 0.09 * longest
    for row, (pattern, count) in enumerate(sets):
        axes.barh(-row, count, height=0.6, color=BOTH)
        share = f"{count:,} ({100 * count / total:.1f}%)"
        axes.text(count + 0.02 * longest, -row, share, va="center", ha="left", fontsize=8)
        for number, (mark, is_right) in enumerate(zip(marks, pattern, strict=True)):
            marker, colour, size = (mark.marker, mark.colour, 6.5) if is_right else ("o", GRID, 4)
            x = -step * (len(marks) - number)
            axes.plot(x, -row, marker=marker, color=colour, markersize=size, linestyle="none")
    axes.set_xlim(-step * (len(marks) + 0.7), longest * 1.42)
    axes.set_ylim(-len(sets) + 0.4, 0.6)
    axes.set_axis_off()


def grouped_bars(
    axes: Axes,
    labels: Sequence[str],
    series: Sequence[tuple[Mark, np.ndarray]],
    *,
    chance: float | None = None,
    ylabel: str = "right",
    percent: bool = True,
) -> None:
    """A group of bars a label, a bar a series, with intervals where there are any.

    Series are looks and [3, groups] (value, low, high): proportions, or counts if not ``percent``; NaN where a series
    lacks a group, and as low and high without interval.
    """
    scale = 100 if percent else 1
    width = 0.8 / max(1, len(series))
    if chance is not None:
        axes.axhline(scale * chance, color=MUTED, linestyle=(0, (3, 2)), linewidth=1, zorder=3)
    for number, (mark, (values, lows, highs)) in enumerate(series):
        for group, (value, low, high) in enumerate(zip(values, lows, highs, strict=True)):
            if not np.isfinite(value):
                continue
            x = group + (number - (len(series) - 1) / 2) * width
            axes.bar(x, scale * value, width=0.88 * width, color=mark.colour, linewidth=0)
            top = scale * value
            if np.isfinite(low):
                axes.plot([x, x], [scale * low, scale * high], color=INK, linewidth=1, solid_capstyle="butt")
                top = scale * high
            text = f"{scale * value:.1f}" if percent else f"{value:,.0f}"
            if len(series) * len(labels) <= _MOST_BAR_NUMBERS:
                axes.annotate(
                    text, (x, top), (0, 2), textcoords="offset points", ha="center", va="bottom", fontsize=7, color=INK
                )
    axes.set_xticks(range(len(labels)), ["\n".join(_lines(label, len(labels))) for label in labels])
    axes.tick_params(axis="x", length=0)
    axes.set_xlim(-0.55, len(labels) - 0.45)
    axes.grid(False, axis="x")
    if percent:
        axes.set_ylim(0, 112)
        axes.set_yticks(range(0, 101, 25))
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}%")
    else:
        axes.margins(y=0.12)
        axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.set_ylabel(ylabel)


def _lines(label: str, count: int) -> list[str]:
    """The lines of a label below one of ``count`` groups of bars."""
    return textwrap.wrap(label, max(1, min(_BAR_LETTERS, _LETTERS_BELOW_BARS // count)), break_long_words=False)


def bars_panel(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[Mark, np.ndarray]],
    height: float,
    description: str,
    **options: Any,
) -> Panel:
    """A panel with grouped bars, whose height excludes their labels."""
    lines = max(len(_lines(label, len(labels))) for label in labels)
    margins = Margins(bottom=0.16 + lines * 0.15)

    def draw(axes: Axes) -> None:
        grouped_bars(axes, labels, series, **options)

    return Panel(title, draw, 4.6, height + margins.bottom, description, margins)


def count_map(axes: Axes, rows: Sequence[str], columns: Sequence[str], counts: np.ndarray) -> None:
    """A table of counts, [rows, columns], whose cells are the darker the larger their share of their column is."""
    totals = counts.sum(axis=0)
    for (row, column), count in np.ndenumerate(counts):
        share = count / totals[column] if totals[column] else 0.0
        corner = (column - 0.48, -row - 0.46)
        axes.add_patch(Rectangle(corner, 0.96, 0.92, facecolor=RIGHT, alpha=0.05 + 0.55 * share, linewidth=0))
        axes.text(column, -row + 0.12, f"{count:,}", ha="center", va="center", fontsize=9)
        axes.text(column, -row - 0.24, f"{100 * share:.1f}%", ha="center", va="center", fontsize=7, color=INK)
    axes.set_xticks(range(len(columns)), [textwrap.fill(label, _BAR_LETTERS) for label in columns])
    axes.set_yticks([-row for row in range(len(rows))], [shortened(label, _FOREST_LETTERS) for label in rows])
    axes.tick_params(axis="both", length=0)
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-len(rows) + 0.5, 0.5)
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)


def count_panel(title: str, rows: Sequence[str], columns: Sequence[str], counts: np.ndarray, description: str) -> Panel:
    """A panel with a table of counts."""
    lines = max(len(textwrap.wrap(label, _BAR_LETTERS)) for label in columns)
    longest = max((shortened(label, _FOREST_LETTERS) for label in rows), key=len)
    left = text_width(longest, _STYLE["ytick.labelsize"]) + 0.16
    margins = Margins(left=left, bottom=0.16 + lines * 0.15)
    width = max(4.6, left + 0.12 + 0.75 * len(columns))
    height = margins.top + margins.bottom + 0.48 * len(rows)
    return Panel(title, lambda axes: count_map(axes, rows, columns, counts), width, height, description, margins)


def forest(
    axes: Axes, labels: Sequence[str], series: Sequence[tuple[Mark, np.ndarray]], *, stars: np.ndarray, span: str
) -> None:
    """Effect sizes with their intervals, a row a target pair, and stars, [runs, rows] bool.

    Series are looks and [3, rows] (value, low, high) of each run; NaN where a run lacks a row.
    """
    axes.axvline(0, color=MUTED, linewidth=1, linestyle=(0, (3, 2)))
    spread = 0.56 / max(1, len(series))
    for number, (mark, (values, lows, highs)) in enumerate(series):
        for row, (value, low, high) in enumerate(zip(values, lows, highs, strict=True)):
            if not np.isfinite(value):
                continue
            height = -row - (number - (len(series) - 1) / 2) * spread
            axes.plot([low, high], [height, height], color=mark.colour, linewidth=1.6, solid_capstyle="butt")
            axes.plot(value, height, color=mark.colour, marker=mark.marker, markersize=5.5, linestyle="none")
            if stars[number][row]:
                axes.annotate(
                    "★", (high, height), (4, 0), textcoords="offset points", va="center", fontsize=7, color=mark.colour
                )
    axes.set_yticks(-np.arange(len(labels)), [shortened(label, _FOREST_LETTERS) for label in labels])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(-len(labels) + 0.4, 0.6)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.margins(x=0.08)
    axes.set_xlabel(span)


def forest_panel(
    title: str,
    labels: Sequence[str],
    series: Sequence[tuple[Mark, np.ndarray]],
    stars: np.ndarray,
    span: str,
    description: str,
) -> Panel:
    """A panel with a forest plot."""
    height = 0.8 + len(labels) * max(0.3, 0.14 * len(series) + 0.08)

    def draw(axes: Axes) -> None:
        forest(axes, labels, series, stars=stars, span=span)

    longest = max((shortened(label, _FOREST_LETTERS) for label in labels), key=len)
    margins = Margins(left=text_width(longest, _STYLE["ytick.labelsize"]) + 0.12)
    return Panel(title, draw, 5.2, height, description, margins)


def text_width(text: str, size: float) -> float:
    """The approximate width in inches of a line of text in a font of ``size`` points."""
    letters = sum(1.05 if unicodedata.east_asian_width(one) in "WF" or one in "MWmw@%" else _EM_WIDE for one in text)
    return letters * size / POINTS_AN_INCH


def fitted(text: str, width: float, size: float) -> str:
    """The text, shortened where it takes more than ``width`` inches."""
    most = len(text)
    while most > 4 and text_width(shortened(text, most), size) > width:
        most -= 1
    return shortened(text, most)


def _percent_axis(axis) -> None:
    axis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(lambda value, _: f"{value:g}%")


def page_colour(colour: str) -> str:
    """The page's variable for one of this module's colours."""
    return f"var({VARIABLES[colour]})"
