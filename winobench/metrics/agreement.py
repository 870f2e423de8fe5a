"""Agreement and accuracy of raters: Fleiss' and Cohen's kappa, and a table of raters.

A rater file is a CSV file with the columns ``item``, ``rater`` and ``label``, a line a judgement.
"""

from __future__ import annotations

import csv
import io
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winobench.base import csv_cells, files
from winobench.base.errors import InputError
from winobench.metrics import bootstrap
from winobench.metrics.intervals import Interval, clustered, wilson

COLUMNS = ("item", "rater", "label")
AVERAGE, TOTAL = "average", "total"  # the last row and the last column of `rater_accuracy`
NUM_RESAMPLES = 2_000  # of a bootstrap by default
_AT_ONCE = 2**20  # counts of resamples that are held: 8 MB


class Rating(NamedTuple):
    """One judgement: who gave which item which label."""

    item: str
    rater: str
    label: str


class Kappa(NamedTuple):
    """Fleiss' or Cohen's kappa of some judgements."""

    value: float | None  # below 0 is less than chance; None where all judgements are the same
    low: float | None  # 95% bootstrap interval over items; None without a value, or for a single item
    high: float | None
    observed: float  # mean share of pairs of raters that agree on an item
    expected: float  # the same share if labels were given by chance, as often as they occur
    n: int  # items
    num_raters: int  # of each item


def fleiss_kappa(counts, *, level: float = 0.95, num_resamples: int = NUM_RESAMPLES, seed: int = 0) -> Kappa:
    """Agreement beyond chance of a fixed number of raters an item, who need not be the same people.

    kappa = (observed - expected) / (1 - expected), with expected = the sum of the squared shares of the labels. The
    interval is `winobench.metrics.bootstrap.interval` over items. Resamples without a value count as chance. ``counts``
    [num_items, num_labels] are how many raters gave an item a label.

    Source: J. L. Fleiss, "Measuring nominal scale agreement among many raters", Psychological Bulletin 76 (1971).
    """
    counts = np.asarray(counts)
    if counts.ndim != 2 or not counts.size:
        raise ValueError(f"fleiss_kappa needs counts [num_items, num_labels], got shape {counts.shape}.")
    if (counts < 0).any() or (counts != np.floor(counts)).any():
        raise ValueError("fleiss_kappa needs whole numbers from 0 on.")
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}.")
    counts = counts.astype(np.int64)
    raters = counts.sum(axis=1)
    if raters.min() != raters.max() or raters[0] < 2:
        raise ValueError(
            "fleiss_kappa needs the same number of raters for every item, at least two, got"
            f" {raters.min()} to {raters.max()}."
        )
    observed, expected, value = _kappas(counts[None], int(raters[0]))
    low = high = None
    if np.isfinite(value[0]) and len(counts) > 1:

        def statistic(drawn: np.ndarray) -> np.ndarray:
            # All judgements of a resample may be the same, which shows nothing.
            return np.nan_to_num(_kappas(counts[drawn], int(raters[0]))[2])

        options: dict[str, Any] = {"level": level, "num_resamples": num_resamples, "seed": seed, "span": (-1.0, 1.0)}
        low, high = bootstrap.interval([len(counts)], statistic, batch=max(1, _AT_ONCE // counts.size), **options)
        low, high = min(low, float(value[0])), max(high, float(value[0]))
    kappa = float(value[0]) if np.isfinite(value[0]) else None
    return Kappa(kappa, low, high, float(observed[0]), float(expected[0]), len(counts), int(raters[0]))


def cohen_kappa(
    first, second, clusters=None, *, level: float = 0.95, num_resamples: int = NUM_RESAMPLES, seed: int = 0
) -> Kappa:
    """Agreement beyond chance of two raters, each with the labels that they use.

    kappa = (observed - expected) / (1 - expected), with expected = the sum over labels of the product of both raters'
    shares. The interval is `winobench.metrics.bootstrap.interval` over clusters. Resamples without a value count as
    chance. ``first`` and ``second`` are the labels [n] of the same items, ``clusters`` [n] which items depend on each
    other, such as images of one prompt; None for none.

    Source: J. Cohen, "A coefficient of agreement for nominal scales", Educational and Psychological Measurement 20
    (1960).
    """
    first, second = np.asarray(first), np.asarray(second)
    if first.ndim != 1 or not len(first) or first.shape != second.shape:
        raise ValueError(f"cohen_kappa needs two lists of one length, got {first.shape} and {second.shape}.")
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}.")
    labels, label_numbers = np.unique(np.concatenate([first, second]), return_inverse=True)
    members = np.arange(len(first)) if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1]
    if members.shape != first.shape:
        raise ValueError(f"cohen_kappa needs a cluster for each of {len(first)} items, got {members.shape}.")
    counts = np.zeros((members.max() + 1, len(labels), len(labels)), np.int64)
    np.add.at(counts, (members, label_numbers[: len(first)], label_numbers[len(first) :]), 1)
    observed, expected, value = _cohen(counts.sum(axis=0))
    low = high = None
    if np.isfinite(value) and len(counts) > 1:

        def statistic(drawn: np.ndarray) -> np.ndarray:
            return np.nan_to_num(_cohen(counts[drawn].sum(axis=-3))[2])

        options: dict[str, Any] = {"level": level, "num_resamples": num_resamples, "seed": seed, "span": (-1.0, 1.0)}
        low, high = bootstrap.interval([len(counts)], statistic, batch=max(1, _AT_ONCE // counts.size), **options)
        low, high = min(low, float(value)), max(high, float(value))
    kappa = float(value) if np.isfinite(value) else None
    return Kappa(kappa, low, high, float(observed), float(expected), len(first), 2)


def read_ratings(*paths: str | os.PathLike) -> list[Rating]:
    """The judgements in some rater files, in their order."""
    ratings: list[Rating] = []
    seen: dict[Any, Any] = {}
    for path in map(pathlib.Path, paths):
        try:
            text = files.content(path).decode("utf-8-sig")
            table = csv.DictReader(io.StringIO(text, newline=""), strict=True)
            rows, columns = list(table), table.fieldnames or ()
        except FileNotFoundError:
            raise InputError(
                f"the file {path} is missing: name a CSV file with the columns item, rater, label", code="no-such-file"
            ) from None
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise InputError(
                f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): name a CSV file, UTF-8, of item,"
                " rater, label",
                code="cannot-read" if isinstance(error, OSError) else "damaged-table",
            ) from None
        lacking = [column for column in COLUMNS if column not in columns]
        if lacking:
            raise InputError(
                f"{path} lacks the column {lacking[0]!r}: rater files have the columns item, rater, label",
                code="missing-column",
            )
        for number, row in enumerate(rows, start=1):
            rating = Rating(*(csv_cells.unescape_formula((row[column] or "").strip()) for column in COLUMNS))
            where = f"row {number} of {path}"
            if not all(rating):
                empty = COLUMNS[rating.index("")]
                raise InputError(f"{where} has no {empty}: fill it in or remove the row", code="empty-cell")
            if rating[:2] in seen:
                raise InputError(
                    f"{where} is a second judgement of item {rating.item!r} by {rating.rater!r}, after"
                    f" {seen[rating[:2]]}: remove one of them",
                    code="repeated-judgement",
                )
            seen[rating[:2]] = where
            ratings.append(rating)
    return ratings


def count_matrix(ratings: Iterable[Rating], labels: Sequence[str] | None = None) -> tuple[np.ndarray, list[str]]:
    """Counts of each item's labels: int64 [num_items, num_labels], and the items in order of appearance."""
    ratings = list(ratings)
    if not ratings:
        raise InputError("no judgements to compare: give a rater file with at least one row", code="empty-file")
    labels = sorted({rating.label for rating in ratings}) if labels is None else list(labels)
    items = list(dict.fromkeys(rating.item for rating in ratings))
    rows = {item: row for row, item in enumerate(items)}
    counts = np.zeros((len(items), len(labels)), np.int64)
    for rating in ratings:
        if rating.label not in labels:
            raise InputError(
                f"{rating.rater!r} gave item {rating.item!r} the label {rating.label!r}: the labels are"
                f" {', '.join(labels)}",
                code="unknown-label",
            )
        counts[rows[rating.item], labels.index(rating.label)] += 1
    raters = counts.sum(axis=1)
    if raters.min() != raters.max():
        few = items[int(raters.argmin())]
        raise InputError(
            f"item {few!r} has {raters.min()} judgements and others have {raters.max()}: kappa needs the same number"
            " for every item",
            code="unequal-judgements",
        )
    return counts, items


def ratings_kappa(
    ratings: Iterable[Rating],
    labels: Sequence[str] | None = None,
    *,
    num_resamples: int = NUM_RESAMPLES,
    seed: int = 0,
) -> Kappa:
    """`fleiss_kappa` of judgements. Raises as `count_matrix`, and where each item has one judgement."""
    counts, items = count_matrix(ratings, labels)
    if counts[0].sum() < 2:
        raise InputError(
            f"item {items[0]!r} has one judgement, as all have: agreement needs two raters or more", code="one-rater"
        )
    return fleiss_kappa(counts, num_resamples=num_resamples, seed=seed)


def rater_accuracy(
    ratings: Iterable[Rating], answers: Mapping[str, str], groups: Mapping[str, str]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Accuracy of each rater, by group and in total, and the raters' mean (the layout of WSC+'s Table 6).

    Returns rater, and ``"average"`` at the end -> group, and ``"total"`` at the end -> {"value", "low", "high" (95%
    interval), "chance" (None), "n" (judgements), "ties" (0)}, without groups of which the rater has judged nothing. The
    average weighs raters alike. Its interval takes judgements of the same item as dependent.
    """
    right: dict[str, list[tuple[str, str, bool]]] = {}
    for rating in ratings:
        if rating.item not in answers or rating.item not in groups:
            raise InputError(
                f"{rating.rater!r} has judged the item {rating.item!r}, which is not among the questions: remove it or"
                " use the questions' ids",
                code="unknown-item",
            )
        group = groups[rating.item]
        right.setdefault(rating.rater, []).append((rating.item, group, rating.label == answers[rating.item]))
    columns = [*dict.fromkeys(groups.values()), TOTAL]
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for rater, judged in right.items():
        table[rater] = {}
        for column in columns:
            outcomes = [correct for _, group, correct in judged if column in (group, TOTAL)]
            if outcomes:
                table[rater][column] = _entry(wilson(sum(outcomes), len(outcomes)), len(outcomes))
    average = {}
    every = [(rater, *row) for rater, judged in right.items() for row in judged]
    for column in columns:
        rows = [row for row in every if column in (row[2], TOTAL)]
        if rows:
            raters, items, _, correct = zip(*rows, strict=True)
            average[column] = _entry(clustered(correct, items, strata=raters), len(rows))
    return {**table, AVERAGE: average} if average else table


def _kappas(counts: np.ndarray, num_raters: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observed and expected agreement and kappa (NaN if missing) of samples [..., num_items, num_labels]."""
    pairs = num_raters * (num_raters - 1)
    # Of whole numbers, so that agreement that chance explains is exactly 1, and expected to be 1.
    observed = (np.sum(counts**2, axis=(-2, -1)) / counts.shape[-2] - num_raters) / pairs
    shares = counts.sum(axis=-2)
    total = counts.shape[-2] * num_raters
    expected = np.sum(shares**2, axis=-1) / total**2
    with np.errstate(invalid="ignore"):
        kappa = (observed - expected) / (1 - expected)  # 0 / 0 where all judgements are the same
    return observed, expected, kappa


def _cohen(table: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Computes `_kappas` of two raters: counts [..., labels, labels] of the first one's label and the second one's."""
    total = table.sum(axis=(-2, -1))
    same = np.trace(table, axis1=-2, axis2=-1)
    by_chance = np.sum(table.sum(axis=-1) * table.sum(axis=-2), axis=-1)
    with np.errstate(invalid="ignore"):
        kappa = (same * total - by_chance) / (total**2 - by_chance)
    return same / total, by_chance / total**2, kappa


def _entry(interval: Interval, n: int) -> dict[str, Any]:
    return {**{key: float(value) for key, value in interval._asdict().items()}, "chance": None, "n": n, "ties": 0}
