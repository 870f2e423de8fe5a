"""Differences between runs, paired over the examples that both have answered."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.report import analysis
from winobench.report.cells import ABSENT, Cell, Table, TableRow
from winobench.report.sections.shared import FEW_RUNS, ReportData, Section, sub_task_folds
from winobench.report.wording import MINUS, percent, readable, spread_of
from winobench.runs.labels import task_label
from winobench.runs.rows import rows_of
from winobench.runs.run import Run

NO_NOISE = "‡"  # at marks without the noise of the samples

# Metric -> right and wrong under resampled samples, or None, and the reason.
_Draws = tuple[Mapping[str, np.ndarray] | None, str]
# Task and row of its results -> place of a pair of runs -> their difference.
_Found = dict[tuple[str, str], dict[int, analysis.Difference]]


def difference_section(report_data: ReportData) -> Section | None:
    """Paired differences between runs."""
    if len(report_data.runs) < 2:
        return None
    pairs = report_data.compared()
    found, notes = _differences(report_data, pairs)
    main, parts = _rows(found, len(pairs))
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
    if found:
        count = sum(map(len, found.values()))
        section.intro.append(
            f"● clear: the p-value, adjusted for the {count:,} differences below (Benjamini and Hochberg), is "
            f"at most {100 * analysis.CLEAR_BELOW:g}%, so that at most one mark in {1 / analysis.CLEAR_BELOW:g} is "
            f"expected to be chance, and the runs differ on at least {analysis.FEW_CLUSTERS} independent {clusters}.  "
            "○ the interval excludes 0, but the difference is not clear."
        )
        section.intro.append(
            f"Intervals and marks know that other examples would give other numbers.{_of_samples(report_data, found)}"
        )
    titles = [f"{report_data.runs[second].label} {MINUS} {report_data.runs[first].label}" for first, second in pairs]
    columns = ["task and metric", *titles, "examples"]
    if main:
        section.tables.append(Table(columns, main))
    section.folds = sub_task_folds(columns, parts)
    if found:
        section.records["differences.csv"] = _records(report_data, pairs, found, clusters)
    return section


def _differences(report_data: ReportData, pairs: Sequence[tuple[int, int]]) -> tuple[_Found, list[str]]:
    """The differences, and sentences on missing or partial comparisons."""
    found: _Found = {}
    notes = []
    lacking: dict[str, list[str]] = {}
    for task in report_data.tasks:
        if not report_data.has_answers(task):
            continue
        draws: dict[int, _Draws] = {}
        for place, numbers in enumerate(pairs):
            one, other = (report_data.runs[number] for number in numbers)
            if task not in one.tasks or task not in other.tasks:
                continue
            for number in numbers:
                if number not in draws:
                    draws[number] = _draws(report_data.runs[number], task)
            compared = _compare(one, other, task, [draws[number] for number in numbers])
            if compared is None:
                notes.append(
                    f"{one.label} and {other.label} have no example of {task_label(task)} in common: not compared."
                )
                continue
            differences, shared = compared
            asked = [len(run.tasks[task].examples.ids) for run in (one, other)]
            if shared < max(asked):
                notes.append(
                    f"{one.label} and {other.label} were asked different examples of {task_label(task)} "
                    f"({asked[0]:,} and {asked[1]:,}): compared on the {shared:,} that are the same."
                )
            for difference in differences:
                found.setdefault((task, difference.name), {})[place] = difference
        for number, (_, reason) in draws.items():
            if reason:
                lacking.setdefault(reason, []).append(f"{task_label(task)} of {report_data.runs[number].label}")
    notes += [f"{NO_NOISE} {reason}: {'; '.join(whose)}." for reason, whose in lacking.items()]
    # One adjustment for all rows of the page.
    places = [(key, place) for key, by_pair in found.items() for place in by_pair]
    together = analysis.adjusted([found[key][place] for key, place in places])
    for (key, place), difference in zip(places, together, strict=True):
        found[key][place] = difference
    return found, notes


def _of_samples(report_data: ReportData, found: _Found) -> str:
    """The sentence on the noise of the samples, if there are any."""
    if all(run.tasks[task].deterministic for task, _ in found for run in report_data.runs if task in run.tasks):
        return ""
    said = " They also know that other noise and timesteps would, from the recorded errors of each sample"
    if any(difference.lacks_noise for by_pair in found.values() for difference in by_pair.values()):
        said += f", but for marks with {NO_NOISE}: without it fewer of them may be left"
    return f"{said}."


def _draws(run: Run, task: str) -> _Draws:
    """The answers under resampled samples, or the reason for none."""
    record = run.tasks[task]
    if record.deterministic or record.examples is None:
        return None, ""
    if run.has_raced(task):
        return None, "Pairs have different numbers of samples"
    if record.num_samples == 1:
        return None, "One sample does not tell how samples vary"
    batches = None if record.judge is None else run.batches(task)
    if batches is None:
        return None, "No complete errors are recorded"
    return analysis.redrawn(batches, record.examples.targets, record.judge, record.timesteps), ""


def _rows(found: _Found, num_pairs: int) -> tuple[list[TableRow], dict[str, list[TableRow]]]:
    """Rows of the tasks under their headings, and task -> rows of its sub-tasks."""
    main, parts = [], {}
    last = None
    for (task, name), by_pair in found.items():
        group, _, metric = name.rpartition("/")
        label = Cell(readable(group), metric if metric != "accuracy" else "") if group else Cell(readable(metric))
        cells = [_difference(by_pair.get(place)) for place in range(num_pairs)]
        counted = Cell(spread_of({difference.num_examples for difference in by_pair.values()}))
        if group:
            parts.setdefault(task, []).append(TableRow([label, *cells, counted]))
            continue
        if task != last:
            main.append(TableRow([Cell(task_label(task), task)], heading=True))
        main.append(TableRow([label, *cells, counted]))
        last = task
    return main, parts


def _records(
    report_data: ReportData, pairs: Sequence[tuple[int, int]], found: _Found, clusters: str
) -> list[dict[str, Any]]:
    rows = []
    for (task, name), by_pair in found.items():
        group, _, metric = name.rpartition("/")
        for place, difference in by_pair.items():
            first, second = pairs[place]
            called = {"first": report_data.runs[first].label, "second": report_data.runs[second].label, "task": task}
            values = {"difference": difference.value, "low": difference.low, "high": difference.high}
            verdicts = {
                "excludes_zero": difference.excludes_zero,
                "p": difference.p_value,
                "p_adjusted": difference.p_adjusted,
                "clear": difference.is_clear,
                "knows_samples": not difference.lacks_noise,
            }
            counts = {
                f"{clusters}_apart": difference.clusters_apart,
                "n": difference.num_examples,
                "only_first": difference.only_first,
                "only_second": difference.only_second,
            }
            rows.append({**called, "metric": metric, "group": group, **values, **verdicts, **counts})
    return rows


def _compare(one: Run, other: Run, task: str, draws: Sequence[_Draws]) -> tuple[list[analysis.Difference], int] | None:
    first, second = one.tasks[task], other.tasks[task]
    shared = analysis.shared_rows(first, second)
    if not len(shared[0]) or first.metric != second.metric or first.metric is None:
        return None
    lacks_noise = any(reason for _, reason in draws)
    first, second = (analysis.select(record, rows) for record, rows in zip((first, second), shared, strict=True))
    # The groups of the first run count for both: they are not part of the question.
    second = dataclasses.replace(second, examples=dataclasses.replace(second.examples, groups=first.examples.groups))
    rows, others = (
        {row.name: row for row in rows_of(record, None if lacks_noise else _taken(redrawn, taken))}
        for record, (redrawn, _), taken in zip((first, second), draws, shared, strict=True)
    )
    names = [name for name in rows if name in others]  # a run with a limit may lack whole pairs
    if not names:
        return None
    pairs = ([rows[name] for name in names], [others[name] for name in names])
    found = analysis.paired_differences(*pairs, first.examples.dependence)
    return [dataclasses.replace(difference, lacks_noise=lacks_noise) for difference in found], len(shared[0])


def _taken(redrawn: Mapping[str, np.ndarray] | None, rows: np.ndarray) -> dict[str, np.ndarray] | None:
    return None if redrawn is None else {name: correct[rows] for name, correct in redrawn.items()}


def _difference(found: analysis.Difference | None) -> Cell:
    if found is None:
        return ABSENT
    mark = " ●" if found.is_clear else " ○" if found.excludes_zero else ""
    mark += f" {NO_NOISE}" if mark and found.lacks_noise else ""
    interval = f"{percent(found.low, sign=True)} to {percent(found.high, sign=True)}"
    return Cell(
        f"{percent(found.value, sign=True)}{mark}",
        interval,
        "value clear" if found.is_clear else "value plain",
        below=f"{found.only_second:,} : {found.only_first:,}",
    )
