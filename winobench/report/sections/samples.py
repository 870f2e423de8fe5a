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
class _Found:
    """Of a task, number of a run -> metric -> curve, or value without samples; labels of runs without either."""

    curves: dict[int, Mapping[str, analysis.Curve]] = dataclasses.field(default_factory=dict)
    levels: dict[int, dict[str, float]] = dataclasses.field(default_factory=dict)
    few: list[str] = dataclasses.field(default_factory=list)
    raced: list[str] = dataclasses.field(default_factory=list)
    lost: list[str] = dataclasses.field(default_factory=list)


def sample_section(report_data: ReportData) -> Section | None:
    """Accuracy against the number of samples (Figure 9)."""
    found = {task: _find(report_data, task) for task in report_data.tasks if report_data.has_answers(task)}
    charted = report_data.charted
    panels = [
        (task, _curve_panel(report_data, task, metric, one))
        for task, one in found.items()
        if task in charted
        for metric in _drawn(report_data, task, one)
    ]
    few = {task: one.few for task, one in found.items() if one.few}
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
        records={"samples.csv": [row for task, one in found.items() for row in _records(report_data, task, one)]},
        pictures={"samples.png": ([panel for _, panel in panels], report_data.legend, 3)},
    )
    if few:
        section.notes.append(without_curve(report_data, few))
    raced = dict.fromkeys(label for one in found.values() for label in one.raced)
    if raced:
        section.notes.append(f"{', '.join(raced)} raced: pairs have different numbers of samples.")
    lost = [f"{task_label(task)} of {label}" for task, one in found.items() for label in one.lost]
    if lost:
        section.notes.append(f"No complete errors that give the scores are recorded for {'; '.join(lost)}.")
    return section


def _find(report_data: ReportData, task: str) -> _Found:
    found = _Found()
    for place, (run, record) in enumerate(zip(report_data.runs, report_data.records(task), strict=True)):
        if record is None or record.judge is None:
            continue
        if record.deterministic or record.num_samples == 1:
            found.levels[place] = {metric: entry["value"] for metric, entry in record.results.items()}
        elif too_few_examples(record):
            found.few.append(run.label)
        elif run.has_raced(task):
            found.raced.append(run.label)
        elif (batches := run.batches(task)) is None:
            found.lost.append(run.label)
        else:
            targets = record.examples.targets
            found.curves[place] = analysis.accuracy_by_samples(batches, targets, record.judge, seed=report_data.seed)
    return found


def _drawn(report_data: ReportData, task: str, found: _Found) -> list[str]:
    """The metrics that have a panel each."""
    return [
        metric for metric in report_data.headlines(task) if any(metric in curves for curves in found.curves.values())
    ]


def _records(report_data: ReportData, task: str, found: _Found) -> list[dict[str, Any]]:
    rows = []
    for place, curves in found.curves.items():
        for metric, curve in curves.items():
            asked = {"run": report_data.runs[place].label, "task": task, "metric": metric}
            rows += [
                {**asked, "samples": int(size), "mean": float(mean), "low": float(low), "high": float(high)}
                for size, mean, low, high in zip(curve.sizes, curve.mean, curve.low, curve.high, strict=True)
            ]
    for metric in _drawn(report_data, task, found):
        for place, levels in found.levels.items():
            if metric in levels:
                asked = {"run": report_data.runs[place].label, "task": task, "metric": metric}
                rows.append({**asked, "samples": 1, **dict.fromkeys(("mean", "low", "high"), levels[metric])})
    return rows


def _curve_panel(report_data: ReportData, task: str, metric: str, found: _Found) -> Panel:
    marks = report_data.marks
    curves = [(marks[place], values[metric]) for place, values in found.curves.items() if metric in values]
    lines = [(mark, curve.sizes, curve.mean, curve.low, curve.high) for mark, curve in curves]
    flat = [(marks[place], values[metric]) for place, values in found.levels.items() if metric in values]
    chance = next((entry["chance"] for entry in report_data.entries(task, metric) if entry), None)
    title = task_label(task) if metric == "accuracy" else f"{task_label(task)}, {metric}"
    ends = "; ".join(
        f"{mark.label} reaches {percent(mean[-1])}% with {sizes[-1]} samples" for mark, sizes, mean, *_ in lines
    )
    return Panel(title, lambda axes: figures.sample_curves(axes, lines, flat, chance), description=f"{title}: {ends}")
