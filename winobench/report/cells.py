"""Tables of pages, and columns of CSV files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from winobench.base import text_tables
from winobench.report.wording import DASH, percent

# Columns of every number in CSV files, and of tasks whose answers are right or wrong.
NUMBER_COLUMNS = ("value", "low", "high", "n")
PROPORTION_COLUMNS = ("value", "low", "high", "chance", "n", "independent", "ties")


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
    """One cell of a table: text, small print next to and below it, and its style."""

    text: str
    small: str = ""
    style: str = ""
    bar: Bar | None = None
    below: str = ""

    @property
    def in_one_line(self) -> str:
        small = "; ".join(filter(None, (self.small, self.below)))
        return f"{self.text} ({small})" if small else self.text


ABSENT = Cell(DASH, style="absent")  # of a run that has no such number


@dataclasses.dataclass(frozen=True)
class TableRow:
    """A row of cells. A heading row has one cell that spans the table."""

    cells: Sequence[Cell]
    heading: bool = False


@dataclasses.dataclass(frozen=True)
class Table:
    """A table for people. A number as the heading of a column means a run."""

    columns: Sequence[str | int]
    rows: Sequence[TableRow]
    caption: str = ""

    def written(self, format: str, labels: Sequence[str]) -> str:
        """The table as a text of a file, in a format of `text_tables.write_table`. ``labels`` are the runs'."""
        columns = [labels[column] if isinstance(column, int) else column for column in self.columns]
        rows = [[row.cells[0].text] if row.heading else [cell.in_one_line for cell in row.cells] for row in self.rows]
        has_texts = any(cell.style == "said" for row in self.rows for cell in row.cells)
        return text_tables.write_table(format, columns, rows, texts=len(columns) if has_texts else 1)


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
