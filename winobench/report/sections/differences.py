"""Differences between runs, paired over the examples that both have answered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from winobench.report import analysis, comparison
from winobench.report.cells import ABSENT, Cell, Table, TableRow
from winobench.report.sections.shared import FEW_RUNS, Details, ReportData, Section, sub_task_folds
from winobench.report.wording import MINUS, percent, readable, spread_of
from winobench.runs.labels import shortened, task_label

_FLIP_LETTERS = 200  # of a text

Differences = dict[tuple[str, str], dict[int, analysis.Difference]]
"""Task and row of its results -> place of a pair of runs -> their difference."""


def difference_section(report_data: ReportData) -> Section | None:
    """Paired differences between runs."""
    if len(report_data.runs) < 2:
        return None
    pairs = report_data.compared()
    differences, paired, notes = find_differences(report_data, pairs)
    is_few = len(report_data.runs) <= FEW_RUNS
    flips = [[flip for pair in task_pairs if is_few for flip in comparison.flips(pair)] for task_pairs in paired]
    main, parts = _rows(differences, len(pairs))
    if not main and not notes:
        return None
    clusters, a_cluster = ("pairs", "a pair") if report_data.is_text else ("images", "an image")
    section = Section(
        "differences",
        "Differences between runs",
        [
            "Percentage points by which the second run is better than the first, over the examples that both have "
            f"answered. Each interval by itself holds the true difference in 95% of the cases: Tango's score interval "
            f"for pairs, widened to what examples that share {a_cluster} carry."
        ],
        notes=notes,
    )
    if len(report_data.runs) > FEW_RUNS:
        section.intro.append("Each run is compared with the first one.")
    section.intro.append(
        "In small print: the interval, and below it on how many examples only the second run and only the first "
        "run is right."
    )
    if differences:
        count = sum(map(len, differences.values()))
        section.intro.append(
            f"● clear: the p-value, adjusted for the {count:,} differences below (Benjamini and Hochberg), is "
            f"at most {100 * analysis.CLEAR_BELOW:g}%, so that at most one mark in {1 / analysis.CLEAR_BELOW:g} is "
            f"expected to be chance, and the runs differ on at least {analysis.FEW_CLUSTERS} independent {clusters}.  "
            "○ the interval excludes 0, but the difference is not clear."
        )
        section.intro.append(
            "Intervals and marks know that other examples would give other numbers."
            + _of_samples(report_data, differences)
        )
    titles = [f"{report_data.runs[second].label} {MINUS} {report_data.runs[first].label}" for first, second in pairs]
    columns = ["task and metric", *titles, "examples"]
    if main:
        section.tables.append(Table(columns, main))
    section.folds = sub_task_folds(columns, parts)
    if differences:
        section.records["differences.csv"] = _records(report_data, pairs, differences)
    if any(flips):
        section.folds += _flip_folds(report_data, pairs, flips)
        section.records["flips.csv"] = _flip_records(report_data, pairs, flips)
    return section


def find_differences(
    report_data: ReportData, pairs: Sequence[tuple[int, int]]
) -> tuple[Differences, list[list[comparison.PairedTask]], list[str]]:
    """The differences, the tasks of each pair, and sentences on missing or partial comparisons."""
    differences: Differences = {}
    paired: list[list[comparison.PairedTask]] = [[] for _ in pairs]
    notes = []
    lacking: dict[str, list[str]] = {}
    for task in report_data.tasks:
        if not report_data.has_answers(task):
            continue
        draws: dict[int, comparison.Draws] = {}
        for column, numbers in enumerate(pairs):
            first_run, second_run = (report_data.runs[number] for number in numbers)
            if task not in first_run.tasks or task not in second_run.tasks:
                continue
            for number in numbers:
                if number not in draws:
                    draws[number] = comparison.resampled(report_data.runs[number], task)
            pair = comparison.pair_task(first_run, second_run, task, [draws[number] for number in numbers])
            if pair is None:
                notes.append(
                    f"{first_run.label} and {second_run.label} have no example of {task_label(task)} in common:"
                    " not compared."
                )
                continue
            paired[column].append(pair)
            sizes = [len(run.tasks[task].answered.ids) for run in (first_run, second_run)]
            if pair.num_shared < max(sizes):
                notes.append(
                    f"{first_run.label} and {second_run.label} were asked different examples of {task_label(task)} "
                    f"({sizes[0]:,} and {sizes[1]:,}): compared on the {pair.num_shared:,} that are the same."
                )
            for difference in pair.differences:
                differences.setdefault((task, difference.name), {})[column] = difference
        for number, (_, reason) in draws.items():
            if reason:
                lacking.setdefault(reason, []).append(f"{task_label(task)} of {report_data.runs[number].label}")
    notes += [f"{analysis.NO_NOISE} {reason}: {'; '.join(whose)}." for reason, whose in lacking.items()]
    for column, task_pairs in enumerate(paired):
        for difference in comparison.skill_differences(task_pairs):
            differences.setdefault((difference.task, difference.name), {})[column] = difference
    # One adjustment for all rows of the page.
    places = [(key, column) for key, by_pair in differences.items() for column in by_pair]
    together = analysis.adjusted([differences[key][column] for key, column in places])
    for (key, column), difference in zip(places, together, strict=True):
        differences[key][column] = difference
    return differences, paired, notes


def _of_samples(report_data: ReportData, differences: Differences) -> str:
    """The sentence on the noise of the samples, if there are any."""
    if all(run.tasks[task].deterministic for task, _ in differences for run in report_data.runs if task in run.tasks):
        return ""
    said = " They also know that other noise and timesteps would, from the recorded errors of each sample"
    if any(difference.lacks_noise for by_pair in differences.values() for difference in by_pair.values()):
        said += f", but for marks with {analysis.NO_NOISE}: without it fewer of them may be left"
    return f"{said}."


def _rows(differences: Differences, num_pairs: int) -> tuple[list[TableRow], dict[str, list[TableRow]]]:
    """Rows of the tasks under their headings, and task -> rows of its sub-tasks."""
    main: list[TableRow] = []
    parts: dict[str, list[TableRow]] = {}
    last = None
    for (task, name), by_pair in differences.items():
        heading = task
        if task.startswith("@"):
            heading, name = "Skills, as means over their tasks", task.removeprefix("@")
        group, _, metric = name.rpartition("/")
        label = Cell(readable(group), metric if metric != "accuracy" else "") if group else Cell(readable(metric))
        cells = [_difference(by_pair.get(column)) for column in range(num_pairs)]
        counted = Cell(spread_of({difference.num_examples for difference in by_pair.values()}))
        if group:
            parts.setdefault(task, []).append(TableRow([label, *cells, counted]))
            continue
        if heading != last:
            main.append(TableRow([Cell(task_label(task) if heading == task else heading, heading)], heading=True))
        main.append(TableRow([label, *cells, counted]))
        last = heading
    return main, parts


def _records(
    report_data: ReportData, pairs: Sequence[tuple[int, int]], differences: Differences
) -> list[dict[str, Any]]:
    rows = []
    for by_pair in differences.values():
        for place, difference in by_pair.items():
            first, second = (report_data.runs[number].label for number in pairs[place])
            rows.append(comparison.difference_record(difference, first, second, report_data.is_text))
    return rows


def _flip_records(
    report_data: ReportData, pairs: Sequence[tuple[int, int]], flips: Sequence[Sequence[comparison.Flip]]
) -> list[dict[str, Any]]:
    rows = []
    for numbers, some in zip(pairs, flips, strict=True):
        first, second = (report_data.runs[number].label for number in numbers)
        rows += [comparison.flip_record(flip, first, second) for flip in some]
    return rows


def _flip_folds(
    report_data: ReportData, pairs: Sequence[tuple[int, int]], flips: Sequence[Sequence[comparison.Flip]]
) -> list[Details]:
    """Some of the flips, at random, a fold a task and a table a pair of runs."""
    count = math.ceil(report_data.examples / len(pairs))
    by_task: dict[str, dict[int, list[comparison.Flip]]] = {}
    for column, column_flips in enumerate(flips):
        for flip in column_flips:
            by_task.setdefault(flip.task, {}).setdefault(column, []).append(flip)
    folds = []
    for task in report_data.charted if count else ():
        tables, shown = [], 0
        for column, column_flips in by_task.get(task, {}).items():
            order = np.random.default_rng(report_data.seed).permutation(len(column_flips))[:count]
            rows = [
                TableRow(
                    [
                        Cell(shortened(" / ".join(flip.texts), _FLIP_LETTERS), below=flip.id),
                        Cell(shortened(flip.right_answer or "", _FLIP_LETTERS)),
                        *(
                            Cell(shortened(answer, _FLIP_LETTERS), style="said")
                            for answer in comparison.said_answers(flip)
                        ),
                    ]
                )
                for flip in (column_flips[number] for number in sorted(order))
            ]
            tables.append(Table(["texts", "right answer", *pairs[column]], rows))
            shown += len(rows)
        if tables:
            total = sum(map(len, by_task[task].values()))
            title = f"{task_label(task)}: questions that one run has right and the other wrong ({shown} of {total:,})"
            folds.append(Details(title, tables=tables))
    return folds


def _difference(found: analysis.Difference | None) -> Cell:
    if found is None:
        return ABSENT
    interval = f"{percent(found.low, sign=True)} to {percent(found.high, sign=True)}"
    return Cell(
        f"{percent(found.value, sign=True)} {found.mark}".rstrip(),
        interval,
        "value clear" if found.is_clear else "value plain",
        below=f"{found.only_second:,} : {found.only_first:,}",
    )
