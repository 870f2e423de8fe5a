"""CSV files whose texts no spreadsheet takes for formulas.

A text that looks like one gets an apostrophe in front, which marks a text (OWASP, "CSV Injection"). Numbers stay.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# The wide forms are from East Asian keyboards. Spreadsheets compute them, too.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def escape_formula(value: Any) -> Any:
    """A cell's content as it is written. Only texts change. `unescape_formula` is the inverse."""
    is_formula = isinstance(value, str) and _FORMULA.match(value) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


def unescape_formula(text: str) -> str:
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def write_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, line_end: str = "\r\n") -> str:
    """The text of a CSV file: a header and rows (column -> content, empty where it is missing), formulas escaped."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, columns, lineterminator=line_end)  # refuses rows with other columns
    writer.writerow({column: escape_formula(column) for column in columns})
    writer.writerows({column: escape_formula(cell) for column, cell in row.items()} for row in rows)
    return buffer.getvalue()
