"""Matching against generation, skill by skill: accuracy on tasks, and a judge's scores of generated images."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from winobench import metrics, rubrics
from winobench.metrics import Interval
from winobench.report import analysis, figures
from winobench.report.cells import Cell, Table, TableRow
from winobench.report.figures import Mark, Panel
from winobench.report.sections.shared import ReportData, Section
from winobench.report.wording import above_chance, number, percent, readable
from winobench.runs import judgements
from winobench.runs.judgements import Judgement
from winobench.runs.run import Run
from winobench.runs.run_tables import few_mark
from winobench.tasks import TASKS
from winobench.tasks.base import SKILLS


@dataclasses.dataclass(frozen=True)
class _Point:
    """A skill of a model, by one rubric and judge."""

    run: int  # number of the run that matched
    skill: str
    matching: Interval  # mean over tasks of (accuracy − chance) / (1 − chance)
    tasks: tuple[str, ...]
    generation: Interval  # mean over the rubric's groups of the skill
    few_mark: str  # behind the interval of `generation`
    rubric: str
    judge: str


def understanding_section(report_data: ReportData) -> Section | None:
    """A point for each skill of each model that matched, and whose images a judge has scored."""
    points = list(_points(report_data))
    if not points:
        return None
    marks = [mark for number, mark in enumerate(report_data.dots) if any(point.run == number for point in points)]
    dots = report_data.dots
    panels = [
        Panel(
            f"{rubric}, judged by {judge}",
            lambda axes, some=some: _draw(axes, some, dots),
            5.2,
            4.2,
            f"Generation against matching by {rubric}, a point for each skill of each model",
        )
        for (rubric, judge), some in _by_judge(points).items()
    ]
    return Section(
        "understanding",
        "Matching and generation, skill by skill",
        [
            "Each point is a skill of a model. Across: the mean over the skill's tasks of"
            " (accuracy − chance) / (1 − chance). Up: the mean score that an automatic judge gives to the skill in"
            " generated images. Intervals are 95%, as if tasks were independent.",
            *(f"{rubric}, {judge}: {_correlations(some)}" for (rubric, judge), some in _by_judge(points).items()),
        ],
        legend=marks,
        panels=panels,
        tables=[_table(report_data, points)],
        records={"understanding.csv": [_record(report_data, point) for point in points]},
        pictures={"understanding.png": (panels, marks, 1)},
    )


def _by_judge(points: list[_Point]) -> dict[tuple[str, str], list[_Point]]:
    found: dict[tuple[str, str], list[_Point]] = {}
    for point in points:
        found.setdefault((point.rubric, point.judge), []).append(point)
    return found


def _points(report_data: ReportData) -> Iterator[_Point]:
    for pictures in report_data.drawn:
        judged = [one for one in judgements.read_all(pictures) if _is_current(one)]
        for place, run in enumerate(report_data.runs):
            weights = run.config["identity"].get("scorer", {}).get("model")
            labels = [model.label for model in pictures.models if weights and model.fingerprint == weights]
            for label in labels:
                for one in judged:
                    yield from _of_model(place, run, label, one)


def _is_current(judged: Judgement) -> bool:
    """Whether results are of a rubric as it is now. A warning names results of an earlier version."""
    rubric = rubrics.RUBRICS.get(judged.rubric)
    if rubric is not None and rubric.version != judged.version:
        warnings.warn(
            f"results of {judged.judge} by {judged.rubric} are of version {judged.version} and left out, since the"
            f" rubric now has version {rubric.version}: give the same winobench judge command again",
            stacklevel=2,
        )
    return rubric is not None and rubric.version == judged.version


def _of_model(place: int, run: Run, label: str, judged: Judgement) -> Iterator[_Point]:
    results = judged.models.get(label, {})
    groups = rubrics.RUBRICS[judged.rubric].skills
    for skill in SKILLS:
        entries = [
            results[metric][group]
            for (metric, group), measured in groups.items()
            if measured == skill and group in results.get(metric, {})
        ]
        matched = dict(_matched(run, skill))
        if entries and matched:
            generation = metrics.mean_of_means([*map(judgements.interval, entries)])
            mark = max(map(few_mark, entries))
            matching = metrics.mean_of_means([*matched.values()])
            yield _Point(place, skill, matching, tuple(matched), generation, mark, judged.rubric, judged.who)


def _matched(run: Run, skill: str) -> Iterator[tuple[str, Interval]]:
    """The tasks of a skill, with their headline value on the way from chance to a perfect answer."""
    for name, record in run.tasks.items():
        if name not in TASKS or skill not in TASKS[name].skills or record.judge is None:
            continue
        entry = record.results.get(record.judge.headline)
        if entry and entry["chance"] is not None:
            ends = (entry["value"], entry["low"], entry["high"])
            yield name, Interval(*(above_chance(end, entry["chance"], record.best) for end in ends))


def _draw(axes: Any, points: list[_Point], marks: list[Mark]) -> None:
    axes.axvline(0, color=figures.GRID, linewidth=1, zorder=1)
    for point in points:
        mark = marks[point.run]
        x, y = 100 * np.array(point.matching), 100 * np.array(point.generation)
        bars = {"xerr": [[x[0] - x[1]], [x[2] - x[0]]]}
        if not np.isnan(y[1]):
            bars["yerr"] = [[y[0] - y[1]], [y[2] - y[0]]]
        axes.errorbar(x[0], y[0], **bars, color=mark.colour, marker=mark.marker, elinewidth=0.7, alpha=0.9)
        axes.annotate(readable(point.skill), (x[0], y[0]), (4, 4), textcoords="offset points", fontsize=7)
    axes.set(xlabel="matching: % of the way from chance", ylabel="generation: judge's score, %", ylim=(-3, 103))


def _correlations(points: list[_Point]) -> str:
    """The correlation over all points, and for each skill over models."""
    said = [f"over all {len(points)} points, {_correlation(points)}"]
    by_skill: dict[str, list[_Point]] = {}
    for point in points:
        by_skill.setdefault(point.skill, []).append(point)
    said += [f"{readable(skill)} over {len(some)} models, {_correlation(some)}" for skill, some in by_skill.items()]
    return "; ".join(said) + "."


def _correlation(points: list[_Point]) -> str:
    found = analysis.pearson([point.matching.value for point in points], [point.generation.value for point in points])
    if found is None:
        return "too few points, or equal ones, for a correlation"
    return f"Pearson's correlation is {number(found.value)} [{number(found.low)}, {number(found.high)}]"


def _table(report_data: ReportData, points: list[_Point]) -> Table:
    def cell(found: Interval, mark: str = "") -> Cell:
        ends = "" if np.isnan(found.low) else f"{percent(found.low)} to {percent(found.high)}{mark}"
        return Cell(percent(found.value), ends)

    rows = [
        TableRow(
            [
                Cell(report_data.runs[point.run].label, readable(point.skill)),
                Cell(point.rubric, point.judge),
                cell(point.matching),
                cell(point.generation, point.few_mark),
            ]
        )
        for point in points
    ]
    return Table(["model and skill", "rubric and judge", "matching, above chance, %", "generation, %"], rows)


def _record(report_data: ReportData, point: _Point) -> dict[str, Any]:
    record = {"run": report_data.runs[point.run].label, "skill": point.skill, "tasks": " ".join(point.tasks)}
    record |= {"rubric": point.rubric, "judge": point.judge}
    for name in ("matching", "generation"):
        found = getattr(point, name)
        record |= {f"{name}_{end}": getattr(found, end) for end in Interval._fields}
    return record
