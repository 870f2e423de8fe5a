"""Does a model generate what it understands? Accuracy of judging against accuracy of generating, skill by skill."""

from __future__ import annotations

import dataclasses
from typing import Any

from winobench.report import analysis, figures
from winobench.report.cells import NUMBER_COLUMNS, Cell, Table, TableRow
from winobench.report.figures import Mark, Panel
from winobench.report.sections.shared import ReportData, Section
from winobench.report.wording import short_interval
from winobench.runs.verdicts import generation_accuracy, judge_of, read_verdicts

_TASK = "clevr"


@dataclasses.dataclass(frozen=True)
class _Point:
    """A skill of a model."""

    run: int  # number of the run that judged
    skill: str  # sub-task and category of prompts
    judged: dict[str, Any]  # entries of the two accuracies: "value", "low", "high", "n"
    drawn: dict[str, Any]
    judge: str  # of the generated images


def generation_section(report_data: ReportData) -> Section | None:
    """A point for each skill of each model that judged and generated scenes with the same weights."""
    points = [point for number in range(len(report_data.runs)) for point in _points(report_data, number)]
    if not points:
        return None
    marks = [mark for number, mark in enumerate(report_data.dots) if any(point.run == number for point in points)]
    description = "Accuracy of drawing against accuracy of telling captions apart, a point for each skill of each model"
    dots = report_data.dots
    panel = Panel("Generated as asked and told apart", lambda axes: _draw(axes, points, dots), 5.2, 4.2, description)
    return Section(
        "generation",
        "Does it generate what it understands?",
        [
            "Each point is a skill of a model. Across: how often it tells the true caption of a rendered scene from a "
            "false one (the task clevr; chance 50%). Up: how often images that it generated show what their prompts"
            f" ask for, judged by the {' and the '.join(dict.fromkeys(point.judge for point in points))}.",
            _correlation(points),
        ],
        legend=marks,
        panels=[panel],
        tables=[_table(report_data, points)],
        records={"generation.csv": [_record(report_data, point) for point in points]},
        pictures={"generation.png": ([panel], marks, 1)},
    )


def _points(report_data: ReportData, number: int) -> list[_Point]:
    run = report_data.runs[number]
    weights = run.config["identity"].get("scorer", {}).get("model")
    record = run.tasks.get(_TASK)
    if weights is None or record is None:
        return []
    found = []
    for pictures in report_data.drawn:
        verdicts = read_verdicts(pictures.folder)
        of_models = generation_accuracy(pictures, verdicts)
        for model in pictures.models:
            if model.fingerprint == weights:
                for skill, drawn in of_models[model.label].items():
                    judged = record.results.get(f"{skill}/accuracy")
                    if judged is not None:
                        found.append(_Point(number, skill, judged, drawn, judge_of(verdicts)))
    return found


def _draw(axes: Any, points: list[_Point], marks: list[Mark]) -> None:
    axes.plot([0, 100], [0, 100], color=figures.GRID, linewidth=1, zorder=1)
    for point in points:
        mark = marks[point.run]
        x, y = ([100 * value[name] for name in ("value", "low", "high")] for value in (point.judged, point.drawn))
        bars = {"xerr": [[x[0] - x[1]], [x[2] - x[0]]], "yerr": [[y[0] - y[1]], [y[2] - y[0]]]}
        axes.errorbar(x[0], y[0], **bars, color=mark.colour, marker=mark.marker, elinewidth=0.7, alpha=0.9)
    axes.set(xlabel="told apart, %", ylabel="generated as asked, %", xlim=(30, 103), ylim=(-3, 103))


def _correlation(points: list[_Point]) -> str:
    found = analysis.pearson(*([getattr(point, name)["value"] for point in points] for name in ("judged", "drawn")))
    if found is None:
        return "Too few points, or equal ones, for a correlation."
    return (
        f"Pearson's correlation over these {len(points)} points is {found.value:.2f}, 95% interval {found.low:.2f} to "
        f"{found.high:.2f} by Fisher's transformation, as if points were independent, which skills of one model are"
        " not."
    )


def _table(report_data: ReportData, points: list[_Point]) -> Table:
    rows = [
        TableRow(
            [
                Cell(report_data.runs[point.run].label, point.skill.replace("_", " ")),
                *(Cell(f"{100 * value['value']:.1f}", short_interval(value)) for value in (point.judged, point.drawn)),
            ]
        )
        for point in points
    ]
    return Table(["model and skill", "told apart, %", "generated as asked, %"], rows)


def _record(report_data: ReportData, point: _Point) -> dict[str, Any]:
    record = {"run": report_data.runs[point.run].label, "skill": point.skill, "drawn_judge": point.judge}
    for name in ("judged", "drawn"):
        record |= {f"{name}_{key}": getattr(point, name)[key] for key in NUMBER_COLUMNS}
    return record
