"""Accuracy against the number of samples."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from winobench.report import analysis, figures
from winobench.report.figures import Panel
from winobench.report.sections.shared import ReportData, Section, collapsed, too_few_examples, without_curve
from winobench.report.wording import percent
from winobench.runs.labels import task_label


@dataclasses.dataclass
class _TaskCurves:
    """Curves of a task: number of a run -> metric -> curve, or value without samples. Labels of runs without either."""

    curves: dict[int, Mapping[str, analysis.Curve]] = dataclasses.field(default_factory=dict)
    levels: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)
    few: list[str] = dataclasses.field(default_factory=list)
    raced: list[str] = dataclasses.field(default_factory=list)
    lost: list[str] = dataclasses.field(default_factory=list)


def sample_section(report_data: ReportData) -> Section | None:
    """Accuracy against the number of samples (Figure 9)."""
    curves = {task: _find(report_data, task) for task in report_data.tasks if report_data.has_answers(task)}
    charted = report_data.charted
    panels = [
        (task, _curve_panel(report_data, task, metric, task_curves))
        for task, task_curves in curves.items()
        if task in charted
        for metric in _drawn(report_data, task, task_curves)
    ]
    few = {task: task_curves.few for task, task_curves in curves.items() if task_curves.few}
    if not panels and not few:
        return None
    title = "Accuracy against the number of samples"
    if not panels:
        return Section("samples", title, [without_curve(report_data, few)])
    low, high = analysis.BAND
    shown, folds = collapsed(panels)
    section = Section(
        "samples",
        title,
        [
            f"Each point is the mean over {analysis.SUBSETS} random subsets of a run's own samples (seed "
            f"{report_data.seed}), from the recorded errors and under the task's normalisation. The band holds the "
            f"{low}th to {high}th percentile of the subsets. It closes at the full number by construction, because "
            "there is one such subset only. The dashed grey line is chance. Runs that need no samples are horizontal."
        ],
        legend=report_data.legend,
        panels=shown,
        folds=folds,
        records={
            "samples.csv": [
                row for task, task_curves in curves.items() for row in _records(report_data, task, task_curves)
            ]
        },
        images={"samples.png": ([panel for _, panel in panels], report_data.legend, 3)},
    )
    if few:
        section.notes.append(without_curve(report_data, few))
    raced = dict.fromkeys(label for task_curves in curves.values() for label in task_curves.raced)
    if raced:
        section.notes.append(f"{', '.join(raced)} raced: pairs have different numbers of samples.")
    lost = [f"{task_label(task)} of {label}" for task, task_curves in curves.items() for label in task_curves.lost]
    if lost:
        section.notes.append(f"No complete errors that give the scores are recorded for {'; '.join(lost)}.")
    return section


def _find(report_data: ReportData, task: str) -> _TaskCurves:
    task_curves = _TaskCurves()
    for number, (run, record) in enumerate(zip(report_data.runs, report_data.records(task), strict=True)):
        if record is None or record.judge is None:
            continue
        if record.deterministic or record.num_samples == 1:
            task_curves.levels[number] = {metric: entry["value"] for metric, entry in record.results.items()}
        elif too_few_examples(record):
            task_curves.few.append(run.label)
        elif run.has_raced(task):
            task_curves.raced.append(run.label)
        elif (batches := run.batches(task)) is None:
            task_curves.lost.append(run.label)
        else:
            targets = record.answered.targets
            task_curves.curves[number] = analysis.accuracy_by_samples(
                batches, targets, record.judge, seed=report_data.seed
            )
    return task_curves


def _drawn(report_data: ReportData, task: str, task_curves: _TaskCurves) -> list[str]:
    """The metrics that have a panel each."""
    return [
        metric
        for metric in report_data.headlines(task)
        if any(metric in curves for curves in task_curves.curves.values())
    ]


def _records(report_data: ReportData, task: str, task_curves: _TaskCurves) -> list[dict[str, Any]]:
    rows = []
    for run_number, curves in task_curves.curves.items():
        for metric, curve in curves.items():
            keys = {"run": report_data.runs[run_number].label, "task": task, "metric": metric}
            rows += [
                {**keys, "samples": int(size), "mean": float(mean), "low": float(low), "high": float(high)}
                for size, mean, low, high in zip(curve.sizes, curve.mean, curve.low, curve.high, strict=True)
            ]
    for metric in _drawn(report_data, task, task_curves):
        for run_number, levels in task_curves.levels.items():
            if metric in levels:
                keys = {"run": report_data.runs[run_number].label, "task": task, "metric": metric}
                rows.append({**keys, "samples": 1, **dict.fromkeys(("mean", "low", "high"), levels[metric])})
    return rows


def _curve_panel(report_data: ReportData, task: str, metric: str, task_curves: _TaskCurves) -> Panel:
    marks = report_data.marks
    curves = [
        (marks[run_number], values[metric]) for run_number, values in task_curves.curves.items() if metric in values
    ]
    lines = [(mark, curve.sizes, curve.mean, curve.low, curve.high) for mark, curve in curves]
    flat = [
        (marks[run_number], values[metric]) for run_number, values in task_curves.levels.items() if metric in values
    ]
    chances = {entry["chance"] for entry in report_data.entries(task, metric) if entry}
    chance = chances.pop() if len(chances) == 1 else None  # runs with other questions have another one
    title = task_label(task) if metric == "accuracy" else f"{task_label(task)}, {metric}"
    ends = "; ".join(
        f"{mark.label} reaches {percent(mean[-1])}% with {sizes[-1]} samples" for mark, sizes, mean, *_ in lines
    )
    return Panel(title, lambda axes: figures.sample_curves(axes, lines, flat, chance), description=f"{title}: {ends}")
