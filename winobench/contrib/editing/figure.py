"""Candidates before and after editing, as in Figures 6 and 7 of Krojer et al. 2023."""

from __future__ import annotations

import os
import pathlib
import textwrap
from collections.abc import Sequence

import numpy as np
import PIL.Image
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from winobench.base.errors import InputError
from winobench.runs.edits import Edit, read_edits
from winobench.runs.reading import read_run

NAME = "edits.png"

_MOST_CANDIDATES = 5
_INCHES = 1.15
_CAPTION = 0.42
_RIGHT = "#0072b2"


def draw(folder: str | os.PathLike, *, most: int = 6) -> pathlib.Path | None:
    """Draws some edited examples, a row each, the right candidate first. Returns the path; None without any."""
    folder, rows = pathlib.Path(folder), []
    edits = read_edits(folder)
    for task in read_run(folder).tasks.values():
        if task.examples is not None and task.metric is not None:
            rows += _rows(task.examples, edits)
    if not rows:
        return None
    _drawn(folder, _spread(rows, most)).savefig(folder / NAME, dpi=150, facecolor="white")
    return folder / NAME


def _rows(examples, edits) -> list[tuple[str, list[tuple[Edit, str, bool]]]]:
    """(heading, (edit, its label, whether it is the right one) of each candidate, the right one first)."""
    rows = []
    for images, texts, target in zip(examples.images, examples.texts, examples.targets, strict=True):
        if target is None:
            continue
        pairs = [(image, text) for image in images for text in texts]
        if any(pair not in edits for pair in pairs):
            continue
        order = [target, *(index for index in range(len(pairs)) if index != target)][:_MOST_CANDIDATES]
        labels = [text if len(texts) > 1 else "" for _, text in pairs]
        heading = "" if len(texts) > 1 else texts[0]
        rows.append((heading, [(edits[pairs[index]], labels[index], index == target) for index in order]))
    return rows


def _spread(rows: list, most: int) -> list:
    """Some of them, from the first to the last, in equal steps."""
    return [rows[number] for number in np.unique(np.linspace(0, len(rows) - 1, most).round().astype(int))]


def _drawn(folder: pathlib.Path, rows: Sequence[tuple[str, list[tuple[Edit, str, bool]]]]) -> Figure:
    columns = max(len(candidates) for _, candidates in rows)
    width, height = 2 * columns * _INCHES + 0.35 * columns + 0.2, len(rows) * (_INCHES + 2 * _CAPTION)
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    for row, (heading, candidates) in enumerate(rows):
        top = height - row * (_INCHES + 2 * _CAPTION)
        lines = "\n".join(textwrap.wrap(heading, int(width * 11))[:2])
        figure.text(0.15 / width, (top - 0.15) / height, lines, fontsize=9, va="top", parse_math=False)
        for column, (edit, label, is_right) in enumerate(candidates):
            left = 0.15 + column * (2 * _INCHES + 0.35)
            for number, file in enumerate((edit.before, edit.after)):
                at = [(left + number * (_INCHES + 0.04)) / width, (top - _CAPTION - _INCHES) / height]
                axes = figure.add_axes((*at, _INCHES / width, _INCHES / height))
                axes.imshow(_image(folder / file))
                axes.set(xticks=[], yticks=[])
                for spine in axes.spines.values():
                    spine.set(color=_RIGHT if is_right else "#b0b6c0", linewidth=2 if is_right else 0.5)
            words = f"{'right: ' if is_right else ''}moved {edit.distance:.3g}, error {edit.error_before:.3g}"
            words = f"{words} to {edit.error_after:.3g}" + (f"\n{textwrap.shorten(label, 44)}" if label else "")
            under = (top - _CAPTION - _INCHES - 0.06) / height
            colour = _RIGHT if is_right else "#444b5a"
            figure.text(left / width, under, words, fontsize=7, va="top", color=colour, parse_math=False)
    return figure


def _image(path: pathlib.Path) -> np.ndarray:
    try:
        with PIL.Image.open(path) as image:
            return np.asarray(image.convert("RGB"))
    except OSError:
        raise InputError(f"{path} is lost or damaged: give the run's command again with --overwrite") from None
