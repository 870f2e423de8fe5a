"""Text in a terminal: lines of 80 columns, up to 100 where the terminal has them."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence

NARROWEST, WIDEST = 80, 100
_LEAST = 12  # letters of a table's last column


def width() -> int:
    """The terminal's width, within the bounds above."""
    return min(max(shutil.get_terminal_size((NARROWEST, 24)).columns, NARROWEST), WIDEST)


def wrapped(text: str, indent: int, columns: int = NARROWEST) -> list[str]:
    """The lines of a text, each behind so many spaces. Words that are longer than a line stay whole."""
    space = " " * indent
    return textwrap.wrap(
        text,
        columns,
        initial_indent=space,
        subsequent_indent=space,
        break_long_words=False,
        break_on_hyphens=False,
    )


def table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), columns: int = NARROWEST
) -> list[str]:
    """The lines of a table. The last column fills the width, and its long texts take several lines."""
    every = [header, *rows] if header else rows
    widths = [max(map(len, cells)) for cells in zip(*(row[:-1] for row in every), strict=True)]
    room = sum(widths) + 2 * len(widths)
    lines = []
    for row in every:
        cells = [f"{row[n]:>{width}}" if n in right else f"{row[n]:<{width}}" for n, width in enumerate(widths)]
        first, *rest = wrapped(row[-1], room, max(columns, room + _LEAST)) or [""]
        lines += [f"{'  '.join(cells)}  {first.lstrip()}".rstrip(), *rest]
    return lines


def usage(text: str, columns: int) -> list[str]:
    """The lines of a launcher's usage. Paragraphs are filled. An example stays a line, its remark may move below it."""
    lines: list[str] = []
    for block in text.strip().split("\n\n"):
        lines += _examples(block, columns) if block.startswith("  ") else wrapped(" ".join(block.split()), 0, columns)
        lines.append("")
    return lines


def _examples(block: str, columns: int) -> list[str]:
    """Commands and, two spaces after them, their remarks: on the same line, or below if one is too long."""
    joined = re.sub(r" \\\n +", " ", block)
    parted = [[*re.split(r"(?<=\S)  +", line, maxsplit=1), ""][:2] for line in joined.splitlines()]
    column = max((len(command) for command, remark in parted if remark), default=0) + 2
    is_beside = all(column + len(remark) <= columns for _, remark in parted)
    lines = []
    for command, remark in parted:
        if is_beside and remark:
            lines.append(f"{command:<{column}}{remark}")
            continue
        indent = len(command) - len(command.lstrip())
        parts = wrapped(command.strip(), indent + 4, columns - len(" \\")) if len(command) > columns else [command]
        parts[0] = " " * indent + parts[0].lstrip()
        lines += [*(f"{part} \\" for part in parts[:-1]), parts[-1], *wrapped(remark, indent + 6, columns)]
    return lines


def described(rows: Sequence[tuple[str, ...]], columns: int) -> list[str]:
    """Rows of a name, perhaps a value, and a meaning: on the same line, or below if one is too long."""
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    heads = ["  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)) for row in rows]
    room = max(map(len, heads)) + 2
    is_narrow = room <= columns // 3
    is_beside = is_narrow or all(room + len(meaning) <= columns for *_, meaning in rows)
    lines = []
    for head, (*_, meaning) in zip(heads, rows, strict=True):
        first, *rest = wrapped(meaning, room if is_beside else 6, columns) or [""]
        lines += [f"{head}  {first.lstrip()}".rstrip(), *rest] if is_beside else [head.rstrip(), first, *rest]
    return lines
