"""Numbers and names as pages print them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from winobench.base import text_tables
from winobench.runs.labels import task_label

MINUS, DASH = "−", "–"  # before negative numbers, and in ranges and empty cells


def percent(value: float, sign: bool = False) -> str:
    """A proportion in percent with one decimal."""
    return text_tables.percent(value, sign).replace("-", MINUS)


def number(value: float, digits: int = 2) -> str:
    """A number with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", MINUS)


def probability(value: float) -> str:
    """A p-value with the digits that it needs."""
    return f"{value:.3f}" if value >= 0.001 else f"{value:.1g}"


def readable(name: str) -> str:
    """A name of the results in words: ``macro_accuracy`` is ``macro accuracy``."""
    return name.replace("_", " ")


def spread_of(values: Collection[float], written: Callable[[float], str] = "{:,}".format) -> str:
    """One number, or the least and the most where runs differ. Nothing without any."""
    return DASH.join(dict.fromkeys(written(end) for end in (min(values), max(values)))) if values else ""


def above_chance(value: Any, chance: Any, best: Any = 1.0) -> Any:
    """The share of the way from guessing, 0, to a perfect answer, 1, that a value has come. Also of arrays."""
    return (value - chance) / (best - chance)


def listed(tasks: Sequence[str]) -> str:
    """The labels of tasks, which may have commas, as the end of a sentence."""
    return "; ".join(map(task_label, tasks))


def short_interval(entry: Mapping[str, Any]) -> str:
    """A proportion's interval in whole percent, and its number of examples."""
    return f"{100 * entry['low']:.0f} to {100 * entry['high']:.0f}, n {entry['n']:,}"
