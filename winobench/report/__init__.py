"""Reports on finished runs: one self-contained page, and a PNG and a CSV file behind each figure and table.

The tables of the terminal are here, too, and the papers' numbers that stand next to ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from winobench.report.page import write_report

__all__ = ["write_report"]


def __getattr__(name: str) -> Any:
    # Late: a table in the terminal needs no Matplotlib.
    if name == "write_report":
        from winobench.report.page import write_report

        return write_report
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
