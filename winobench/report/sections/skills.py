"""Skills over tasks of several data sets: macro means, in which each task weighs the same."""

from __future__ import annotations

import dataclasses

import numpy as np

from winobench.report import figures, radar
from winobench.report.figures import Panel
from winobench.report.sections.shared import (
    Cell,
    ReportData,
    Section,
    Table,
    TableRow,
    above_chance,
    percent,
    readable,
)
from winobench.runs.labels import task_label
from winobench.tasks import TASKS
from winobench.tasks.base import SKILLS

_FEWEST_TASKS = 2
_FEWEST_AXES = 3


@dataclasses.dataclass(frozen=True)
class SkillMean:
    """A skill of all runs.

    Attributes:
      skill: a key of `winobench.tasks.base.SKILLS`.
      tasks: that every run has, with a known chance.
      values: [runs] mean of the tasks' headline values.
      above: [runs] mean of how far they are on the way from chance, 0, to a perfect answer, 1.
    """

    skill: str
    tasks: tuple[str, ...]
    values: np.ndarray
    above: np.ndarray


def skill_means(report_data: ReportData) -> list[SkillMean]:
    """The skills that two tasks or more ask for in every run, in the order of `SKILLS`."""
    entries = {task: _headlines(report_data, task) for task in report_data.tasks if task in TASKS}
    found = []
    for skill in SKILLS:
        tasks = tuple(task for task, of_runs in entries.items() if of_runs and skill in TASKS[task].skills)
        if len(tasks) < _FEWEST_TASKS:
            continue
        values = np.array([[entry["value"] for entry in entries[task]] for task in tasks])
        chances = np.array([entries[task][0]["chance"] for task in tasks])
        best = np.array([report_data.best(task) for task in tasks])
        above = above_chance(values, chances[:, None], best[:, None])
        found.append(SkillMean(skill, tasks, values.mean(axis=0), above.mean(axis=0)))
    return found


def _headlines(report_data: ReportData, task: str) -> list:
    """The row of a task's headline in each run. Empty where a run lacks it, and where its chance is not known."""
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
            records.append(
                {
                    "run": run.label,
                    "skill": mean.skill,
                    "value": float(value),
                    "above_chance": float(above),
                    "num_tasks": len(mean.tasks),
                    "tasks": " ".join(mean.tasks),
                }
            )
    section = Section(
        "skills",
        "Skills",
        [
            "Means over the tasks that ask for a skill, of the value by which a task counts as right or wrong. Each "
            "task weighs the same, whatever its size. Only tasks that every run has are counted. The way from chance "
            "to all right is (value − chance) / (1 − chance), task by task, and then its mean. Intervals are those of "
            "the tasks, in their table."
        ],
        tables=[Table(["skill", *range(len(report_data.runs))], rows, "Macro means in percent, by skill")],
        notes=[f"{readable(mean.skill)}: {'; '.join(map(task_label, mean.tasks))}." for mean in means],
        records={"skills.csv": records},
    )
    if len(means) >= _FEWEST_AXES:
        _add_chart(section, report_data, means)
    return section


def _add_chart(section: Section, report_data: ReportData, means: list[SkillMean]) -> None:
    labels = radar.radar_labels([readable(mean.skill) for mean in means])
    series = [(mark, np.array([mean.above[run] for mean in means])) for run, mark in enumerate(report_data.marks)]

    def draw(where) -> None:
        radar.radar(where, labels, series)

    description = "Radar chart: how far each run is above chance, skill by skill"
    panel = Panel("Skills", draw, labels.width, labels.height, description, figures.NO_MARGINS)
    section.legend = report_data.marks
    section.panels = [panel]
    section.pictures = {"skills.png": ([panel], report_data.marks, 1)}
