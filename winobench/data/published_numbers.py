"""Reads the numbers that papers print, from ``assets/published_numbers.json``."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from typing import Any

from winobench.base import json_files

_PATH = pathlib.Path(__file__).resolve().parents[1] / "assets" / "published_numbers.json"
GDBENCH = "gdbench"  # the paper whose tables most numbers are from
TEXT_BENCHMARKS = ("winoviz", "wscplus")
"""The text benchmarks, which are also names of papers. The names of their tasks begin with one of these."""

PEOPLE = "human"  # the model's name of numbers that people reach


@dataclasses.dataclass(frozen=True)
class PublishedNumber:
    """One cell of a table of a paper, or a number in its text, and which number of ours it stands next to."""

    table: str  # "1a", "section 3.1", or another name of the place
    row: str  # headings as printed, with the heading of their block before a slash
    column: str
    printed: str  # without a percent sign: "61.5", "0.94*", "3,026"
    unit: str  # percent, proportion, effect size, kappa or count
    metric: str  # its key in our results, or a name such as share/traditional for numbers about the data
    task: str | None = None  # None for numbers about the data
    model: str | None = None  # a name of our registry or of an API, human, random, or None. The base if fine-tuned
    finetuning: str | None = None  # which of the paper's; None for the model as released
    normalize: str | None = None  # none or unconditional where that makes a difference (image retrieval)
    num_samples: int | None = None  # noise and timestep samples per pair; None for models that need none
    protocol: str | None = None  # ours, of text tasks
    n: int | None = None  # questions or pairs, where the paper or its digits state them
    significant: bool | None = None  # has the star of p < 0.01; None where the table has no stars
    paper: str = GDBENCH
    note: str = ""  # a caveat, as the end of a sentence that begins with the number
    exactly: bool = False  # stands only next to numbers of the same model and number of samples

    @property
    def value(self) -> float:
        """The number as our results state it: proportions in [0, 1], others as printed."""
        number = float(self.printed.rstrip("*").replace(",", ""))
        return number / 100 if self.unit == "percent" else number

    @property
    def place(self) -> str:
        """The place in the paper: ``Table 1a``."""
        if self.table[0].isdigit():
            return f"Table {self.table}"
        return self.table if self.paper == "wscplus" else source(self.paper)["short"]

    @property
    def method(self) -> str:
        """The paper's name of the model or method: the heading of the row, or of the column in Tables 3, 5 and 6."""
        if self.model == PEOPLE:
            return "people"
        return self.column if self.paper == GDBENCH and self.table in ("3", "5", "6") else self.row


def source(paper: str = GDBENCH) -> dict[str, str]:
    """A paper's ``authors``, ``title``, ``short`` (to cite it by), and ``arxiv`` and ``venue`` where they are known."""
    return dict(_content()["papers"][paper])


def winoviz_models() -> dict[str, list[str]]:
    """WinoViz's models: short name -> other names, of the hub or an API."""
    return _content()["winoviz_models"]


def numbers(**wanted: Any) -> tuple[PublishedNumber, ...]:
    """The numbers whose properties have these values, paper by paper in the order of print. All without any."""
    return tuple(n for n in _numbers() if all(getattr(n, name) == value for name, value in wanted.items()))


@functools.cache
def _numbers() -> tuple[PublishedNumber, ...]:
    """Each number has the properties of its table, its row (a list has one value per column) and its column."""
    numbers = []
    for table in _content()["tables"]:
        shared = {name: value for name, value in table.items() if name not in ("columns", "rows")}
        for row in table["rows"]:
            for index, column in enumerate(table["columns"]):
                of_row = {name: value[index] if isinstance(value, list) else value for name, value in row.items()}
                properties = {**shared, **of_row, **column}
                if properties.pop("stars", False):
                    properties["significant"] = properties["printed"].endswith("*")
                numbers.append(PublishedNumber(**properties))
    return tuple(numbers)


@functools.cache
def _content() -> dict[str, Any]:
    return json_files.read(_PATH)
