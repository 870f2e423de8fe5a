"""The results of runs as tables, and of one in a few lines."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from winobench.base import text_tables
from winobench.base.text_tables import TableFormat


class TaskRun(Protocol):
    """The part of `winobench.runs.run.TaskRun` that tables show."""

    @property
    def name(self) -> str: ...
    @property
    def results(self) -> Mapping[str, Mapping[str, Any]]: ...
    @property
    def shown(self) -> Sequence[str]: ...
    @property
    def is_bias(self) -> bool: ...
    @property
    def is_rated(self) -> bool: ...


class Run(Protocol):
    """The part of `winobench.runs.run.Run` that tables show."""

    @property
    def label(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def path(self) -> Any: ...
    @property
    def results(self) -> Mapping[str, Any]: ...
    @property
    def tasks(self) -> Mapping[str, TaskRun]: ...
    @property
    def failed(self) -> Mapping[str, str]: ...


COLUMNS = ("task", "metric", "group", "value", "low", "high", "chance", "n", "independent", "ties", "too_few")
"""Columns of `records`: texts up to the group, then numbers, and whether n is too small for the interval."""

_SHOWN_TASKS, _SHOWN_ROWS = 4, 40  # in a few lines, and in a notebook


def results_table(runs: Sequence[Run], format: TableFormat, groups: bool) -> str:
    """A table of one run, or of several side by side. In CSV they follow each other."""
    text_tables.check_format(format)
    if format == "csv":
        return text_tables.write_csv(*records_of(runs, groups))
    return text_tables.write_table(format, *_cells(runs, groups), texts=2)


def few_mark(entry: Mapping[str, Any]) -> str:
    """The end of an interval for which a mean or an effect size has too few values."""
    return ", n too small" if entry.get("too_few") else ""


def few_lines(run: Run) -> str:
    tasks = list(run.tasks.values())
    shown = tasks if len(tasks) <= _SHOWN_TASKS + 1 else tasks[:_SHOWN_TASKS]
    lines = [f"<Run of {run.model}, {_counted(len(tasks), 'task')}{_failed(run)}, in {run.path}>"]
    lines += [f"  {headline(task)}" for task in shown]
    if len(shown) < len(tasks):
        lines.append(f"  and {len(tasks) - len(shown)} more tasks: print(run.table())")
    return "\n".join(lines)


def notebook(run: Run) -> str:
    columns, rows = _cells([run], groups=False)
    said = f"{run.model}, {_counted(len(run.tasks), 'task')}{_failed(run)}, in {run.path}"
    parts = [f"<p>{html.escape(said)}</p>", text_tables.write_table("html", columns, rows[:_SHOWN_ROWS], texts=2)]
    if len(rows) > _SHOWN_ROWS:
        parts.append(f"<p>and {len(rows) - _SHOWN_ROWS:,} more rows: <code>print(run.table())</code></p>")
    return "\n".join(parts)


def headline(record: TaskRun) -> str:
    """A task's name, its first shown row and the interval."""
    name = next((row for row in record.shown if row in record.results), None)
    if name is None:
        return record.name
    entry = record.results[name]
    value, low, high = (_number(record, entry[key]) for key in ("value", "low", "high"))
    return f"{record.name}: {name} {value}{'' if _has_numbers(record) else '%'} ({low} to {high}{few_mark(entry)})"


def _has_numbers(record: TaskRun) -> bool:
    """Whether the values are effect sizes or agreement with ratings, instead of proportions."""
    return record.is_bias or record.is_rated


def _number(record: TaskRun, value: float) -> str:
    return f"{value:.{2 if record.is_bias else 3}f}" if _has_numbers(record) else text_tables.percent(value)


def _rows(run: Run, groups: bool) -> Iterator[tuple[tuple[str, str], TaskRun, Mapping[str, Any]]]:
    for task, record in run.tasks.items():
        for name, entry in record.results.items():
            if groups or "/" not in name:
                yield (task, name), record, entry


def records(tasks: Mapping[str, Mapping[str, Any]], groups: bool) -> list[dict[str, Any]]:
    """The tasks of ``results.json`` as rows of `COLUMNS`, in full precision. ``groups`` adds sub-tasks."""
    rows = []
    for task, entries in tasks.items():
        for name, entry in entries.items():
            group, _, metric = name.rpartition("/")
            if groups or not group:
                rows.append({"task": task, "metric": metric, "group": group} | {c: entry.get(c) for c in COLUMNS[3:]})
    return rows


def records_of(runs: Sequence[Run], groups: bool) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows and columns of `records`. The first column is the run where there are several."""
    if len(runs) == 1:
        return records(runs[0].results["tasks"], groups), [*COLUMNS]
    rows = [{"run": run.label, **row} for run in runs for row in records(run.results["tasks"], groups)]
    return rows, ["run", *COLUMNS]


def _cells(runs: Sequence[Run], groups: bool) -> tuple[list[str], list[list[str]]]:
    """Columns and rows. Proportions are in percent, and say so where other numbers are in the table."""
    is_mixed = any(_has_numbers(record) for run in runs for record in run.tasks.values())
    by_row: dict[tuple[str, str], list[tuple[str, ...] | None]] = {}
    for number, run in enumerate(runs):
        for key, record, entry in _rows(run, groups):
            unit = "%" if is_mixed and not _has_numbers(record) else ""
            by_row.setdefault(key, [None] * len(runs))[number] = _row(record, entry, unit)
    rows = []
    for key, cells in by_row.items():
        there = [cell for cell in cells if cell]
        _, _, *others = zip(*there, strict=True)
        values = there[0][:2] if len(runs) == 1 else [f"{cell[0]} ({cell[1]})" if cell else "" for cell in cells]
        rows.append([*key, *values, *("; ".join(dict.fromkeys(other)) for other in others)])
    unit = "value" if is_mixed else "%"
    shown = [unit, "95% interval"] if len(runs) == 1 else [f"{run.label}, {unit} (95% interval)" for run in runs]
    headings = ["task", "metric", *shown, "chance", "n", "independent"]
    if not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    return headings, rows


def _row(record: TaskRun, entry: Mapping[str, Any], unit: str) -> tuple[str, ...]:
    """Value, interval, chance, n, and the independent examples where they are fewer, of an entry."""
    value, low, high = (_number(record, entry[key]) for key in ("value", "low", "high"))
    chance = entry.get("chance")
    said = "" if chance is None else f"{_number(record, chance)}{unit}"
    independent = entry.get("independent", entry["n"])
    fewer = f"{independent:,}" if independent < entry["n"] else ""
    return f"{value}{unit}", f"{low} to {high}{few_mark(entry)}", said, f"{entry['n']:,}", fewer


def _failed(run: Run) -> str:
    return f" and {_counted(len(run.failed), 'failed one')}" if run.failed else ""


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
