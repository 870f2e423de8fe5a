"""Agreement of two people on valid items."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Labels of the same items by two people."""

    n: int
    agreed: float  # share of items with the same label from both, in [0, 1]
    kappa: float | None  # Cohen's; None where both have given everything the same one label
    table: dict[str, dict[str, int]]  # label of the first -> label of the second -> number of items


def compare(first: Sequence[str], second: Sequence[str], labels: Sequence[str]) -> Agreement:
    """Percent agreement and Cohen's kappa.

    kappa = (p - e) / (1 - e), where p is the share of items with the same label and e the share that is expected of two
    people who give each label as often as these do, but by chance.

    Source: J. Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20
    (1960).
    """
    if len(first) != len(second) or not first:
        raise ValueError(f"both must have labelled the same items, at least one: {len(first)} and {len(second)}.")
    table = {label: {other: 0 for other in labels} for label in labels}
    for label, other in zip(first, second, strict=True):
        table[label][other] += 1
    total = len(first)
    agreed = sum(table[label][label] for label in labels) / total
    rows = {label: sum(table[label].values()) for label in labels}
    columns = {label: sum(row[label] for row in table.values()) for label in labels}
    expected = sum(rows[label] * columns[label] for label in labels)
    kappa = None if expected == total * total else (agreed - expected / total**2) / (1 - expected / total**2)
    return Agreement(total, agreed, kappa, table)
