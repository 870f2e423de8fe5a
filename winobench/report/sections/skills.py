"""Skills over tasks of several data sets: macro means, in which each task weighs the same."""

from __future__ import annotations

import dataclasses

import numpy as np

from winobench.report.cells import Cell, Table, TableRow
from winobench.report.radar import radar_panel
from winobench.report.sections.shared import ReportData, Section
from winobench.report.wording import above_chance, percent, readable
from winobench.runs.labels import task_label
from winobench.tasks import TASKS
from winobench.tasks.base import SKILLS

_FEWEST_TASKS = 2
_FEWEST_AXES = 3


@dataclasses.dataclass(frozen=True)
class SkillMean:
    """A skill of all runs."""

    skill: str  # a key of `winobench.tasks.base.SKILLS`
    tasks: tuple[str, ...]  # that every run has, with a known chance
    values: np.ndarray  # [runs] mean of the tasks' headline values
    above: np.ndarray  # [runs] mean of their share of the way from chance, 0, to a perfect answer, 1


def skill_means(report_data: ReportData) -> list[SkillMean]:
    """The skills of at least two tasks in every run, in the order of `SKILLS`."""
    entries = {task: _headlines(report_data, task) for task in report_data.tasks if task in TASKS}
    means = []
    for skill in SKILLS:
        tasks = tuple(task for task, of_runs in entries.items() if of_runs and skill in TASKS[task].skills)
        if len(tasks) < _FEWEST_TASKS:
            continue
        values = np.array([[entry["value"] for entry in entries[task]] for task in tasks])
        chances = np.array([[entry["chance"] for entry in entries[task]] for task in tasks])
        best = np.array([report_data.best(task) for task in tasks])
        above = above_chance(values, chances, best[:, None])
        means.append(SkillMean(skill, tasks, values.mean(axis=0), above.mean(axis=0)))
    return means


def _headlines(report_data: ReportData, task: str) -> list:
    """A task's headline row in each run. Empty where a run lacks it, and where its chance is not known."""
    record = next(record for record in report_data.records(task) if record)
    if record.judge is None:
        return []
    entries = report_data.entries(task, record.judge.headline)
    complete = all(entry is not None and entry["chance"] is not None for entry in entries)
    return entries if complete else []


def skill_section(report_data: ReportData) -> Section | None:
    """Skills over tasks, with a chart where there are three or more."""
    means = skill_means(report_data)
    if not means:
        return None
    rows, records = [], []
    for mean in means:
        cells = [
            Cell(percent(value), below=f"{percent(above)} of the way from chance")
            for value, above in zip(mean.values, mean.above, strict=True)
        ]
        rows.append(TableRow([Cell(readable(mean.skill), small=f"{len(mean.tasks)} tasks"), *cells]))
        for run, value, above in zip(report_data.runs, mean.values, mean.above, strict=True):
            values = {"value": float(value), "above_chance": float(above)}
            counted = {"num_tasks": len(mean.tasks), "tasks": " ".join(mean.tasks)}
            records.append({"run": run.label, "skill": mean.skill, **values, **counted})
    section = Section(
        "skills",
        "Skills",
        [
            "Each number is a mean over the tasks of a skill, of the value that marks right answers. Each task has "
            "the same weight. Only tasks of every run count. The way from chance to all right is "
            "(value − chance) / (1 − chance), task by task, and then its mean. The tasks' table has intervals."
        ],
        tables=[Table(["skill", *range(len(report_data.runs))], rows, "Macro means in percent, by skill")],
        notes=[f"{readable(mean.skill)}: {'; '.join(map(task_label, mean.tasks))}." for mean in means],
        records={"skills.csv": records},
    )
    if len(means) >= _FEWEST_AXES:
        series = [(mark, np.array([mean.above[run] for mean in means])) for run, mark in enumerate(report_data.marks)]
        description = "Radar chart: how far each run is above chance, skill by skill"
        section.legend = report_data.marks
        section.panels = [radar_panel("Skills", [readable(mean.skill) for mean in means], series, description)]
        section.images = {"skills.png": (section.panels, report_data.marks, 1)}
    return section
