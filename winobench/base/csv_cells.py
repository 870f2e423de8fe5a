"""Texts in CSV files that no spreadsheet takes for a formula, and back.

A cell that begins with ``=``, ``+``, ``-``, ``@``, a tab or a line break is computed when a spreadsheet opens the file,
whoever wrote its text: a model, a caption from the web. Such texts get an apostrophe in front, which spreadsheets take
for "a text follows" (OWASP, "CSV Injection"). Numbers stay as they are, also where a text states one.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# The wide forms are those of East Asian keyboards, which spreadsheets also compute.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def harmless(value: Any) -> Any:
    """A cell's content as it is written; all but texts are left alone. `restored` is its inverse."""
    if not isinstance(value, str) or not _FORMULA.match(value) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def restored(text: str) -> str:
    """The text of a cell that `harmless` has written."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def write_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, line_end: str = "\r\n") -> str:
    """The text of a CSV file with a header, with all cells harmless.

    Args:
      columns: the header.
      rows: column -> content. A column that is not there gives an empty cell.
      line_end: of each row.
    """
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator=line_end)
    writer.writerow(map(harmless, columns))
    for row in rows:
        if unknown := row.keys() - set(columns):
            raise ValueError(f"a row has the unknown columns {sorted(unknown)}")
        writer.writerow([harmless(row.get(column, "")) for column in columns])
    return buffer.getvalue()
