"""Results as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rich.box
import rich.console
import rich.table


def print_results(results: Mapping[str, Any], console: rich.console.Console | None = None) -> None:
    """Prints one row a metric: value, 95% interval, chance level, number of examples and of ties, in percent.

    Tasks are headings, not a column, so that the table fits into 80 characters.

    Args:
      results: what `winobench.evaluate` returns, or the content of a ``results.json``.
      console: where to; stdout by default.
    """
    console = console or rich.console.Console()
    table = rich.table.Table(box=rich.box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("task and metric", no_wrap=True)
    for heading in ("%", "95% interval", "chance", "n", "ties"):
        table.add_column(heading, justify="right", no_wrap=True)
    for task, entries in results["tasks"].items():
        table.add_row(task, style="bold")
        for name, entry in entries.items():
            is_part = "/" in name
            table.add_row(
                f"    {name}" if is_part else f"  {name}",
                f"{100 * entry['value']:.1f}",
                f"{100 * entry['low']:.1f} to {100 * entry['high']:.1f}",
                "" if entry["chance"] is None else f"{100 * entry['chance']:.1f}",
                f"{entry['n']:,}",
                f"{entry['ties']:,}",
                style="dim" if is_part else None,
            )
        table.add_section()
    console.print(table)
