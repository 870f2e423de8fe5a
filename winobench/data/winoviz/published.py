"""The numbers that WinoViz's paper prints (Tables 1 to 4 and 6)."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from winobench.base import json_files
from winobench.data import winoviz as data
from winobench.metrics.intervals import Interval, wilson


@dataclasses.dataclass(frozen=True)
class PublishedNumber:
    """One cell of Tables 1 to 4 and 6.

    Attributes:
      table: ``"1"``.
      row: heading as printed.
      column: heading as printed, with that of its block before a slash.
      printed: the cell as printed, in percent.
      task: ours.
      metric: its key in our results.
      model: short name, e.g. ``"flan-t5-xxl"``.
      protocol: ours.
      n: questions, or pairs for ``pair``, as the printed digits imply (see the notes in the file).
    """

    table: str
    row: str
    column: str
    printed: str
    task: str
    metric: str
    model: str
    protocol: str
    n: int

    @property
    def value(self) -> float:
        """In [0, 1]."""
        return float(self.printed) / 100

    @property
    def interval(self) -> Interval:
        """Wilson's 95% interval; it takes the two questions of a pair for independent, which nobody can check."""
        return wilson(self.value * self.n, self.n)


@functools.cache
def published_numbers() -> tuple[PublishedNumber, ...]:
    """All cells of Tables 1 to 4 and 6 (but one row), in the order of print, from ``assets/winoviz/published.json``.

    A number may stand in two tables, and FLAN-T5's in Tables 1 and 2 differ in the single-hop columns.
    """
    found = []
    for table in _published_file()["tables"]:
        for row in table["rows"]:
            for index, (column, printed) in enumerate(zip(table["columns"], row["values"], strict=True)):
                if "num_pairs" in row:
                    num_pairs = row["num_pairs"][index // 2]
                    n = num_pairs if column["metric"] == "pair" else 2 * num_pairs
                else:
                    n = table["num_questions"]
                found.append(
                    PublishedNumber(
                        table=table["table"],
                        row=row["row"],
                        printed=printed,
                        model=row["model"],
                        protocol=row.get("protocol") or table["protocol"],
                        n=n,
                        **column,
                    )
                )
    return tuple(found)


def published(task: str, model: str | None = None) -> tuple[PublishedNumber, ...]:
    """The paper's numbers for a task, in the order of print. None for our own set, which the paper did not measure.

    Args:
      task: ``winoviz_single``, ``winoviz_multi`` or ``winoviz_decoupled``. Any other has none.
      model: a short name, a hub id, or the name of a hosted model, which may follow its provider and a colon or slash
        (``openai:gpt-4-0314``); None for all models.
    """
    return tuple(
        number
        for number in published_numbers()
        if number.task == task and (model is None or _is_model(number.model, model))
    )


def _is_model(short: str, name: str) -> bool:
    names = {one.lower() for one in (short, *_published_file()["models"][short])}
    name = name.lower()
    return bool(
        {name, name.rsplit(":", 1)[-1], name.rsplit("/", 1)[-1]} & (names | {one.split("/")[-1] for one in names})
    )


@functools.cache
def _published_file() -> dict[str, Any]:
    return json_files.read(data.ASSETS / "published.json")
