"""Who judges whose pictures: tasks on pictures that models drew, by scorer and drawer (Self-Bench)."""

from __future__ import annotations

from winobench.report.sections.shared import ABSENT, Bar, Cell, ReportData, Section, Table, TableRow
from winobench.runs.labels import task_label

_PREFIXES = ("selfbench_", "clevr_selfbench_")
_CORRECT = ", correct"
_COLUMNS = ("value", "low", "high", "chance", "n", "ties")


def drawers_section(report_data: ReportData) -> Section | None:
    """A row a drawer, a column a scorer; all pictures, and those that show what they should."""
    tasks = [task for task in report_data.tasks if task.startswith(_PREFIXES)]
    rows, records = [], []
    for task in tasks:
        rows.append(TableRow([Cell(task_label(task), task)], heading=True))
        for name in report_data.names(task):
            drawer, _, metric = name.rpartition("/")
            if not drawer or metric != "accuracy":
                continue
            entries = report_data.entries(task, name)
            kept = "correct ones" if drawer.endswith(_CORRECT) else ""
            cells = [_cell(entry, number) for number, entry in enumerate(entries)]
            rows.append(TableRow([Cell(drawer.removesuffix(_CORRECT), kept), *cells]))
            for run, entry in zip(report_data.runs, entries, strict=True):
                if entry:
                    of_entry = {column: entry[column] for column in _COLUMNS}
                    records.append({"scorer": run.label, "drawer": drawer, "task": task, **of_entry})
    if not records:
        return None
    intro = (
        "From which of several texts was a picture drawn? Rows are the models that drew, columns the scorers. A scorer "
        "that knows only what it draws itself is good at its own pictures alone. Correct ones are those that people or "
        "a detector found to show what they should."
    )
    return Section(
        "drawers",
        "Whose pictures are understood",
        [intro],
        tables=[Table(["drawn by", *range(len(report_data.runs))], rows)],
        records={"drawers.csv": records},
    )


def _cell(entry, number: int) -> Cell:
    if not entry:
        return ABSENT
    interval = f"{100 * entry['low']:.0f} to {100 * entry['high']:.0f}, n {entry['n']:,}"
    bar = Bar(entry["value"], entry["low"], entry["high"], entry["chance"], number)
    return Cell(f"{100 * entry['value']:.1f}", interval, bar=bar)
