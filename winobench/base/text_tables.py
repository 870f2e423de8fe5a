"""Tables as plain text, Markdown, LaTeX, CSV and HTML. Each format escapes the cells."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

import rich.cells

from winobench.base import csv_cells
from winobench.base.errors import InputError

TableFormat = Literal["text", "markdown", "latex", "csv"]

SUFFIXES = {"text": ".txt", "markdown": ".md", "latex": ".tex", "csv": ".csv"}
"""Format -> how the names of its files end."""

FILE_FORMATS = ("csv", "markdown", "latex")
"""Formats of the tables next to a report. The first one is always there."""

_MARKDOWN = re.compile(r"([\\`*_<>\[\]|~$&#])")
_ESCAPED = r"\\\1"
_LATEX = {
    **{letter: f"\\{letter}" for letter in "#$%&_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "−": "$-$",
    "–": "--",
    "—": "---",
    "…": r"\ldots{}",
    "“": "``",
    "”": "''",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    "●": r"$\bullet$",
    "○": r"$\circ$",
    "★": r"$\star$",
    "✓": r"$\surd$",
    "✗": r"$\times$",
    "·": r"$\cdot$",
}


def percent(value: float, sign: bool = False) -> str:
    """A proportion in percent with one decimal."""
    text = f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"
    return "0.0" if float(text) == 0 else text


def check_format(name: str, known: Collection[str] = SUFFIXES.keys()) -> None:
    if not isinstance(name, str) or name not in known:
        raise InputError(f"format is {name!r:.80}: choose one of {', '.join(known)}.", code="unknown-name")


def write_csv(records: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Records (column -> number or text) as CSV. Texts that look like formulas get an apostrophe."""
    return csv_cells.write_rows(columns, records, line_end="\n")


def write_table(format: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, texts: int = 1) -> str:
    """A table in any format but CSV, or in ``html``, with a line end behind it.

    The first ``texts`` columns are aligned to the left, the others to the right. A row of one cell is a heading.
    """
    rows = [[_one_line(cell) for cell in row] for row in rows]
    return _WRITERS[format]([_one_line(column) for column in columns], rows, texts)


def comment(format: str, title: str) -> str:
    """A title above a table, as a line: a comment in LaTeX. Empty without one."""
    title = _one_line(title)
    if not title:
        return ""
    return f"% {title}\n" if format == "latex" else f"{escape_markdown(title)}\n\n"


def escape_markdown(text: str) -> str:
    """A text as one line without meaning in Markdown."""
    return _MARKDOWN.sub(_ESCAPED, _one_line(text))


def _one_line(text: str) -> str:
    """Removes line ends, tabs and control characters of terminals."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _is_heading(columns: Sequence[str], row: Sequence[str]) -> bool:
    return len(row) == 1 < len(columns)


def _text(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    widths = [
        max(rich.cells.cell_len(row[column]) for row in (columns, *rows) if not _is_heading(columns, row))
        for column in range(len(columns))
    ]

    def line(cells: Sequence[str]) -> str:
        parts = []
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            space = " " * (width - rich.cells.cell_len(cell))
            parts.append(cell + space if column < texts else space + cell)
        return "  ".join(parts).rstrip()

    body = [row[0] if _is_heading(columns, row) else line(row) for row in rows]
    return "\n".join([line(columns), "  ".join("-" * width for width in widths), *body, ""])


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    def escaped(row: Sequence[str]) -> list[str]:
        cells = [_MARKDOWN.sub(_ESCAPED, cell) for cell in row]
        return [f"**{cells[0]}**", *[""] * (len(columns) - 1)] if _is_heading(columns, row) else cells

    rule = ["---" if place < texts else "---:" for place in range(len(columns))]
    return "\n".join([line(escaped(columns)), line(rule), *(line(escaped(row)) for row in rows), ""])


def _latex(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    """A ``tabular`` that needs the package booktabs."""

    def escaped(cell: str, is_number: bool) -> str:
        text = "".join(_LATEX.get(letter, letter) for letter in cell)
        if is_number:
            text = re.sub(r"(?<![\w.])-(?=\d)", "$-$", text)
        return f"{{}}{text}" if text[:1] in ("[", "*") else text  # else an option of the line end before it

    def line(row: Sequence[str]) -> str:
        if _is_heading(columns, row):
            return rf"\multicolumn{{{len(columns)}}}{{l}}{{\textbf{{{escaped(row[0], False)}}}}} \\"
        return " & ".join(escaped(cell, column >= texts) for column, cell in enumerate(row)) + r" \\"

    alignment = "".join("l" if column < texts else "r" for column in range(len(columns)))
    body: list[str] = []
    for row in rows:
        if _is_heading(columns, row) and body:
            body.append(r"\addlinespace")
        body.append(line(row))
    begin, end = [rf"\begin{{tabular}}{{{alignment}}}", r"\toprule"], [r"\bottomrule", r"\end{tabular}", ""]
    return "\n".join([*begin, line(columns), r"\midrule", *body, *end])


def _html(columns: Sequence[str], rows: Sequence[Sequence[str]], texts: int) -> str:
    def line(row: Sequence[str], tag: str) -> str:
        cells = [
            f'<{tag} style="text-align: {"left" if column < texts else "right"}">{html.escape(cell)}</{tag}>'
            for column, cell in enumerate(row)
        ]
        if _is_heading(columns, row):
            cells = [f'<th colspan="{len(columns)}" style="text-align: left">{html.escape(row[0])}</th>']
        return f"<tr>{''.join(cells)}</tr>"

    body = "\n".join(line(row, "td") for row in rows)
    return f"<table>\n<thead>{line(columns, 'th')}</thead>\n<tbody>\n{body}\n</tbody>\n</table>\n"


_WRITERS: dict[str, Callable[[Sequence[str], Sequence[Sequence[str]], int], str]] = {
    "text": _text,
    "markdown": _markdown,
    "latex": _latex,
    "html": _html,
}
