"""One text and two images: the errors of both with the text and without it, against the timestep (Figure 3)."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from winobench.data import images as image_files
from winobench.report import analysis, figures
from winobench.report.analysis import ImagePair
from winobench.report.figures import NO_MARGINS, Margins, Mark, Panel
from winobench.report.sections.shared import (
    MOST_CHARTED_RUNS,
    Details,
    ReportData,
    Section,
    collapsed,
    too_few_examples,
)
from winobench.runs.labels import task_label
from winobench.runs.run import Run, TaskRun

_NO_TEXT = figures.DASHES[2]
_LINES = (
    (Mark("right image, the text", figures.RIGHT, "o"), Mark("right image, no text", figures.RIGHT, "^", _NO_TEXT)),
    (Mark("wrong image, the text", figures.WRONG, "s"), Mark("wrong image, no text", figures.WRONG, "D", _NO_TEXT)),
)
_LEGEND = [mark for marks in _LINES for mark in marks]
_MARGINS = Margins(left=0.72, top=0.2)  # above stands a power of ten of the vertical axis
_SIZE = (2.9, 2.2)
_NAMES = ("right", "wrong"), ("the text", "no text")


def image_pair_section(report_data: ReportData) -> Section | None:
    """As the paper's Figure 3, of an example of each task in which images compete."""
    shown, folds, rows, notes, pictures = [], [], [], [], {}
    for place, run in enumerate(report_data.runs[:MOST_CHARTED_RUNS]):
        panels: list[tuple[str, Panel]] = []
        for task in report_data.charted:
            pair = _pair(report_data, run, run.tasks.get(task))
            if pair is not None:
                panels += [(task, panel) for panel in _panels(report_data, run, task, pair)]
                rows += _rows(run, task, pair)
                notes.append(_note(report_data, run, task, pair))
        if not panels:
            continue
        name = "image_pairs.png" if len(report_data.runs) == 1 else f"image_pairs-{place + 1}.png"
        pictures[name] = ([panel for _, panel in panels], _LEGEND, 3)
        first, more = collapsed(panels)
        if len(report_data.runs) == 1:
            shown, folds = first, more
        else:
            folds.append(Details(run.label, panels=first, is_open=not folds))
            folds += [dataclasses.replace(fold, title=f"{run.label}, {fold.title}") for fold in more]
    if not rows:
        return None
    return Section(
        "image_pairs",
        "One text and two images",
        [
            "The error of the right image and of the wrong one with the lowest error, with the text and without any, "
            "against the timestep (paper, Figure 3). The error alone can be lower for the wrong image, where that is "
            "easier to denoise. The error less that without text compares what the text adds.",
            "One example of each task is shown, for which this difference is right. Examples whose error alone is "
            "wrong come first, then the clearest.",
        ],
        legend=_LEGEND,
        panels=shown,
        folds=folds,
        notes=notes,
        records={"image_pairs.csv": rows},
        pictures=pictures,
    )


def _pair(report_data: ReportData, run: Run, record: TaskRun | None) -> ImagePair | None:
    if record is None or not record.has_answers or record.timesteps is None or too_few_examples(record):
        return None
    if record.examples is None or not any(len(images) > 1 and len(texts) == 1 for images, texts in _shapes(record)):
        return None
    batches = run.batches(record.name)
    if batches is None or batches[0].own.shape[-1] != len(record.timesteps):
        return None
    kept = report_data.pictures(record.name)
    shown = {row for row, names in enumerate(record.examples.images) if all(name in kept for name in names)}
    return analysis.image_pair(batches, record.timesteps, record.examples.targets, shown)


def _shapes(record: TaskRun) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    return zip(record.examples.images, record.examples.texts, strict=True)


def _panels(report_data: ReportData, run: Run, task: str, pair: ImagePair) -> list[Panel]:
    before = task_label(task)
    with_text, differences = [], []
    for marks, errors in zip(_LINES, pair.errors, strict=True):
        with_text += [(mark, _line(values)) for mark, values in zip(marks, errors, strict=True)]
        differences.append((marks[0], _line(errors[0] - errors[1])))
    drawn = [
        _chart(f"{before}, error", pair, with_text, "error", zero=False),
        _chart(f"{before}, text less no text", pair, differences, "error less unconditional", zero=True),
    ]
    pictures = _pictures(report_data.pictures(task), run.tasks[task], pair)
    if pictures:
        named = list(zip(("right image", "wrong image"), pictures, strict=True))
        description = f"{before}: {run.tasks[task].examples.texts[pair.row][0]}"
        drawn.append(
            Panel("The images", lambda axes: figures.picture_row(axes, named), 2.9, 1.7, description, NO_MARGINS)
        )
    return drawn


def _chart(title: str, pair: ImagePair, lines: Sequence[tuple[Mark, np.ndarray]], ylabel: str, *, zero: bool) -> Panel:
    def draw(axes) -> None:
        figures.timestep_lines(axes, pair.timesteps, lines, ylabel, zero=zero)

    return Panel(title, draw, *_SIZE, margins=_MARGINS)


def _line(values: np.ndarray) -> np.ndarray:
    """A line without a band: one image has no spread over images."""
    return np.stack([values, values, values])


def _pictures(kept: Mapping[str, bytes], record: TaskRun, pair: ImagePair) -> list[np.ndarray]:
    """The right and the wrong image as the run kept them. Empty where one is missing or cannot be decoded."""
    found = []
    for place in pair.images:
        jpeg = kept.get(record.examples.images[pair.row][place])
        if jpeg is None:
            return []
        try:
            with image_files.opened(io.BytesIO(jpeg)) as image:
                found.append(np.asarray(image_files.to_rgb(image)))
        except image_files.ImageProblem:
            return []
    return found


def _note(report_data: ReportData, run: Run, task: str, pair: ImagePair) -> str:
    before = f"{run.label}, {task_label(task)}" if len(report_data.runs) > 1 else task_label(task)
    (right, right_empty), (wrong, wrong_empty) = pair.means
    verdict = "lower for the right image" if pair.error_is_right else "lower for the wrong image"
    text = run.tasks[task].examples.texts[pair.row][0]
    return (
        f"{before}: “{text}”. The mean error is {verdict} ({right:.4g} and {wrong:.4g}). Less that without text it is "
        f"{right - right_empty:.3g} for the right and {wrong - wrong_empty:.3g} for the wrong image."
    )


def _rows(run: Run, task: str, pair: ImagePair) -> list[dict[str, Any]]:
    return [
        {
            "run": run.label,
            "task": task,
            "id": run.tasks[task].examples.ids[pair.row],
            "image": image,
            "text": text,
            "first_timestep": first,
            "last_timestep": last,
            "mean_timestep": float(timestep),
            "error": float(error),
        }
        for image, of_image in zip(_NAMES[0], pair.errors, strict=True)
        for text, line in zip(_NAMES[1], of_image, strict=True)
        for (first, last), timestep, error in zip(pair.edges, pair.timesteps, line, strict=True)
    ]
