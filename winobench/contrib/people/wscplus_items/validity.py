"""Results of the annotators' labels: kept items, and the spread of validity over models and prompts."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from winobench.contrib.people.wscplus_items import checks
from winobench.contrib.people.wscplus_items.annotate import LABELS, VALID
from winobench.contrib.people.wscplus_items.items import Item, Origin
from winobench.data import published_numbers
from winobench.metrics.intervals import wilson

REFUSED_BY_CHECKS = "refused"
"""Outcome of items that are malformed, break a rule of the checks, or repeat another one. Annotators do not see it."""

OUTCOMES = (*LABELS, REFUSED_BY_CHECKS)
"""Outcomes of generated items, from best to worst."""

_STATED = published_numbers.numbers(paper="wscplus", metric="generation/valid")
PAPER_VALID = {number.protocol: number.value for number in _STATED}
"""Template -> the share of valid items of Claude 2 that the paper's section 2.3.3 states, WDQ and WIQ together."""


@dataclasses.dataclass(frozen=True)
class Fate:
    """The outcome of an item, or of a malformed part of an answer."""

    origin: Origin
    outcome: str  # of OUTCOMES. The worse of the annotators' labels
    reason: str | None = None  # why it was refused


@dataclasses.dataclass(frozen=True)
class Spread:
    """The outcomes of a group of items."""

    name: tuple[str, ...]
    n: int  # of pairs or questions, malformed parts included
    numbers: Mapping[str, int]  # outcome -> number of items

    def share(self, outcome: str) -> float:
        """Share of an outcome, in [0, 1]."""
        return self.numbers[outcome] / self.n


def worst(labels: Iterable[str]) -> str:
    """The label that counts: an item is as valid as its strictest annotator says (paper, section 2.5)."""
    return max(labels, key=LABELS.index)


def fates(
    items: Sequence[Item], annotations: Mapping[str, Mapping[str, str]], refused: Iterable[tuple[Origin, str]]
) -> list[Fate]:
    """Counts of all generated items by outcome."""
    judged = [Fate(item.origin, worst(labels[item.id] for labels in annotations.values())) for item in items]
    return judged + [Fate(origin, REFUSED_BY_CHECKS, reason) for origin, reason in refused]


def spread(found: Iterable[Fate], group: Callable[[Origin], tuple[str, ...]]) -> list[Spread]:
    """The spread of each group, in the order of the groups."""
    numbers: dict[tuple[str, ...], collections.Counter[str]] = {}
    for fate in found:
        numbers.setdefault(group(fate.origin), collections.Counter())[fate.outcome] += 1
    return [Spread(name, sum(counter.values()), counter) for name, counter in numbers.items()]


def by_model(found: Iterable[Fate]) -> list[Spread]:
    """Paper, Figure 2."""
    return spread(found, lambda origin: (origin.model,))


def by_prompt(found: Iterable[Fate]) -> list[Spread]:
    """Paper, Figure 3: template and query, the best last as in the paper's text. Traditional pairs alone."""
    order = {name: place for place, name in enumerate(("cot", "coe", "tot", "toe"))}
    spreads = spread(
        (fate for fate in found if fate.origin.query in ("wdq", "wiq")),
        lambda origin: (origin.template, origin.query),
    )
    return sorted(spreads, key=lambda one: (order.get(one.name[0], len(order)), one.name[1]))


def by_type(found: Iterable[Fate]) -> list[Spread]:
    """Paper, Figure 13 and Table 5: type and generating model."""
    return spread(found, lambda origin: (origin.type, origin.model))


def by_batch(found: Iterable[Fate]) -> list[Spread]:
    """Paper, Figure 12: pairs a request, the fewest first. Without duplicates, of which later requests have more."""
    spreads = spread(_new(found), lambda origin: (str(origin.batch),))
    return sorted(spreads, key=lambda one: int(one.name[0]))


def by_repeat(found: Iterable[Fate], requests: int) -> list[Spread]:
    """Paper, Figure 14: each ``requests`` requests of a prompt are a repeat. Without duplicates, as `by_batch`."""
    spreads = spread(_new(found), lambda origin: (origin.model, str(origin.sample // requests + 1)))
    order = list(dict.fromkeys(one.name[0] for one in spreads))
    return sorted(spreads, key=lambda one: (order.index(one.name[0]), int(one.name[1])))


def _new(found: Iterable[Fate]) -> list[Fate]:
    return [fate for fate in found if fate.reason not in (checks.DUPLICATE, checks.NEAR_DUPLICATE)]


def rows(spreads: Sequence[Spread], columns: Sequence[str], **more: Callable[[Spread], Any]) -> list[dict[str, Any]]:
    """The numbers behind a figure, a row a group."""
    table = []
    for spread in spreads:
        row: dict[str, Any] = {**dict(zip(columns, spread.name, strict=True)), "n": spread.n}
        for outcome in OUTCOMES:
            row[outcome] = spread.numbers[outcome]
            row[f"{outcome}_share"] = round(spread.share(outcome), 6)
        interval = wilson(spread.numbers[VALID], spread.n)
        row |= {"valid_low": round(interval.low, 6), "valid_high": round(interval.high, 6)}
        table.append(row | {name: value(spread) for name, value in more.items()})
    return table
