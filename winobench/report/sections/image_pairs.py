"""One text and two images: the errors of both with the text and without it, against the timestep (Figure 3)."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from winobench.data import images as image_files
from winobench.report import analysis, figures
from winobench.report.analysis import ImagePair
from winobench.report.cards import SIDE_FEW, Candidate, Card, image_address
from winobench.report.figures import NO_MARGINS, Margins, Mark, Panel
from winobench.report.sections.shared import (
    MOST_CHARTED_RUNS,
    SHOWN_PANELS,
    Details,
    ReportData,
    Section,
    too_few_examples,
)
from winobench.report.wording import MINUS
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
_IMAGES, _NAMES = ("right image", "wrong image"), (("right", "wrong"), ("the text", "no text"))


def image_pair_section(report_data: ReportData) -> Section | None:
    """Figure 3 of the paper, for an example of each task in which images compete."""
    folds: list[Details] = []
    rows, files = [], {}
    for number, run in enumerate(report_data.runs[:MOST_CHARTED_RUNS]):
        panels: list[Panel] = []
        for task in report_data.charted:
            pair = _pair(report_data, run, run.tasks.get(task))
            if pair is None:
                continue
            charts, images = _charts(task, pair), _images(report_data, run, task, pair)
            title = task_label(task) if len(report_data.runs) == 1 else f"{run.label}, {task_label(task)}"
            folds.append(Details(title, panels=charts, cards=[_card(run, task, pair, images)], is_open=not folds))
            panels += [*charts, *_image_panel(images)]
            rows += _rows(run, task, pair)
        if panels:
            name = "image_pairs.png" if len(report_data.runs) == 1 else f"image_pairs-{number + 1}.png"
            files[name] = (panels[: 3 * SHOWN_PANELS], _LEGEND, 3)
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
        folds=folds,
        records={"image_pairs.csv": rows},
        images=files,
    )


def _pair(report_data: ReportData, run: Run, record: TaskRun | None) -> ImagePair | None:
    if record is None or not record.has_answers or record.timesteps is None or too_few_examples(record):
        return None
    if record.examples is None or not any(len(images) > 1 and len(texts) == 1 for images, texts in _shapes(record)):
        return None
    batches = run.batches(record.name)
    if batches is None or batches[0].own.shape[-1] != len(record.timesteps):
        return None
    kept = report_data.images(record.name)
    shown = {row for row, names in enumerate(record.examples.images) if all(name in kept for name in names)}
    return analysis.image_pair(batches, record.timesteps, record.examples.targets, shown)


def _shapes(record: TaskRun) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
    return zip(record.answered.images, record.answered.texts, strict=True)


def _charts(task: str, pair: ImagePair) -> list[Panel]:
    with_text, differences = [], []
    for marks, errors in zip(_LINES, pair.errors, strict=True):
        with_text += [(mark, _line(values)) for mark, values in zip(marks, errors, strict=True)]
        differences.append((marks[0], _line(errors[0] - errors[1])))
    title = task_label(task)
    return [
        _chart(f"{title}, error", pair, with_text, "error", zero=False),
        _chart(f"{title}, text less no text", pair, differences, "error less unconditional", zero=True),
    ]


def _image_panel(images: Sequence[bytes | None]) -> list[Panel]:
    """The images as a panel of the file. None where one is missing, or cannot be decoded."""
    pixels = []
    for jpeg in images:
        try:
            with image_files.opened(io.BytesIO(jpeg or b"")) as image:
                pixels.append(np.asarray(image_files.to_rgb(image)))
        except image_files.ImageProblem:
            return []
    named = list(zip(_IMAGES, pixels, strict=True))
    draw = functools.partial(figures.image_row, images=named)
    return [Panel("The images", draw, 2.9, 1.7, "The right and the wrong image", NO_MARGINS)]


def _images(report_data: ReportData, run: Run, task: str, pair: ImagePair) -> list[bytes | None]:
    """The right and the wrong image as the run kept them."""
    kept, names = report_data.images(task), run.tasks[task].answered.images[pair.row]
    return [kept.get(names[place]) for place in pair.images]


def _card(run: Run, task: str, pair: ImagePair, images: Sequence[bytes | None]) -> Card:
    """The text and the two images, each with its mean errors."""
    examples = run.tasks[task].answered
    candidates = [
        Candidate(
            image=None if jpeg is None else image_address(jpeg, SIDE_FEW),
            text=None,
            number=candidate + 1,
            score=f"error {error:.4g}, less no text {error - empty:.3g}".replace("-", MINUS),
            share=float(number == 0),
            is_right=number == 0,
            is_chosen=False,
        )
        for number, (candidate, jpeg, (error, empty)) in enumerate(zip(pair.images, images, pair.means, strict=True))
    ]
    alone = "right" if pair.error_is_right else "wrong"
    verdict = f"right by the difference, {alone} by the error alone"
    groups = ", ".join(group.replace("_", " ") for group in examples.groups[pair.row])
    text = examples.texts[pair.row][0]
    return Card(examples.ids[pair.row], groups, True, verdict, query_text=text, candidates=candidates)


def _chart(title: str, pair: ImagePair, lines: Sequence[tuple[Mark, np.ndarray]], ylabel: str, *, zero: bool) -> Panel:
    def draw(axes) -> None:
        figures.timestep_lines(axes, pair.timesteps, lines, ylabel, zero=zero)

    return Panel(title, draw, *_SIZE, margins=_MARGINS)


def _line(values: np.ndarray) -> np.ndarray:
    """A line without a band: one image has no spread over images."""
    return np.stack([values, values, values])


def _rows(run: Run, task: str, pair: ImagePair) -> list[dict[str, Any]]:
    return [
        {
            "run": run.label,
            "task": task,
            "id": run.tasks[task].answered.ids[pair.row],
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
