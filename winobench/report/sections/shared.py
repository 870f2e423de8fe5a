"""Building blocks of sections: their data, parts and files, and the choice of what a page shows."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import csv_cells, text_tables
from winobench.metrics.agreement import Rating
from winobench.report import figures
from winobench.report.cards import Card
from winobench.report.cells import Table, TableRow
from winobench.report.figures import Mark, Panel
from winobench.report.panels import to_png
from winobench.report.wording import listed
from winobench.runs.image_runs import Images
from winobench.runs.labels import task_label
from winobench.runs.run import Run, TaskRun

FEW_RUNS = 3  # are compared each with each, more runs with the first
FEWEST_EXAMPLES = 5  # of a figure
# Panels that a section shows at once. The others are folded, unless these are few.
SHOWN_PANELS = 12
_FEW_MORE = 3

# Tasks that charts and the gallery show, and runs that have separate charts or cards.
MOST_CHARTED, MOST_CHARTED_RUNS = 60, 24

_FEWEST_SAMPLES = 4  # of a curve and its band


@dataclasses.dataclass(frozen=True)
class Vote:
    """A run's choice for an image, in a word, whether that is right, and its words."""

    run: int
    choice: str
    is_right: bool
    said: str = ""


@dataclasses.dataclass(frozen=True)
class IllustratedQuestion:
    """A question, its images, and the runs' answers."""

    id: str
    text: str  # the images' subject
    options: Sequence[str]
    right: int | None  # place of the right option
    images: Sequence[tuple[str | None, Sequence[Vote]]]  # `data:` address, or None where the run has kept none
    answers: Sequence[Vote]  # each run's answer in the end
    is_correct: bool  # whether all of them are right


@dataclasses.dataclass(frozen=True)
class Details:
    """Tables, panels, examples or questions with images that are shown when a reader opens them."""

    title: str
    names: str = ""
    tables: Sequence[Table] = ()
    panels: Sequence[Panel] = ()
    questions: Sequence[IllustratedQuestion] = ()
    cards: Sequence[Card] = ()
    is_open: bool = False


@dataclasses.dataclass
class Section:
    """A part of the report."""

    key: str  # of its anchor and its files
    title: str
    intro: list[str]  # sentences on its content and its computation
    legend: list[Mark] = dataclasses.field(default_factory=list)
    panels: list[Panel] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    folds: list[Details] = dataclasses.field(default_factory=list)  # opened on demand
    notes: list[str] = dataclasses.field(default_factory=list)  # sentences below
    # CSV file -> its rows, all with the same keys. PNG file -> (panels, legend, columns).
    records: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    images: dict[str, tuple[list[Panel], list[Mark], int]] = dataclasses.field(default_factory=dict)

    def write_tables(self, folder: pathlib.Path, format: str, labels: Sequence[str]) -> list[str]:
        """Writes the section's tables into one Markdown or LaTeX file, if it has any, and returns the file's name."""
        tables = [("", table) for table in self.tables]
        tables += [(fold.title, table) for fold in self.folds for table in fold.tables]
        parts = []
        for title, table in tables:
            comment = text_tables.comment(format, title or table.caption)
            parts.append(comment + table.written(format, labels))
        if not parts:
            return []
        name = f"{self.key}{text_tables.SUFFIXES[format]}"
        (folder / name).write_text("\n".join(parts), encoding="utf-8")
        return [name]

    def write_files(self, folder: pathlib.Path) -> dict[Panel, str]:
        """Writes the section's CSV and PNG files and returns the drawings of the panels in these."""
        for name, rows in self.records.items():
            with (folder / name).open("w", newline="", encoding="utf-8") as file:
                file.write(csv_cells.write_rows(list(rows[0]), rows))
        drawn: dict[Panel, str] = {}
        for name, (panels, legend, columns) in self.images.items():
            drawn |= to_png(panels, folder / name, legend=legend, columns=columns)
        return drawn

    @property
    def files(self) -> list[str]:
        """The names of the files that the section writes."""
        return [*self.records, *self.images]


@dataclasses.dataclass
class ReportData:
    """The runs, and data that several sections need."""

    runs: list[Run]  # in the order of the columns
    resamples: int  # of a bootstrap
    seed: int  # of all resamples
    ratings: Sequence[Rating] | None = None  # people's answers to the questions of WSC+
    examples: int = 0  # in a task's gallery
    fit_timesteps: bool = False  # learn weights of timesteps
    image_runs: Sequence[Images] = ()  # runs of images, with a verifier's answers

    @property
    def marks(self) -> list[Mark]:
        """The looks of the runs."""
        return [figures.run_mark(number, run.label) for number, run in enumerate(self.runs)]

    @property
    def dots(self) -> list[Mark]:
        """The looks of the runs where no line is plotted."""
        return [dataclasses.replace(mark, dash=figures.NO_LINE) for mark in self.marks]

    @property
    def legend(self) -> list[Mark]:
        return self.marks if len(self.runs) > 1 else []

    @property
    def is_text(self) -> bool:
        return self.runs[0].is_text

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(task for run in self.runs for task in run.tasks))

    @property
    def charted(self) -> list[str]:
        """The tasks that charts show: the first ones, since a thousand charts are of no use."""
        return self.tasks[:MOST_CHARTED]

    def records(self, task: str) -> list[TaskRun | None]:
        return [run.tasks.get(task) for run in self.runs]

    def names(self, task: str) -> list[str]:
        """The rows of a task's results, in the order in which the runs name them."""
        return list(dict.fromkeys(name for record in self.records(task) if record for name in record.results))

    def entries(self, task: str, name: str) -> list[Mapping[str, Any] | None]:
        return [record.results.get(name) if record else None for record in self.records(task)]

    def images(self, task: str) -> dict[str, bytes]:
        """The kept images of a task, of all runs."""
        kept: dict[str, bytes] = {}
        for run in self.runs:
            if task in run.tasks:
                kept.update(run.images(task))
        return kept

    def csv_rows(
        self, task: str, name: str, called: Mapping[str, str], columns: Sequence[str], **others: Any
    ) -> list[dict[str, Any]]:
        """Rows of a CSV file: a name of a row of a task's results, and columns of it in each run."""
        return [
            {"run": run.label, "task": task, **called, **{column: entry.get(column) for column in columns}, **others}
            for run, entry in zip(self.runs, self.entries(task, name), strict=True)
            if entry
        ]

    def headlines(self, task: str) -> list[str]:
        """The rows of a task that charts and summaries show. Its other ones follow from the same answers."""
        return list(dict.fromkeys(name for record in self.records(task) if record for name in record.shown))

    def best(self, task: str) -> float:
        """The value of perfect answers: 1, or 0 where lower is better."""
        return next(record.best for record in self.records(task) if record)

    def measure(self, task: str, metric: str) -> str:
        """A task's label, with the metric where several are shown."""
        return f"{task_label(task)} {metric}" if len(self.headlines(task)) > 1 else task_label(task)

    def has_bias(self, task: str) -> bool:
        """Whether the task measures effect sizes."""
        return any(record is not None and record.is_bias for record in self.records(task))

    def is_rated(self, task: str) -> bool:
        """Whether the task measures agreement with people's ratings."""
        return any(record is not None and record.is_rated for record in self.records(task))

    def has_answers(self, task: str) -> bool:
        return not (self.has_bias(task) or self.is_rated(task))

    def compared(self) -> list[tuple[int, int]]:
        """Pairs of runs: all of them where they are few, else each with the first."""
        numbers = range(len(self.runs))
        if len(self.runs) <= FEW_RUNS:
            return list(itertools.combinations(numbers, 2))
        return [(0, number) for number in numbers[1:]]


def sub_task_folds(columns: Sequence[str | int], parts: Mapping[str, Sequence[TableRow]]) -> list[Details]:
    """The rows of tasks' sub-tasks, a fold a task, for as many tasks as have charts."""
    return [
        Details(f"Sub-tasks of {task_label(task)} ({len(rows)})", tables=[Table(columns, rows)])
        for task, rows in itertools.islice(parts.items(), MOST_CHARTED)
    ]


def collapsed(panels: Sequence[tuple[str, Panel]]) -> tuple[list[Panel], list[Details]]:
    """The first of many panels, each with its task, to show at once, and folds of the others under their tasks."""
    drawn = [panel for _, panel in panels]
    if len(panels) <= SHOWN_PANELS + _FEW_MORE:
        return drawn, []
    tasks = list(dict.fromkeys(task for task, _ in panels[SHOWN_PANELS:]))
    title = "1 more task" if len(tasks) == 1 else f"{len(tasks)} more tasks"
    return drawn[:SHOWN_PANELS], [Details(title, "; ".join(map(task_label, tasks)), panels=drawn[SHOWN_PANELS:])]


def most_first(counts: np.ndarray, seed: int) -> np.ndarray:
    """The order of items by falling counts, [n], at random among equal ones."""
    order = np.random.default_rng(seed).permutation(len(counts))
    return order[np.argsort(-counts[order], kind="stable")]


def too_few_examples(record: TaskRun) -> bool:
    """Whether a sampled task has too few samples or examples for a curve."""
    if record.num_samples is not None and record.num_samples < _FEWEST_SAMPLES:
        return True
    return record.examples is not None and len(record.examples.ids) < FEWEST_EXAMPLES


def without_curve(report_data: ReportData, few: Mapping[str, Sequence[str]]) -> str:
    """The sentence on tasks, and the runs of each, that have no curve."""
    sampled = [run for run in report_data.runs if any(not record.deterministic for record in run.tasks.values())]
    by_runs: dict[tuple[str, ...], list[str]] = {}
    for task, labels in few.items():
        by_runs.setdefault(tuple(labels), []).append(task)
    parts = [
        listed(tasks) + ("" if len(labels) == len(sampled) else f" ({', '.join(labels)})")
        for labels, tasks in by_runs.items()
    ]
    return (
        f"No curves, which would say nothing with fewer than {_FEWEST_SAMPLES} samples a pair or {FEWEST_EXAMPLES} "
        f"examples: {'; '.join(parts)}."
    )
