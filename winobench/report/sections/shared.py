"""What sections are made of: tables whose cells and CSV rows come from the same records, figures, and their wording."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import csv_cells
from winobench.metrics.agreement import Rating
from winobench.report import figures
from winobench.report.figures import Mark, Panel
from winobench.report.panels import to_png
from winobench.runs.image_runs import Pictures
from winobench.runs.labels import task_label
from winobench.runs.run import Run, TaskRun

FEW_RUNS = 3
"""So many runs are compared each with each. More of them with the first."""

FEWEST_EXAMPLES = 5
"""With fewer examples than this, a figure of them says nothing."""

SHOWN_PANELS = 12
"""Panels that a section shows at once. The others are folded, unless these are few."""

MINUS, DASH = "−", "–"
"""What comes before negative numbers, and in ranges and empty cells."""

NUMBER_COLUMNS = ("value", "low", "high", "n")
"""What CSV files say of every number."""

PROPORTION_COLUMNS = ("value", "low", "high", "chance", "n", "ties")
"""What CSV files say of the results of tasks whose answers are right or wrong."""

_FEW_MORE = 3

MOST_CHARTED, MOST_CHARTED_RUNS = 60, 24
"""Tasks that charts and the gallery show, and runs that have charts or cards of their own."""

# With fewer samples than this, a curve and its band say nothing.
_FEWEST_SAMPLES = 4


@dataclasses.dataclass(frozen=True)
class Bar:
    """A proportion with its interval, plotted next to its number. All in [0, 1]."""

    value: float
    low: float
    high: float
    chance: float | None
    run: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table: text, small print next to and below it, and how it looks."""

    text: str
    small: str = ""
    style: str = ""
    bar: Bar | None = None
    below: str = ""


ABSENT = Cell(DASH, style="absent")
"""The cell of a run that has no such number."""


@dataclasses.dataclass(frozen=True)
class TableRow:
    """A row of cells. A heading row has one cell that spans the table."""

    cells: Sequence[Cell]
    heading: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A table for people.

    Attributes:
      columns: headings. A number instead of a text is a run's.
      rows: the rows.
      caption: what it shows.
    """

    columns: Sequence[str | int]
    rows: Sequence[TableRow]
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Vote:
    """What a run has made of an image: its number, its choice in a word, whether that is right, and what was said."""

    run: int
    choice: str
    is_right: bool
    said: str = ""


@dataclasses.dataclass(frozen=True)
class PicturedQuestion:
    """A question, the images that were asked about, and what runs have made of them.

    Attributes:
      id: of the question.
      text: what the images are of.
      options: what can be answered.
      right: place of the right option.
      pictures: ``data:`` address of each, or None where the run has kept none, and the votes on it.
      answers: what each run answers in the end.
      is_correct: whether all of them are right.
    """

    id: str
    text: str
    options: Sequence[str]
    right: int
    pictures: Sequence[tuple[str | None, Sequence[Vote]]]
    answers: Sequence[Vote]
    is_correct: bool


@dataclasses.dataclass(frozen=True)
class Details:
    """Tables, panels or questions with images that are shown when a reader opens them."""

    title: str
    names: str = ""
    tables: Sequence[Table] = ()
    panels: Sequence[Panel] = ()
    questions: Sequence[PicturedQuestion] = ()
    is_open: bool = False


@dataclasses.dataclass
class Section:
    """A part of the report.

    Attributes:
      key: of its anchor and the files that it writes.
      title: its heading.
      intro: sentences on what is shown and how it is computed.
      legend: looks of what the figures show.
      panels: figures that the page shows at once.
      tables: tables that the page shows at once.
      folds: what is shown on demand.
      notes: sentences below.
      records: name of a CSV file -> its rows, all with the same keys.
      pictures: name of a PNG file -> (panels, legend, columns).
    """

    key: str
    title: str
    intro: list[str]
    legend: list[Mark] = dataclasses.field(default_factory=list)
    panels: list[Panel] = dataclasses.field(default_factory=list)
    tables: list[Table] = dataclasses.field(default_factory=list)
    folds: list[Details] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    records: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    pictures: dict[str, tuple[list[Panel], list[Mark], int]] = dataclasses.field(default_factory=dict)

    def write_files(self, folder: pathlib.Path) -> dict[Panel, str]:
        """Writes the section's CSV and PNG files and returns the drawings of the panels in these."""
        for name, rows in self.records.items():
            with (folder / name).open("w", newline="", encoding="utf-8") as file:
                file.write(csv_cells.write_rows(list(rows[0]), rows))
        drawn = {}
        for name, (panels, legend, columns) in self.pictures.items():
            drawn |= to_png(panels, folder / name, legend=legend, columns=columns)
        return drawn

    @property
    def files(self) -> list[str]:
        """Names of the files that the section writes."""
        return [*self.records, *self.pictures]


@dataclasses.dataclass
class ReportData:
    """The runs, and what several sections need of them.

    Attributes:
      runs: in the order of the columns.
      resamples: of a bootstrap.
      seed: of all draws.
      ratings: people's answers to the questions of WSC+; None for none.
      examples: to show a task; 0 for none.
      fit_timesteps: learn weights of timesteps.
      drawn: runs of images, with what a verifier says of them.
    """

    runs: list[Run]
    resamples: int
    seed: int
    ratings: Sequence[Rating] | None = None
    examples: int = 0
    fit_timesteps: bool = False
    drawn: Sequence[Pictures] = ()

    @property
    def marks(self) -> list[Mark]:
        """The looks of the runs."""
        return [figures.run_mark(number, run.label) for number, run in enumerate(self.runs)]

    @property
    def dots(self) -> list[Mark]:
        """The looks of the runs where nothing is plotted as a line."""
        return [dataclasses.replace(mark, dash=figures.NO_LINE) for mark in self.marks]

    @property
    def legend(self) -> list[Mark]:
        """The looks of the runs, where there are several."""
        return self.marks if len(self.runs) > 1 else []

    @property
    def is_text(self) -> bool:
        """Whether the runs are of text benchmarks. They all are, or none is."""
        return self.runs[0].is_text

    @property
    def tasks(self) -> list[str]:
        """All tasks, in the order in which the runs name them."""
        return list(dict.fromkeys(task for run in self.runs for task in run.tasks))

    @property
    def charted(self) -> list[str]:
        """The tasks that charts show: the first ones, as nobody looks at a thousand charts."""
        return self.tasks[:MOST_CHARTED]

    def records(self, task: str) -> list[TaskRun | None]:
        """The task in each run."""
        return [run.tasks.get(task) for run in self.runs]

    def names(self, task: str) -> list[str]:
        """The rows of a task's results, in the order in which the runs name them."""
        return list(dict.fromkeys(name for record in self.records(task) if record for name in record.results))

    def entries(self, task: str, name: str) -> list[Mapping[str, Any] | None]:
        """A row of a task's results in each run."""
        return [record.results.get(name) if record else None for record in self.records(task)]

    def csv_rows(
        self, task: str, name: str, called: Mapping[str, str], columns: Sequence[str], **others: Any
    ) -> list[dict[str, Any]]:
        """Rows of a CSV file: what a row of a task's results is called there, and columns of it in each run."""
        return [
            {"run": run.label, "task": task, **called, **{column: entry[column] for column in columns}, **others}
            for run, entry in zip(self.runs, self.entries(task, name), strict=True)
            if entry
        ]

    def headlines(self, task: str) -> list[str]:
        """The rows that charts and summaries show of a task. Its other ones follow from the same answers."""
        return list(dict.fromkeys(name for record in self.records(task) if record for name in record.shown))

    def best(self, task: str) -> float:
        """Value of a perfect answer to everything: 1, or 0 where lower is better."""
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
        """Whether the task's examples are right or wrong, each by itself."""
        return not (self.has_bias(task) or self.is_rated(task))

    def compared(self) -> list[tuple[int, int]]:
        """Pairs of runs: all of them where they are few, else each with the first."""
        numbers = range(len(self.runs))
        if len(self.runs) <= FEW_RUNS:
            return list(itertools.combinations(numbers, 2))
        return [(0, number) for number in numbers[1:]]


def percent(value: float, sign: bool = False) -> str:
    """A proportion in percent with one decimal."""
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", MINUS)


def number(value: float, digits: int = 2) -> str:
    """A number with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", MINUS)


def probability(value: float) -> str:
    """A p-value with the digits that it needs."""
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def readable(name: str) -> str:
    """A name of the results in words: ``macro_accuracy`` is ``macro accuracy``."""
    return name.replace("_", " ")


def spread_of(values: set[int]) -> str:
    """One number, or the least and the most where runs differ."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}{DASH}{high:,}"


def above_chance(value: float, chance: float, best: float = 1.0) -> float:
    """How far a value is on the way from guessing, 0, to a perfect answer, 1."""
    return (value - chance) / (best - chance)


def listed(tasks: Sequence[str]) -> str:
    """The labels of tasks, which may have commas, as the end of a sentence."""
    return "; ".join(map(task_label, tasks))


def proportion_cell(entry: Mapping[str, Any] | None, run: int) -> Cell:
    """The cell of a proportion: value, interval and bar; ``run`` is the number of its run."""
    if not entry:
        return ABSENT
    bar = Bar(entry["value"], entry["low"], entry["high"], entry["chance"], run)
    return Cell(percent(entry["value"]), f"{percent(entry['low'])} to {percent(entry['high'])}", "value", bar)


def drawn_values(entries: Sequence[Mapping[str, Any] | None]) -> np.ndarray:
    """[3, n] float64 values and the ends of their intervals; NaN if missing."""
    keys = ("value", "low", "high")
    return np.array([[entry[key] if entry else np.nan for entry in entries] for key in keys], np.float64)


def sub_task_folds(columns: Sequence[str | int], parts: Mapping[str, Sequence[TableRow]]) -> list[Details]:
    """The rows of tasks' sub-tasks, a fold a task, of as many tasks as have charts."""
    return [
        Details(f"Sub-tasks of {task_label(task)} ({len(rows)})", tables=[Table(columns, rows)])
        for task, rows in itertools.islice(parts.items(), MOST_CHARTED)
    ]


def collapsed(panels: Sequence[tuple[str, Panel]]) -> tuple[list[Panel], list[Details]]:
    """What a section shows of many panels, each with its task, at once, and the others under the names of theirs."""
    drawn = [panel for _, panel in panels]
    if len(panels) <= SHOWN_PANELS + _FEW_MORE:
        return drawn, []
    tasks = list(dict.fromkeys(task for task, _ in panels[SHOWN_PANELS:]))
    title = "1 more task" if len(tasks) == 1 else f"{len(tasks)} more tasks"
    return drawn[:SHOWN_PANELS], [Details(title, "; ".join(map(task_label, tasks)), panels=drawn[SHOWN_PANELS:])]


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
