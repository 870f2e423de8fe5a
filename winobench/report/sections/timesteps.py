"""Error against timestep, for right and for wrong candidates."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report import analysis, figures
from winobench.report.figures import Margins, Mark, Panel
from winobench.report.sections.shared import (
    MOST_CHARTED_RUNS,
    Details,
    ReportData,
    Section,
    collapsed,
    too_few_examples,
    without_curve,
)
from winobench.runs.labels import task_label
from winobench.runs.run import Run, TaskRun

_MARGINS = Margins(left=0.72, top=0.2)  # above stands a power of ten of the vertical axis
_SIZE = (2.9, 2.2)

_RIGHT = Mark("right candidates", figures.RIGHT, "o")
_WRONG = Mark("wrong candidates", figures.WRONG, "s", figures.DASHES[1])
_GAP = Mark("wrong − right", figures.BOTH, "D")
_LEGEND = [_RIGHT, _WRONG, _GAP]


def timestep_section(report_data: ReportData) -> Section | None:
    """Error against timestep for right and wrong candidates (Figure 3)."""
    shown, folds, notes, rows, images = [], [], [], [], {}
    few: dict[str, list[str]] = {}
    for number, run in enumerate(report_data.runs):
        sampled = [
            task for task in run.tasks.values() if task.has_answers and not (task.deterministic or task.metric is None)
        ]
        timed = [record for record in sampled if record.timesteps is not None]
        if len(timed) < len(sampled):
            notes.append(f"{run.label} did not record its timesteps: evaluate again to see it here.")
        for record in filter(too_few_examples, timed):
            few.setdefault(record.name, []).append(run.label)
        of_tasks = {record.name: _profile(run, record) for record in timed if not too_few_examples(record)}
        profiles = {task: profile for task, profile in of_tasks.items() if profile is not None}
        rows += _records(run, profiles)
        charted = report_data.charted if number < MOST_CHARTED_RUNS else ()
        drawn = [(task, profiles[task]) for task in charted if task in profiles]
        panels = [(task, panel) for task, profile in drawn for panel in _timestep_panels(task, profile)]
        if panels:
            name = "timesteps.png" if len(report_data.runs) == 1 else f"timesteps-{number + 1}.png"
            images[name] = ([panel for _, panel in panels], _LEGEND, 4)
            first, more = collapsed(panels)
            if len(report_data.runs) == 1:
                shown, folds = first, more
            else:
                folds.append(Details(run.label, panels=first, is_open=not folds))
                folds += [dataclasses.replace(fold, title=f"{run.label}, {fold.title}") for fold in more]
    if few:
        notes.append(without_curve(report_data, few))
    title = "Error against timestep"
    if not rows:
        return Section("timesteps", title, notes) if few else None
    return Section(
        "timesteps",
        title,
        [
            "Mean error of right and of wrong pairs of image and text, in bins of the timestep with about as many "
            "samples each. The first charts have the error itself, which depends on the image far more than on the "
            "text. The next ones subtract the error of the same image with the empty text. Without such a score, they "
            "show wrong less right. "
            "The bands are 95% intervals of the mean over images."
        ],
        legend=_LEGEND,
        panels=shown,
        folds=folds,
        notes=notes,
        records={"timesteps.csv": rows},
        images=images,
    )


def _profile(run: Run, record: TaskRun) -> analysis.Profile | None:
    """A task's profile, or None where its errors are not complete."""
    batches, timesteps = run.batches(record.name), record.timesteps
    if batches is None or timesteps is None or batches[0].own.shape[-1] != len(timesteps):
        return None
    return analysis.timestep_profile(batches, timesteps, record.answered.targets, record.answered.dependence)


def _records(run: Run, profiles: Mapping[str, analysis.Profile]) -> list[dict[str, Any]]:
    return [
        {
            "run": run.label,
            "task": task,
            "series": name,
            "first_timestep": first,
            "last_timestep": last,
            "mean_timestep": float(timestep),
            "mean": float(mean),
            "low": float(low),
            "high": float(high),
        }
        for task, profile in profiles.items()
        for name, values in profile.series.items()
        for (first, last), timestep, mean, low, high in zip(profile.edges, profile.timesteps, *values, strict=True)
    ]


def _timestep_panels(task: str, profile: analysis.Profile) -> list[Panel]:
    series = profile.series
    absolute = [(_RIGHT, series["right"]), (_WRONG, series["wrong"])]
    if "right_relative" in series:
        relative = [(_RIGHT, series["right_relative"]), (_WRONG, series["wrong_relative"])]
        title, ylabel = "relative", "error less unconditional"
    else:
        relative = [(_GAP, series["wrong_minus_right"])]
        title, ylabel = "difference", "wrong less right"

    def panel(title: str, lines: Sequence[tuple[Mark, np.ndarray]], ylabel: str, *, zero: bool) -> Panel:
        def draw(axes) -> None:
            figures.timestep_lines(axes, profile.timesteps, lines, ylabel, zero=zero)

        return Panel(f"{task_label(task)}, {title}", draw, *_SIZE, margins=_MARGINS)

    return [panel("error", absolute, "error", zero=False), panel(title, relative, ylabel, zero=True)]
