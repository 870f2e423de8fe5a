"""Reports on finished runs: one self-contained page, and a PNG and a CSV file behind each figure and table.

The tables of the terminal are here, too, and the papers' numbers that stand next to ours.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from winobench.report.exports import eval_results, inspect_log, model_card
    from winobench.report.page import write_report

_HOME = {"eval_results": "exports", "inspect_log": "exports", "model_card": "exports", "write_report": "page"}

__all__ = ["eval_results", "inspect_log", "model_card", "write_report"]


def __getattr__(name: str) -> Any:
    # Late: a table in the terminal needs no Matplotlib.
    if name in _HOME:
        return getattr(importlib.import_module(f"winobench.report.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
