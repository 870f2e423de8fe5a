"""The task table: every value with its interval, chance and the paper's number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from winobench.report import published
from winobench.report.cells import PROPORTION_COLUMNS, Cell, Table, TableRow, proportion_cell
from winobench.report.sections.shared import Details, ReportData, Section, sub_task_folds
from winobench.report.table import constant_notes, independence_note
from winobench.report.wording import percent, readable, spread_of
from winobench.runs.labels import task_label
from winobench.runs.run import Run


def task_section(report_data: ReportData) -> Section:
    """The task table: values, intervals, chance, the paper's numbers."""
    tasks = [task for task in report_data.tasks if report_data.has_answers(task)]
    shared = "a pair widened to what their pairs" if report_data.is_text else "an image widened to what their images"
    note = independence_note(is_text=report_data.is_text)
    section = Section(
        "tasks",
        "Tasks",
        [
            f"Right answers in percent with their 95% interval (Wilson's, for examples that share {shared} carry). A "
            "tie is wrong. The small bar runs from 0 to 100%: dot and line are value and interval, the tick is chance. "
            f"{note[0].upper()}{note[1:]}"
        ],
    )
    if report_data.is_text:
        section.intro.append(
            "An answer that is incomplete or cannot be read is wrong too, and counted as unparsable. Questions whose "
            "calls failed count nowhere. Rows of kinds of errors are shares of all errors."
        )
    main, rows = [], []
    parts: dict[str, list[TableRow]] = {}
    for task in tasks:
        main.append(TableRow([Cell(task_label(task), task)], heading=True))
        for name in report_data.names(task):
            group, _, metric = name.rpartition("/")
            cells, paper_value = _cells(report_data, task, name), _paper_says(report_data, task, name)
            if group:
                parts.setdefault(task, []).append(TableRow(cells))
            else:
                main.append(TableRow([*cells, Cell(paper_value, style="paper")]))
            rows += report_data.csv_rows(
                task, name, {"metric": metric, "group": group}, PROPORTION_COLUMNS, paper=paper_value
            )
    columns = ["task and metric", *range(len(report_data.runs)), "chance", "examples"]
    if main:
        section.tables.append(Table([*columns, "paper"], main))
    is_quoted = any(row["paper"] for row in rows)
    if is_quoted:
        section.intro.append(_on_the_paper(report_data))
        section.intro += [
            f"The paper's number of {', '.join(map(task_label, of_tasks))}: {note}."
            for note, of_tasks in published.notes_of_runs(report_data.runs, tasks).items()
        ]
    if any(map(published.numbers_of_task, tasks)):
        section.folds.append(Details("All of the paper's numbers for these tasks", tables=[_paper_table(tasks)]))
    section.folds += sub_task_folds(columns, parts)
    left_out = len(report_data.tasks) - len(report_data.charted)
    if left_out:
        section.intro.append(f"Charts and the gallery leave out the last {left_out:,} tasks; CSV files have all.")
    section.notes = [
        note for run in report_data.runs for note in notes_of(run, tasks, several=len(report_data.runs) > 1)
    ]
    if rows:
        section.records["tasks.csv"] = rows
    return section


def _cells(report_data: ReportData, task: str, name: str) -> list[Cell]:
    group, _, metric = name.rpartition("/")
    entries = report_data.entries(task, name)
    known = [entry for entry in entries if entry]
    chances = {entry["chance"] for entry in known if entry["chance"] is not None}
    return [
        Cell(readable(group or metric), readable(metric) if group and metric != "accuracy" else ""),
        *(proportion_cell(entry, run) for run, entry in enumerate(entries)),
        Cell(spread_of(chances, percent)),
        Cell(spread_of({entry["n"] for entry in known}), "; ".join(_counted(known))),
    ]


def _counted(entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The numbers of independent and of tied examples, as far as they say anything."""
    if any(entry.get("independent", entry["n"]) < entry["n"] for entry in entries):
        yield f"{spread_of({entry['independent'] for entry in entries if 'independent' in entry})} independent"
    if any(entry["ties"] for entry in entries):
        yield f"{spread_of({entry['ties'] for entry in entries})} tied"


def _paper_says(report_data: ReportData, task: str, name: str) -> str:
    quoted = published.numbers_of_runs(report_data.runs, task, name)
    return "; ".join(f"{percent(other.value)} {published.citation(other)}" for other in quoted)


def _on_the_paper(report_data: ReportData) -> str:
    cited = "; ".join(source["short"] for source in published.sources(report_data.runs))
    prompt = ", asked by the same prompt" if report_data.is_text else ""
    return f"Next to ours is the paper's number ({cited}) for the same model{prompt}, with its row and table."


def notes_of(run: Run, tasks: Sequence[str], *, several: bool) -> list[str]:
    """Sentences on parts that a run lacks, with its name if there are several runs."""
    whose = f" in {run.label}" if several else ""
    notes = [f"{task_label(task)} gave no numbers{whose}: {reason}" for task, reason in run.failed.items()]
    notes += [f"{run.label}: {note}" if several else note for note in run.notes]
    flat = constant_notes({task_label(name): record.results for name, record in run.tasks.items()})
    notes += [f"{run.label}: {note}" if several else note for note in flat]
    missing = [task_label(task) for task in tasks if task not in run.tasks and task not in run.failed]
    if missing:
        notes.append(f"{run.label} was not asked: {', '.join(missing)}.")
    return notes


def _paper_table(tasks: Sequence[str]) -> Table:
    is_text = any(map(published.benchmark_of, tasks))
    rows = []
    for task in tasks:
        of_task = published.numbers_of_task(task)
        if of_task:
            rows.append(TableRow([Cell(task_label(task), task)], heading=True))
        for other in of_task:
            if is_text:
                row, protocol, where = other.method, other.protocol or "", f"{other.place}, {other.column}"
            else:
                row, protocol = other.row, "none" if other.num_samples is None else f"{other.num_samples:,}"
                where = f"{other.table}, {other.column}"
            rows.append(
                TableRow([Cell(other.metric), Cell(percent(other.value)), Cell(row), Cell(protocol), Cell(where)])
            )
    return Table(["task and metric", "%", "model", "prompt" if is_text else "samples a pair", "table, column"], rows)
