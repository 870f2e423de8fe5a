"""What a report says: tables whose cells and CSV rows come from the same records, and figures with theirs."""

from __future__ import annotations

import csv
import dataclasses
import datetime
import itertools
import math
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.evaluation.published import source
from winobench.evaluation.report import analysis, figures, paper
from winobench.evaluation.report.figures import Margins, Mark, Panel
from winobench.evaluation.report.labels import task_label
from winobench.evaluation.report.runs import Run, TaskRun

STARS_BELOW = 0.01
"""One-sided p-value under which an effect size gets a star (paper, Tables 3 and 5)."""

CLEVR_LABELS = {
    "pair_binding_size": "Pair binding (size)",
    "pair_binding_color": "Pair binding (colour)",
    "binding_shape_color": "Binding (shape | colour)",
    "binding_color_shape": "Binding (colour | shape)",
    "recognition_color": "Recognition (colour)",
    "recognition_shape": "Recognition (shape)",
    "spatial": "Spatial",
}
"""CLEVR's sub-tasks in the order of the paper's Table 6."""

# Proportions that have a panel of their own; macro means and the easier recall@5 follow the headline.
_CURVE_METRICS = ("accuracy", "recall@1", "text", "image", "group")
_HEADLINE_METRICS = ("accuracy", "recall@1", "text", "image")
_RADAR_METRICS = (*_HEADLINE_METRICS, "group")
_PART_METRICS = ("text", "image", "group")
_FEWEST_AXES = 3
# Where there are more axes than this without them, tasks that the paper lacks and that ask what others ask in another
# form stay off the radar chart.
_MANY_AXES = 12
_OTHER_FORMS = ("clevr_image", "clevr_winoground", "pets_photo")
# Panels that a section shows at once; the others are folded, unless these are few.
_SHOWN_PANELS, _FEW_MORE = 12, 3
# With fewer samples or examples than this, a curve and its band say nothing.
_FEWEST_SAMPLES, _FEWEST_EXAMPLES = 4, 5
_FEW_RUNS = 3
_MOST_SETS = 8
_SAME_VALUE = 1e-9
# Above, a power of ten that the numbers of the vertical axis are to be multiplied by.
_TIMESTEP_MARGINS = Margins(left=0.72, top=0.2)
_TIMESTEP_SIZE = (2.9, 2.2)
_CLEVR_TABLE, _BIAS_TABLES = ("6",), ("3", "5")
_MINUS, _DASH = "−", "–"


@dataclasses.dataclass(frozen=True)
class Bar:
    """A proportion with its interval, drawn beside its number; all in [0, 1]."""

    value: float
    low: float
    high: float
    chance: float | None
    run: int


@dataclasses.dataclass(frozen=True)
class Cell:
    """One cell of a table: text, small print beside and below it, and how it looks."""

    text: str
    small: str = ""
    style: str = ""
    bar: Bar | None = None
    below: str = ""


@dataclasses.dataclass(frozen=True)
class TableRow:
    """A row of cells; a heading row has one cell that spans the table."""

    cells: Sequence[Cell]
    heading: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A table for people.

    Attributes:
      columns: headings; a number in place of a text is a run's.
      rows: the rows.
      caption: what it shows.
    """

    columns: Sequence[str | int]
    rows: Sequence[TableRow]
    caption: str = ""


@dataclasses.dataclass(frozen=True)
class Fold:
    """Tables or panels that are shown when a reader opens them."""

    title: str
    names: str = ""
    tables: Sequence[Table] = ()
    panels: Sequence[Panel] = ()
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
    folds: list[Fold] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    records: dict[str, list[dict[str, Any]]] = dataclasses.field(default_factory=dict)
    pictures: dict[str, tuple[list[Panel], list[Mark], int]] = dataclasses.field(default_factory=dict)

    def write_files(self, folder: pathlib.Path) -> dict[Panel, str]:
        """Writes the section's CSV and PNG files and returns the drawings of the panels in these."""
        for name, rows in self.records.items():
            with (folder / name).open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
        drawn = {}
        for name, (panels, legend, columns) in self.pictures.items():
            drawn |= figures.to_png(panels, folder / name, legend=legend, columns=columns)
        return drawn

    @property
    def files(self) -> list[str]:
        """Names of the files that the section writes."""
        return [*self.records, *self.pictures]


@dataclasses.dataclass
class Material:
    """The runs, and what several sections need of them.

    Attributes:
      runs: in the order of the columns.
      resamples: of a paired bootstrap.
      seed: of all draws.
    """

    runs: list[Run]
    resamples: int
    seed: int

    @property
    def marks(self) -> list[Mark]:
        """The looks of the runs."""
        return [figures.run_mark(number, run.label) for number, run in enumerate(self.runs)]

    @property
    def tasks(self) -> list[str]:
        """All tasks, in the order in which the runs name them."""
        return list(dict.fromkeys(task for run in self.runs for task in run.tasks))

    def records(self, task: str) -> list[TaskRun | None]:
        """The task in each run."""
        return [run.tasks.get(task) for run in self.runs]

    def has_bias(self, task: str) -> bool:
        """Whether the task measures effect sizes."""
        return any(record is not None and record.is_bias for record in self.records(task))

    def compared(self) -> list[tuple[int, int]]:
        """Pairs of runs: all of them where they are few, else each with the first."""
        numbers = range(len(self.runs))
        if len(self.runs) <= _FEW_RUNS:
            return list(itertools.combinations(numbers, 2))
        return [(0, number) for number in numbers[1:]]


def percent(value: float, sign: bool = False) -> str:
    """A proportion in percent with one decimal."""
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return "0.0" if float(text) == 0 else text.replace("-", _MINUS)


def number(value: float, digits: int = 2) -> str:
    """A number with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", _MINUS)


def probability(value: float) -> str:
    """A p-value with the digits that it needs."""
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def task_section(material: Material) -> Section:
    """The task table: values, intervals, chance, the paper's numbers."""
    tasks = [task for task in material.tasks if not material.has_bias(task)]
    section = Section(
        "tasks",
        "Tasks",
        [
            "Right answers in percent with their 95% interval (Wilson's, for examples that share an image widened to "
            "what their images carry). A tie is wrong. The small bar runs from 0 to 100%: dot and line are value and "
            "interval, the tick is chance.",
        ],
    )
    several = len(material.runs) > 1
    main, parts, rows = [], {}, []
    for task in tasks:
        records = material.records(task)
        names = list(dict.fromkeys(name for record in records if record for name in record.results))
        main.append(TableRow([Cell(task_label(task), task)], heading=True))
        for name in names:
            group, _, metric = name.rpartition("/")
            entries = [record.results.get(name) if record else None for record in records]
            known = next(entry for entry in entries if entry)
            quoted = paper.beside(material.runs, task, name)
            paper_text = [f"{percent(other.in_our_unit)} {paper.described(other)}" for other in quoted]
            sizes = {entry["n"] for entry in entries if entry}
            ties = [entry["ties"] for entry in entries if entry]
            cells = [
                Cell(
                    _readable(group or metric),
                    _readable(metric) if group and metric != "accuracy" else "",
                ),
                *(_proportion(entry, run) for run, entry in enumerate(entries)),
                Cell("" if known["chance"] is None else percent(known["chance"])),
                Cell(_spread_of(sizes), f"{_spread_of(set(ties))} tied" if any(ties) else ""),
            ]
            if group:
                parts.setdefault(task, []).append(TableRow(cells))
            else:
                main.append(TableRow([*cells, Cell("; ".join(paper_text), style="paper")]))
            for run, entry in zip(material.runs, entries, strict=True):
                if entry:
                    rows.append(
                        {
                            "run": run.label,
                            "task": task,
                            "metric": metric,
                            "group": group,
                            **{key: entry[key] for key in ("value", "low", "high", "chance", "n", "ties")},
                            "paper": "; ".join(paper_text),
                        }
                    )
    columns = ["task and metric", *range(len(material.runs)), "chance", "examples"]
    if main:
        section.tables.append(Table([*columns, "paper"], main))
    if any(row["paper"] for row in rows):
        section.intro.append(
            f"Beside ours stands what the paper ({source()['short']}) states for the same model, or for Stable "
            "Diffusion 2.1 where it has no diffusion model like ours; its row and table are named."
        )
        section.folds.append(Fold("All of the paper's numbers for these tasks", tables=[_paper_table(tasks)]))
    for task, part in parts.items():
        section.folds.append(Fold(f"Sub-tasks of {task_label(task)} ({len(part)})", tables=[Table(columns, part)]))
    for run in material.runs:
        whose = f" in {run.label}" if several else ""
        section.notes += [f"{task_label(task)} gave no numbers{whose}: {reason}" for task, reason in run.failed.items()]
        section.notes += [f"{run.label}: {note}" if several else note for note in run.notes]
        missing = [task_label(task) for task in tasks if task not in run.tasks and task not in run.failed]
        if missing:
            section.notes.append(f"{run.label} was not asked: {', '.join(missing)}.")
        for name, record in run.tasks.items():
            wrong = _disagreeing(record)
            if wrong:
                section.notes.append(
                    f"{run.label}: {wrong} of {task_label(name)} does not follow from the stored scores; the folder "
                    "was changed after the run."
                )
    if rows:
        section.records["tasks.csv"] = rows
    return section


def difference_section(material: Material) -> Section | None:
    """Paired bootstrap differences between runs."""
    if len(material.runs) < 2:
        return None
    section = Section(
        "differences",
        "Differences between runs",
        [
            "Percentage points by which the second run is better than the first, over the examples that both have "
            f"answered. 95% percentile intervals of a paired bootstrap: {material.resamples:,} resamples of the images "
            f"(all examples of an image together), seed {material.seed}, both runs on the same draw.",
            "● the interval excludes 0.  ○ it does, but the runs differ on fewer than "
            f"{analysis.FEW_CLUSTERS} images, too few for a bootstrap to be believed.",
        ],
    )
    if len(material.runs) > _FEW_RUNS:
        section.intro.append("Each run is compared with the first one.")
    section.intro.append(
        "In small print: the interval, and below it on how many examples only the second run and only the first "
        "run is right."
    )
    pairs = material.compared()
    found: dict[tuple[str, str], dict[int, analysis.Difference]] = {}
    for place, (first, second) in enumerate(pairs):
        one, other = material.runs[first], material.runs[second]
        for task in material.tasks:
            if task not in one.tasks or task not in other.tasks or material.has_bias(task):
                continue
            compared = _compare(material, one, other, task)
            if compared is None:
                section.notes.append(
                    f"{one.label} and {other.label} have no example of {task_label(task)} in common: not compared."
                )
                continue
            differences, shared = compared
            asked = [len(run.tasks[task].examples.ids) for run in (one, other)]
            if shared < max(asked):
                section.notes.append(
                    f"{one.label} and {other.label} were asked different examples of {task_label(task)} "
                    f"({asked[0]:,} and {asked[1]:,}): compared on the {shared:,} that are the same."
                )
            for difference in differences:
                found.setdefault((task, difference.name), {})[place] = difference
    main, parts, rows = [], {}, []
    last = None
    for (task, name), by_pair in found.items():
        group, _, metric = name.rpartition("/")
        label = Cell(_readable(group), metric if metric != "accuracy" else "") if group else Cell(_readable(metric))
        cells = [_difference(by_pair.get(place)) for place in range(len(pairs))]
        counted = Cell(_spread_of({difference.num_examples for difference in by_pair.values()}))
        if group:
            parts.setdefault(task, []).append(TableRow([label, *cells, counted]))
        else:
            if task != last:
                main.append(TableRow([Cell(task_label(task), task)], heading=True))
            main.append(TableRow([label, *cells, counted]))
            last = task
        for place, difference in by_pair.items():
            first, second = pairs[place]
            rows.append(
                {
                    "first": material.runs[first].label,
                    "second": material.runs[second].label,
                    "task": task,
                    "metric": metric,
                    "group": group,
                    "difference": difference.value,
                    "low": difference.low,
                    "high": difference.high,
                    "excludes_zero": difference.excludes_zero,
                    "images_apart": difference.clusters_apart,
                    "n": difference.num_examples,
                    "only_first": difference.only_first,
                    "only_second": difference.only_second,
                    "resamples": material.resamples,
                    "seed": material.seed,
                }
            )
    titles = [f"{material.runs[second].label} {_MINUS} {material.runs[first].label}" for first, second in pairs]
    columns = ["task and metric", *titles, "examples"]
    if main:
        section.tables.append(Table(columns, main))
    for task, part in parts.items():
        section.folds.append(Fold(f"Sub-tasks of {task_label(task)} ({len(part)})", tables=[Table(columns, part)]))
    if not section.tables and not section.notes:
        return None
    if rows:
        section.records["differences.csv"] = rows
    return section


def radar_section(material: Material) -> Section | None:
    """The tasks at a glance (Figures 2 and 10)."""
    axes = []
    for task in material.tasks:
        for metric in _RADAR_METRICS:
            entries = [record.results.get(metric) if record else None for record in material.records(task)]
            known = [entry for entry in entries if entry and entry["chance"] is not None]
            if known:
                axes.append((_measure(task, metric), task, metric, known[0]["chance"], entries))
    without = [axis for axis in axes if axis[1] not in _OTHER_FORMS]
    left_out = list(dict.fromkeys(axis[1] for axis in axes if axis[1] in _OTHER_FORMS))
    if len(without) > _MANY_AXES and left_out:
        axes = without
    else:
        left_out = []
    if len(axes) < _FEWEST_AXES:
        return None
    chances = np.array([chance for *_, chance, _ in axes])

    def above(values: Sequence[float | None]) -> np.ndarray:
        found = np.array([np.nan if value is None else value for value in values], np.float64)
        return (found - chances) / (1 - chances)

    series, rows = [], []
    for place, (run, mark) in enumerate(zip(material.runs, material.marks, strict=True)):
        raw = [entries[place]["value"] if entries[place] else None for *_, entries in axes]
        series.append((mark, above(raw)))
        rows += _radar_rows(run.label, axes, raw, series[-1][1])
    quoted = []
    for model, name in paper.RADAR_MODELS.items():
        raw = [paper.value_of(task, metric, model) for _, task, metric, *_ in axes]
        if sum(value is not None for value in raw) >= _FEWEST_AXES:
            mark = Mark(f"{name} (paper)", figures.MUTED, "os^D"[len(quoted) % 4], figures.DASHES[1 + len(quoted) % 3])
            quoted.append((mark, above(raw)))
            rows += _radar_rows(mark.label, axes, raw, quoted[-1][1])
    labels = figures.radar_labels([label for label, *_ in axes])

    def draw(where) -> None:
        figures.radar(where, labels, [*quoted, *series])

    everyone = [mark for mark, _ in series] + [mark for mark, _ in quoted]
    description = "Radar chart: how far each run is above chance, task by task"
    panel = Panel("Tasks", draw, labels.width, labels.height, description, figures.NO_MARGINS)
    intro = (
        "The radius is (value − chance) / (1 − chance): the dashed ring is chance, the outer ring is all right. Values "
        "below chance lie inside the dashed ring."
    )
    if left_out:
        intro += f" In the table only, as the paper does not have them: {_listed(left_out)}."
    return Section(
        "radar",
        "Tasks at a glance",
        [intro],
        legend=everyone,
        panels=[panel],
        records={"radar.csv": rows},
        pictures={"radar.png": ([panel], everyone, 1)},
    )


def sample_section(material: Material) -> Section | None:
    """Accuracy against the number of samples (Figure 9)."""
    panels, rows, absent = [], [], []
    few: dict[str, list[str]] = {}
    for task in material.tasks:
        if material.has_bias(task):
            continue
        curves: dict[str, list[tuple[int, analysis.Curve]]] = {}
        levels: dict[str, list[tuple[int, float]]] = {}
        for place, run in enumerate(material.runs):
            record = run.tasks.get(task)
            if record is None or record.metric is None:
                continue
            if record.deterministic or record.num_samples == 1:
                for metric, entry in record.results.items():
                    levels.setdefault(metric, []).append((place, entry["value"]))
                continue
            if _says_nothing(record):
                few.setdefault(task, []).append(run.label)
                continue
            batches = run.batches(task)
            if batches is None:
                absent.append(f"{task_label(task)} of {run.label}")
                continue
            found = analysis.accuracy_by_samples(batches, record.examples.targets, record.metric, seed=material.seed)
            for metric, curve in found.items():
                curves.setdefault(metric, []).append((place, curve))
                rows += [
                    {
                        "run": run.label,
                        "task": task,
                        "metric": metric,
                        "samples": int(size),
                        "mean": float(mean),
                        "low": float(low),
                        "high": float(high),
                    }
                    for size, mean, low, high in zip(curve.sizes, curve.mean, curve.low, curve.high, strict=True)
                ]
        for metric in _CURVE_METRICS:
            if metric not in curves:
                continue
            chance = next(
                (
                    record.results[metric]["chance"]
                    for record in material.records(task)
                    if record and metric in record.results
                ),
                None,
            )
            for place, value in levels.get(metric, []):
                label = material.runs[place].label
                fields = {"run": label, "task": task, "metric": metric, "samples": 1}
                rows.append({**fields, "mean": value, "low": value, "high": value})
            panel = _curve_panel(material, task, metric, curves[metric], levels.get(metric, []), chance)
            panels.append((task, panel))
    if not panels and not few:
        return None
    title = "Accuracy against the number of samples"
    if not panels:
        return Section("samples", title, [_no_curve(material, few)])
    low, high = analysis.BAND
    shown, folds = _folded(panels)
    section = Section(
        "samples",
        title,
        [
            f"Each point is the mean over {analysis.SUBSETS} random subsets of a run's own samples (seed "
            f"{material.seed}), from the recorded errors and under the task's normalisation; the band holds the "
            f"{low}th to {high}th percentile of the subsets. It closes at the full number by construction, because "
            "there is one such subset only. The dashed grey line is chance; runs that need no samples are horizontal.",
        ],
        legend=material.marks if len(material.runs) > 1 else [],
        panels=shown,
        folds=folds,
        records={"samples.csv": rows},
        pictures={"samples.png": ([panel for _, panel in panels], material.marks if len(material.runs) > 1 else [], 3)},
    )
    if few:
        section.notes.append(_no_curve(material, few))
    if absent:
        section.notes.append(f"No complete errors are recorded for {'; '.join(absent)}.")
    return section


def clevr_section(material: Material) -> Section | None:
    """CLEVR's sub-tasks beside the paper's (Table 6)."""
    records = material.records("clevr")
    if not any(records):
        return None
    models = paper.columns(_CLEVR_TABLE, "clevr")
    rows, lines = [], []
    for group, label in [*CLEVR_LABELS.items(), ("", "Average")]:
        key = f"{group}/accuracy" if group else "accuracy"
        # The sub-tasks are of one size, so that the accuracy over all examples is their average; where they are not,
        # the macro mean is.
        entries = [
            record and (record.results.get(key if group else "macro_accuracy") or record.results.get(key))
            for record in records
        ]
        if not any(entries):
            continue
        quoted = [paper.cell(_CLEVR_TABLE, "clevr", key, model) for model in models]
        lines.append(
            TableRow(
                [
                    Cell(label, style="" if group else "strong"),
                    *(_proportion(entry, run) for run, entry in enumerate(entries)),
                    *(Cell("" if other is None else percent(other.in_our_unit), style="paper") for other in quoted),
                ]
            )
        )
        for run, entry in zip(material.runs, entries, strict=True):
            if entry:
                rows.append(
                    {
                        "sub_task": group or "average",
                        "source": run.label,
                        **{name: entry[name] for name in ("value", "low", "high", "n")},
                    }
                )
        for model, other in zip(models, quoted, strict=True):
            if other is not None:
                rows.append(
                    {"sub_task": group or "average", "source": f"{model} (paper)", "value": other.in_our_unit}
                    | dict.fromkeys(("low", "high", "n"))
                )
    if not lines:
        return None
    return Section(
        "clevr",
        "CLEVR by sub-task",
        [
            "Accuracy in percent; chance is 50. The paper's columns are its Table 6, on images that its authors "
            "rendered: the question is the same, the pictures are not."
        ],
        tables=[Table(["sub-task", *range(len(material.runs)), *(f"{model} (paper)" for model in models)], lines)],
        records={"clevr.csv": rows},
    )


def bias_section(material: Material) -> Section | None:
    """Effect sizes, p-values, groups and the forest plot (Tables 3 and 5)."""
    tasks = [task for task in material.tasks if material.has_bias(task)]
    if not tasks:
        return None
    section = Section(
        "bias",
        "Bias",
        [
            "Effect size d of how much more the first of two groups of images is associated with one set of texts than "
            "with another (MMBias: pleasant rather than unpleasant ones): positive towards the first group, negative "
            "towards the second, 0 is none. Intervals (95%) are from a "
            "bootstrap over images. Below stand the one-sided and the two-sided p-value of a permutation test. A star, "
            f"as in the paper's tables, marks a one-sided p under {STARS_BELOW:g}, which looks towards the first group "
            "only: a large negative effect size gets none, and its two-sided p tells.",
            "A large effect size is evidence of bias; a small one is no proof of fairness.",
        ],
        legend=material.marks if len(material.runs) > 1 else [],
    )
    rows, group_rows, panels = [], [], []
    for task in tasks:
        records = material.records(task)
        names = list(dict.fromkeys(name for record in records if record for name in record.results))
        pairs = [
            name
            for name in names
            if any(record and "p_one_sided" in record.results.get(name, {}) for record in records)
        ]
        groups = [name for name in names if "/" in name]
        totals = [name for name in names if name not in pairs and name not in groups]
        models = paper.columns(_BIAS_TABLES, task)
        lines = []
        permutations = set()
        unbiased: dict[str, list[str]] = {}
        for name in [*pairs, *totals]:
            entries = [record.results.get(name) if record else None for record in records]
            quoted = [paper.cell(_BIAS_TABLES, task, name, model) for model in models]
            lines.append(
                TableRow(
                    [
                        Cell(
                            _readable(name) if name in totals else _pair_label(name),
                            style="strong" if name in totals else "",
                        ),
                        *(_effect(entry) for entry in entries),
                        *(
                            Cell("" if other is None else _starred(other.value, other.significant), style="paper")
                            for other in quoted
                        ),
                    ]
                )
            )
            for run, entry in zip(material.runs, entries, strict=True):
                if entry:
                    permutations.add(entry.get("permutations"))
                    rows.append(
                        {
                            "run": run.label,
                            "task": task,
                            "pair": name,
                            **{key: entry[key] for key in ("value", "low", "high", "n")},
                            **{key: entry.get(key) for key in ("p_one_sided", "p_two_sided", "permutations")},
                            "star": is_starred(entry),
                            "paper": "; ".join(
                                f"{other.printed} {model}"
                                for model, other in zip(models, quoted, strict=True)
                                if other is not None
                            ),
                        }
                    )
        counts = sorted(count for count in permutations if count is not None)
        caption = f"{task_label(task)}. Permutations a pair: {', '.join(f'{count:,}' for count in counts)}."
        section.tables.append(
            Table(
                ["first / second group", *range(len(material.runs)), *(f"{model} (paper)" for model in models)],
                lines,
                caption,
            )
        )
        for run, record in zip(material.runs, records, strict=True):
            for name in totals:
                entry = record.results.get(name, {}) if record else {}
                if entry.get("without_bias") is not None:
                    unbiased.setdefault(number(entry["without_bias"]), []).append(run.label)
                for pair, reason in (entry.get("left_out") or {}).items():
                    section.notes.append(f"{task_label(task)}, {run.label}: {pair} is left out, {reason}.")
        for value, labels in unbiased.items():
            whose = f" ({', '.join(labels)})" if len(unbiased) > 1 else ""
            section.notes.append(
                f"{task_label(task)}: even without any bias, groups of these sizes would give an average absolute "
                f"effect size of {value}{whose}."
            )
        group_lines = []
        for name in groups:
            entries = [record.results.get(name) if record else None for record in records]
            group_lines.append(
                TableRow(
                    [
                        Cell(name.rpartition("/")[0], name.rpartition("/")[2].removeprefix("association").strip()),
                        *(_association(entry) for entry in entries),
                        Cell(_spread_of({entry["n"] for entry in entries if entry})),
                    ]
                )
            )
            for run, entry in zip(material.runs, entries, strict=True):
                if entry:
                    group_rows.append(
                        {
                            "run": run.label,
                            "task": task,
                            "group": name,
                            **{key: entry[key] for key in ("value", "low", "high", "n")},
                        }
                    )
        if group_lines:
            what = "mean over a group's images of their score with the first texts less that with the second"
            columns = ["group", *range(len(material.runs)), "images"]
            section.folds.append(
                Fold(
                    f"Groups of {task_label(task)}", tables=[Table(columns, group_lines, f"The {what}, 95% interval.")]
                )
            )
        if pairs:
            panels.append(_forest_panel(material, task, pairs))
    section.panels = panels
    section.records = {"bias.csv": rows} | ({"bias_groups.csv": group_rows} if group_rows else {})
    if panels:
        section.pictures = {"bias.png": (panels, section.legend, 2)}
    return section


def overlap_section(material: Material) -> Section | None:
    """Which examples two runs both have right (Figure 8)."""
    if len(material.runs) < 2:
        return None
    marks = material.marks
    panels, sets, lines, rows, set_rows, few = [], [], [], [], [], []
    for task in material.tasks:
        if material.has_bias(task):
            continue
        bars = []
        for first, second in itertools.combinations(range(len(material.runs)), 2):
            one, other = material.runs[first].tasks.get(task), material.runs[second].tasks.get(task)
            if one is None or other is None:
                continue
            in_one, in_other = analysis.shared_rows(one, other)
            if not len(in_one):
                continue
            found = analysis.overlap(one.examples.correct[in_one], other.examples.correct[in_other])
            shares = (found.both, found.only_first, found.only_second, found.neither)
            bars.append((marks[first], marks[second], shares, found.expected_both))
            kappa = "undefined" if found.kappa is None else number(found.kappa)
            lines.append(
                TableRow(
                    [
                        Cell(task_label(task), f"{marks[first].label} / {marks[second].label}"),
                        *(Cell(percent(share)) for share in shares),
                        Cell(percent(found.expected_both)),
                        Cell(kappa),
                        Cell(f"{found.num_examples:,}"),
                    ]
                )
            )
            rows.append(
                {
                    "task": task,
                    "first": marks[first].label,
                    "second": marks[second].label,
                    **{key: value for key, value in dataclasses.asdict(found).items() if key != "num_examples"},
                    "n": found.num_examples,
                }
            )
        if not bars:
            continue
        if max(row["n"] for row in rows[-len(bars) :]) < _FEWEST_EXAMPLES:
            few.append(task)
            continue
        panels.append((task, _overlap_panel(task, bars)))
        asked = [record for record in material.records(task) if record is not None and record.examples is not None]
        if len(material.runs) >= 3 and len(asked) == len(material.runs):
            correct = _common_answers(asked)
            if correct.shape[1] >= _FEWEST_EXAMPLES:
                found_sets = analysis.right_sets(correct)
                sets.append(_sets_panel(material, task, found_sets, correct.shape[1]))
                for pattern, count in found_sets:
                    right = [mark.label for mark, is_right in zip(marks, pattern, strict=True) if is_right]
                    set_rows.append(
                        {
                            "task": task,
                            "right": "; ".join(right) or "none",
                            "examples": count,
                            "share": count / correct.shape[1],
                        }
                    )
    if not lines:
        return None
    columns = [
        "task, first / second",
        "both",
        "only first",
        "only second",
        "neither",
        "both, expected",
        "kappa",
        "examples",
    ]
    legend = [
        Mark("both right", figures.BOTH, "s", figures.NO_LINE),
        *(dataclasses.replace(mark, label=f"only {mark.label}", dash=figures.NO_LINE) for mark in marks),
        Mark("neither", figures.GRID, "s", figures.NO_LINE),
    ]
    shown, folds = _folded(panels)
    section = Section(
        "overlap",
        "Overlap of right answers",
        [
            "Of the examples that two runs, whose markers stand before each bar, have both answered: share that both "
            "have right, only the one (in its colour), only the other, and neither. The tick is the share of "
            "both right that independent answers would give; where the dark bar ends beyond it, the runs succeed on "
            "the same examples. Cohen's kappa is 0 under independence and 1 where they agree everywhere.",
        ],
        legend=legend if panels else [],
        panels=shown,
        folds=folds,
        records={"overlap.csv": rows},
    )
    if panels:
        section.pictures["overlap.png"] = ([panel for _, panel in panels], legend, 3)
    if few:
        section.notes.append(
            f"No figures, as two runs have answered fewer than {_FEWEST_EXAMPLES} examples of them: {_listed(few)}."
        )
    if sets:
        is_open = len(sets) <= _SHOWN_PANELS // 2
        section.folds.append(Fold("Examples that exactly these runs have right", panels=sets, is_open=is_open))
        section.records["right_sets.csv"] = set_rows
        section.pictures["right_sets.png"] = (
            sets,
            [dataclasses.replace(mark, dash=figures.NO_LINE) for mark in marks],
            3,
        )
    section.folds.append(Fold("The numbers", tables=[Table(columns, lines)]))
    return section


def timestep_section(material: Material) -> Section | None:
    """Error against timestep for right and wrong candidates (Figure 3)."""
    right, wrong = (
        Mark("right candidates", figures.RIGHT, "o"),
        Mark("wrong candidates", figures.WRONG, "s", figures.DASHES[1]),
    )
    gap = Mark("wrong − right", figures.BOTH, "D")
    shown, folds, rows, pictures, untimed = [], [], [], {}, []
    few: dict[str, list[str]] = {}
    for place, run in enumerate(material.runs):
        everything = []
        for task, record in run.tasks.items():
            if record.is_bias or record.deterministic or record.metric is None:
                continue
            if record.timesteps is None:
                untimed.append(run.label)
                continue
            if _says_nothing(record):
                few.setdefault(task, []).append(run.label)
                continue
            batches = run.batches(task)
            if batches is None or batches[0].errors.shape[-1] != len(record.timesteps):
                continue
            profile = analysis.timestep_profile(
                batches, record.timesteps, record.examples.targets, record.examples.clusters
            )
            everything += [(task, panel) for panel in _timestep_panels(task, profile, right, wrong, gap)]
            for name, (mean, low, high) in profile.series.items():
                for bin_number, (first, last) in enumerate(profile.edges):
                    rows.append(
                        {
                            "run": run.label,
                            "task": task,
                            "series": name,
                            "first_timestep": first,
                            "last_timestep": last,
                            "mean_timestep": float(profile.timesteps[bin_number]),
                            "mean": float(mean[bin_number]),
                            "low": float(low[bin_number]),
                            "high": float(high[bin_number]),
                        }
                    )
        if everything:
            name = "timesteps.png" if len(material.runs) == 1 else f"timesteps-{place + 1}.png"
            pictures[name] = ([panel for _, panel in everything], [right, wrong, gap], 4)
            first, more = _folded(everything)
            if len(material.runs) == 1:
                shown, folds = first, more
            else:
                folds.append(Fold(run.label, panels=first, is_open=not folds))
                folds += [dataclasses.replace(fold, title=f"{run.label}, {fold.title}") for fold in more]
    notes = [
        f"{label} did not record its timesteps: evaluate again to see it here." for label in dict.fromkeys(untimed)
    ]
    if few:
        notes.append(_no_curve(material, few))
    title = "Error against timestep"
    if not rows:
        return Section("timesteps", title, notes) if few else None
    return Section(
        "timesteps",
        title,
        [
            "Mean error of right and of wrong pairs of image and text, in bins of the timestep with about as many "
            "samples each. First the error itself, which depends on the image far more than on the text; beside it the "
            "error less that of the same image under the empty text or, where that was not scored, wrong less right. "
            "The bands are 95% intervals of the mean over images.",
        ],
        legend=[right, wrong, gap],
        panels=shown,
        folds=folds,
        notes=notes,
        records={"timesteps.csv": rows},
        pictures=pictures,
    )


def run_facts(run: Run) -> list[tuple[str, str]]:
    """(what, value) lines on what was run and with what."""
    identity, versions = run.config["identity"], run.config.get("versions") or run.results.get("versions") or {}
    scorer, software = identity.get("scorer") or {}, versions.get("winobench") or {}
    device = versions.get("device") or {}
    facts = [("model", run.model)]
    if scorer:
        facts.append(("scorer", str(scorer.get("scorer", "unknown"))))
        described = [
            f"{name.replace('_', ' ')} {value if not isinstance(value, list) else _DASH.join(map(str, value))}"
            for name, value in scorer.items()
            if name not in ("scorer", "scoring_version", "model") and value is not None
        ]
        if described:
            facts.append(("settings", ", ".join(described)))
        if scorer.get("model"):
            facts.append(("weights", f"SHA-256 {str(scorer['model'])[:16]}…"))
    facts.append(("samples a pair", _samples_text(run)))
    facts.append(("normalisation", str(identity.get("normalize", "unknown"))))
    if identity.get("limit") is not None:
        facts.append(("limit", f"{identity['limit']:,} scenes or items a task"))
    facts.append(("started", _date(run.config.get("started"))))
    if run.results.get("passes") is not None:
        computed = run.results.get("computed_passes")
        text = f"{run.results['passes']:,}"
        facts.append(("passes", text if computed is None else f"{text}, of which the last call computed {computed:,}"))
    if run.results.get("seconds") is not None:
        facts.append(("time", _duration(run.results["seconds"])))
    if device:
        facts.append(("device", f"{device.get('count', 1)} x {device.get('kind', 'unknown')}"))
    if software:
        commit = str(software.get("commit") or "")[:10]
        dirty = " with changes" if software.get("dirty") else ""
        facts.append(("winobench", f"{software.get('version')}{f', commit {commit}{dirty}' if commit else ''}"))
    libraries = versions.get("libraries") or {}
    if libraries:
        shown = [f"{name} {libraries[name]}" for name in ("jax", "flax", "numpy", "transformers") if name in libraries]
        facts.append(("libraries", ", ".join([f"Python {versions.get('python')}", *shown])))
    if run.config.get("status") != "finished":
        facts.append(("status", str(run.config.get("status"))))
    facts.append(("folder", str(run.path)))
    return facts


def summary_sentences(material: Material) -> list[str]:
    """What a reader should take away at once, a sentence a run."""
    sentences = []
    for run in material.runs:
        entries = [
            (task, metric, record.results[metric])
            for task, record in run.tasks.items()
            for metric in _HEADLINE_METRICS
            if not record.is_bias and metric in record.results and record.results[metric]["chance"] is not None
        ]
        if not entries:
            continue
        above = sum(entry["low"] > entry["chance"] for *_, entry in entries)
        clearest = max(entries, key=lambda found: _above_chance(found[2]))
        weakest = min(entries, key=lambda found: _above_chance(found[2]))
        text = f"{run.label} is above chance on {above} of {len(entries)} measures"
        if clearest is not weakest:
            text += (
                f", furthest on {_measure(*clearest[:2])} ({percent(clearest[2]['value'])}%) and least on "
                f"{_measure(*weakest[:2])} ({percent(weakest[2]['value'])}%)"
            )
        sentences.append(text + ".")
    return sentences


def is_starred(entry: Mapping[str, Any]) -> bool:
    """Whether an effect size has the paper's star."""
    return entry.get("p_one_sided") is not None and entry["p_one_sided"] < STARS_BELOW


def _above_chance(entry: Mapping[str, Any]) -> float:
    return (entry["value"] - entry["chance"]) / (1 - entry["chance"])


def _measure(task: str, metric: str) -> str:
    return f"{task_label(task)} {metric}" if metric in _PART_METRICS else task_label(task)


def _proportion(entry: Mapping[str, Any] | None, run: int) -> Cell:
    if not entry:
        return Cell(_DASH, style="absent")
    bar = Bar(entry["value"], entry["low"], entry["high"], entry["chance"], run)
    return Cell(percent(entry["value"]), f"{percent(entry['low'])} to {percent(entry['high'])}", "value", bar)


def _difference(found: analysis.Difference | None) -> Cell:
    if found is None:
        return Cell(_DASH, style="absent")
    mark = " ●" if found.is_clear else " ○" if found.excludes_zero else ""
    interval = f"{percent(found.low, sign=True)} to {percent(found.high, sign=True)}"
    return Cell(
        f"{percent(found.value, sign=True)}{mark}",
        interval,
        "value clear" if found.is_clear else "value plain",
        below=f"{found.only_second:,} : {found.only_first:,}",
    )


def _effect(entry: Mapping[str, Any] | None) -> Cell:
    if not entry:
        return Cell(_DASH, style="absent")
    text = _starred(entry["value"], is_starred(entry))
    small = f"{number(entry['low'])} to {number(entry['high'])}"
    below = ""
    if entry.get("p_one_sided") is not None:
        below = f"p {probability(entry['p_one_sided'])}; {probability(entry['p_two_sided'])}"
    return Cell(text, small, "value", below=below)


def _starred(value: float, star: bool | None) -> str:
    return number(value) + ("★" if star else "")


def _association(entry: Mapping[str, Any] | None) -> Cell:
    if not entry:
        return Cell(_DASH, style="absent")
    # Errors are sums over latents and cosines are not: three digits that matter, whatever the scale.
    digits = max(0, 2 - math.floor(math.log10(max(abs(entry["value"]), 1e-9))))
    text = " to ".join(number(entry[key], digits) for key in ("low", "high"))
    return Cell(number(entry["value"], digits), text, "value")


def _folded(panels: Sequence[tuple[str, Panel]]) -> tuple[list[Panel], list[Fold]]:
    """What a section shows of many panels, each with its task, at once, and the others under the names of theirs."""
    drawn = [panel for _, panel in panels]
    if len(panels) <= _SHOWN_PANELS + _FEW_MORE:
        return drawn, []
    tasks = list(dict.fromkeys(task for task, _ in panels[_SHOWN_PANELS:]))
    title = "1 more task" if len(tasks) == 1 else f"{len(tasks)} more tasks"
    return drawn[:_SHOWN_PANELS], [Fold(title, "; ".join(map(task_label, tasks)), panels=drawn[_SHOWN_PANELS:])]


def _says_nothing(record: TaskRun) -> bool:
    """Whether a sampled task has too few samples or examples for a curve."""
    if record.num_samples is not None and record.num_samples < _FEWEST_SAMPLES:
        return True
    return record.examples is not None and len(record.examples.ids) < _FEWEST_EXAMPLES


def _no_curve(material: Material, few: Mapping[str, Sequence[str]]) -> str:
    """The sentence on tasks, and the runs of each, that have no curve."""
    sampled = [run for run in material.runs if any(not record.deterministic for record in run.tasks.values())]
    by_runs: dict[tuple[str, ...], list[str]] = {}
    for task, labels in few.items():
        by_runs.setdefault(tuple(labels), []).append(task)
    parts = [
        _listed(tasks) + ("" if len(labels) == len(sampled) else f" ({', '.join(labels)})")
        for labels, tasks in by_runs.items()
    ]
    return (
        f"No curves, which would say nothing with fewer than {_FEWEST_SAMPLES} samples a pair or {_FEWEST_EXAMPLES} "
        f"examples: {'; '.join(parts)}."
    )


def _listed(tasks: Sequence[str]) -> str:
    """The labels of tasks, which may have commas, as the end of a sentence."""
    return "; ".join(map(task_label, tasks))


def _readable(name: str) -> str:
    return name.replace("_", " ")


def _pair_label(name: str) -> str:
    """``Christian-Muslim`` as two names; a name of another form as it is."""
    return name.replace("-", " / ") if re.fullmatch(r"\w+-\w+", name) else _readable(name)


def _spread_of(values: set[int]) -> str:
    """One number, or the least and the most where runs differ."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,}{_DASH}{high:,}"


def _disagreeing(record: TaskRun) -> str | None:
    """The first row of the results that the stored scores contradict."""
    for row in analysis.rows_of(record):
        entry = record.results.get(row.name)
        if entry is not None and abs(entry["value"] - row.value) > _SAME_VALUE:
            return row.name
    return None


def _compare(material: Material, one: Run, other: Run, task: str) -> tuple[list[analysis.Difference], int] | None:
    first, second = one.tasks[task], other.tasks[task]
    in_first, in_second = analysis.shared_rows(first, second)
    if not len(in_first) or first.metric != second.metric or first.metric is None:
        return None
    first, second = analysis.select(first, in_first), analysis.select(second, in_second)
    # The groups of the first run count for both: they are no part of what was asked.
    second = dataclasses.replace(second, examples=dataclasses.replace(second.examples, groups=first.examples.groups))
    found = analysis.paired_differences(
        analysis.rows_of(first),
        analysis.rows_of(second),
        first.examples.clusters,
        resamples=material.resamples,
        seed=material.seed,
    )
    return found, len(in_first)


def _common_answers(records: Sequence[TaskRun]) -> np.ndarray:
    """[runs, n] bool: right or wrong, over the examples that all of them were asked."""
    places = [{record.examples.key(row): row for row in range(len(record.examples.ids))} for record in records]
    keys = [key for key in places[0] if all(key in other for other in places[1:])]
    return np.array(
        [[record.examples.correct[place[key]] for key in keys] for record, place in zip(records, places, strict=True)],
        bool,
    ).reshape(len(records), len(keys))


def _paper_table(tasks: Sequence[str]) -> Table:
    rows = []
    for task in tasks:
        of_task = paper.of_task(task)
        if of_task:
            rows.append(TableRow([Cell(task_label(task), task)], heading=True))
        for other in of_task:
            samples = "none" if other.num_samples is None else f"{other.num_samples:,}"
            where = f"{other.table}, {other.column}"
            rows.append(
                TableRow(
                    [Cell(other.metric), Cell(percent(other.in_our_unit)), Cell(other.row), Cell(samples), Cell(where)]
                )
            )
    return Table(["task and metric", "%", "model", "samples a pair", "table, column"], rows)


def _radar_rows(label: str, axes: Sequence[tuple], raw: Sequence[float | None], radii: np.ndarray) -> list[dict]:
    return [
        {"series": label, "task": task, "metric": metric, "value": value, "chance": chance, "radius": float(radius)}
        for (_, task, metric, chance, _), value, radius in zip(axes, raw, radii, strict=True)
        if value is not None
    ]


def _curve_panel(
    material: Material,
    task: str,
    metric: str,
    curves: Sequence[tuple[int, analysis.Curve]],
    levels: Sequence[tuple[int, float]],
    chance: float | None,
) -> Panel:
    marks = material.marks
    lines = [(marks[place], curve.sizes, curve.mean, curve.low, curve.high) for place, curve in curves]
    flat = [(marks[place], value) for place, value in levels]
    title = task_label(task) if metric == "accuracy" else f"{task_label(task)}, {metric}"
    ends = "; ".join(
        f"{mark.label} reaches {percent(mean[-1])}% with {sizes[-1]} samples" for mark, sizes, mean, *_ in lines
    )
    return Panel(title, lambda axes: figures.sample_curves(axes, lines, flat, chance), description=f"{title}: {ends}")


def _forest_panel(material: Material, task: str, pairs: Sequence[str]) -> Panel:
    series, stars = [], []
    for mark, record in zip(material.marks, material.records(task), strict=True):
        if record is None:
            continue
        entries = [record.results.get(name) for name in pairs]
        values = [[entry[key] if entry else np.nan for entry in entries] for key in ("value", "low", "high")]
        series.append((mark, np.array(values, np.float64)))
        stars.append([bool(entry) and is_starred(entry) for entry in entries])
    labels = [_pair_label(name) for name in pairs]
    height = 0.8 + len(pairs) * max(0.3, 0.14 * len(series) + 0.08)

    def draw(axes) -> None:
        figures.forest(axes, labels, series, stars=np.array(stars), span="effect size d (95% interval)")

    description = f"Forest plot of the effect sizes of {task_label(task)}"
    return Panel(task_label(task), draw, 5.2, height, description, figures.forest_margins(labels))


def _overlap_panel(task: str, bars: Sequence[tuple]) -> Panel:
    return Panel(
        task_label(task),
        lambda axes: figures.overlap_bars(axes, bars),
        height=0.45 + 0.3 * len(bars),
        margins=Margins(left=0.5, right=0.25, top=0.05, bottom=0.28),
        description=f"{task_label(task)}: shares of examples that both runs, one of them, or neither has right",
    )


def _sets_panel(material: Material, task: str, sets: Sequence[tuple], total: int) -> Panel:
    shown = list(sets[:_MOST_SETS])
    return Panel(
        task_label(task),
        lambda axes: figures.set_bars(axes, material.marks, shown, total),
        height=0.1 + 0.27 * len(shown),
        margins=figures.NO_MARGINS,
        description=f"{task_label(task)}: number of examples that exactly the marked runs have right",
    )


def _timestep_panels(task: str, profile: analysis.Profile, right: Mark, wrong: Mark, gap: Mark) -> list[Panel]:
    label = task_label(task)
    series = profile.series
    absolute = [(right, series["right"]), (wrong, series["wrong"])]
    if "right_relative" in series:
        relative = [(right, series["right_relative"]), (wrong, series["wrong_relative"])]
        title, ylabel = "relative", "error less unconditional"
    else:
        relative = [(gap, series["wrong_minus_right"])]
        title, ylabel = "difference", "wrong less right"
    return [
        Panel(
            f"{label}, error",
            lambda axes: figures.timestep_lines(axes, profile.timesteps, absolute, "error", zero=False),
            *_TIMESTEP_SIZE,
            margins=_TIMESTEP_MARGINS,
        ),
        Panel(
            f"{label}, {title}",
            lambda axes: figures.timestep_lines(axes, profile.timesteps, relative, ylabel, zero=True),
            *_TIMESTEP_SIZE,
            margins=_TIMESTEP_MARGINS,
        ),
    ]


def _samples_text(run: Run) -> str:
    by_count: dict[str, list[str]] = {}
    for task, record in run.tasks.items():
        text = (
            "none needed"
            if record.deterministic
            else "unknown"
            if record.num_samples is None
            else str(record.num_samples)
        )
        by_count.setdefault(text, []).append(task_label(task))
    text, *others = sorted(by_count, key=lambda count: -len(by_count[count]))
    for other in others:
        text += f" ({other} for {', '.join(by_count[other])})"
    sampling = run.config["identity"].get("sampling") or {}
    if sampling and text != "none needed":
        rule = sampling.get("timesteps")
        text += f", timesteps {rule if isinstance(rule, str) else 'as given'}, seed {sampling.get('seed')}"
    return text


def _date(text: str | None) -> str:
    if not text:
        return "unknown"
    try:
        moment = datetime.datetime.fromisoformat(text).astimezone(datetime.UTC)
    except ValueError:
        return text
    return f"{moment.day} {moment:%B %Y, %H:%M} UTC"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"
