"""A run's results as tables, and in a few lines."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from winobench.base import text_tables
from winobench.base.text_tables import TableFormat

if TYPE_CHECKING:
    from winobench.runs.run import Run, TaskRun

_COLUMNS = ("task", "metric", "group", "value", "low", "high", "chance", "n", "ties")
_SHOWN_TASKS, _SHOWN_ROWS = 4, 40  # in a few lines, and in a notebook


def results_table(run: Run, format: TableFormat, groups: bool) -> str:
    text_tables.check_format(format)
    if format == "csv":
        return text_tables.write_csv(list(_records(run, groups)), _COLUMNS)
    return text_tables.write_table(format, *_cells(run, groups), texts=2)


def few_lines(run: Run) -> str:
    tasks = list(run.tasks.values())
    shown = tasks if len(tasks) <= _SHOWN_TASKS + 1 else tasks[:_SHOWN_TASKS]
    lines = [f"<Run of {run.model}, {_counted(len(tasks), 'task')}{_failed(run)}, in {run.path}>"]
    lines += [f"  {headline(task)}" for task in shown]
    if len(shown) < len(tasks):
        lines.append(f"  and {len(tasks) - len(shown)} more tasks: print(run.table())")
    return "\n".join(lines)


def notebook(run: Run) -> str:
    columns, rows = _cells(run, groups=False)
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
    return f"{record.name}: {name} {value}{'' if _has_numbers(record) else '%'} ({low} to {high})"


def _has_numbers(record: TaskRun) -> bool:
    """Whether the values are effect sizes or agreement with ratings, instead of proportions."""
    return record.is_bias or record.is_rated


def _number(record: TaskRun, value: float) -> str:
    return f"{value:.{2 if record.is_bias else 3}f}" if _has_numbers(record) else text_tables.percent(value)


def _rows(run: Run, groups: bool) -> Iterator[tuple[TaskRun, str, Mapping[str, Any]]]:
    for record in run.tasks.values():
        for name, entry in record.results.items():
            if groups or "/" not in name:
                yield record, name, entry


def _records(run: Run, groups: bool) -> Iterator[dict[str, Any]]:
    for record, name, entry in _rows(run, groups):
        group, _, metric = name.rpartition("/")
        numbers = {column: entry.get(column) for column in _COLUMNS[3:]}
        yield {"task": record.name, "metric": metric, "group": group, **numbers}


def _cells(run: Run, groups: bool) -> tuple[list[str], list[list[str]]]:
    """Columns and rows. Proportions are in percent, and say so where other numbers are in the table."""
    is_mixed = any(map(_has_numbers, run.tasks.values()))
    rows = []
    for record, name, entry in _rows(run, groups):
        value, low, high = (_number(record, entry[key]) for key in ("value", "low", "high"))
        chance = entry.get("chance")
        unit = "%" if is_mixed and not _has_numbers(record) else ""
        said = "" if chance is None else f"{_number(record, chance)}{unit}"
        rows.append([record.name, name, f"{value}{unit}", f"{low} to {high}", said, f"{entry['n']:,}"])
    return ["task", "metric", "value" if is_mixed else "%", "95% interval", "chance", "n"], rows


def _failed(run: Run) -> str:
    return f" and {_counted(len(run.failed), 'failed one')}" if run.failed else ""


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
