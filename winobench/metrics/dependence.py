"""Dependence between outcomes that share something, such as an image."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

# Pairs of distinct sets that share something, held at once: some 64 MB.
_PAIRS_AT_ONCE = 4_000_000


class Dependence:
    """Units that n outcomes share (an image, a pair of questions, an item that several people judge).

    Sharing need not be transitive: of three questions the first and the second may share one image, the second and the
    third another one. Outcomes that have the same units are kept together, so that many of them cost as little as few.
    """

    def __init__(self, numbers: np.ndarray, sets: Any | None):
        """Use `from_labels` or `from_sets`.

        ``numbers`` [n] int64 are the set of units of each outcome. ``sets`` is None where each set is one unit of its
        own, or a SciPy CSR matrix [num_sets, num_units] of ones.
        """
        self.numbers = numbers
        self._sets: Any = sets  # a sparse matrix, or None

    @classmethod
    def from_labels(cls, labels: Iterable[Hashable]) -> Dependence:
        """Outcomes with equal labels depend on each other: clusters."""
        return cls(_numbered(labels), None)

    @classmethod
    def from_sets(cls, sets: Sequence[Collection[Hashable]]) -> Dependence:
        """Outcomes depend on each other whose sets have a unit in common."""
        units: dict[Hashable, int] = {}
        keys = [frozenset(units.setdefault(unit, len(units)) for unit in units_of_outcome) for units_of_outcome in sets]
        if not all(keys):
            raise ValueError("an outcome depends on nothing: every set needs at least one unit.")
        numbers = _numbered(keys)
        distinct = list(dict.fromkeys(keys))
        if sum(map(len, distinct)) == len(units):  # no unit is in two sets: they are clusters
            return cls(numbers, None)
        import scipy.sparse  # late: it takes a while, and most tasks need none of it

        ends = np.cumsum([0, *(len(key) for key in distinct)])
        members = np.fromiter((unit for key in distinct for unit in sorted(key)), np.int64, ends[-1])
        shape = (len(distinct), len(units))
        return cls(numbers, scipy.sparse.csr_matrix((np.ones(len(members)), members, ends), shape))

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: np.ndarray) -> Dependence:
        """The dependence of some of the outcomes. An outcome that is taken twice depends on its copy."""
        kept, numbers = np.unique(self.numbers[rows], return_inverse=True)
        return Dependence(numbers, None if self._sets is None else self._sets[kept])

    @property
    def is_none(self) -> bool:
        """Whether no outcome depends on another one."""
        alone = len(np.unique(self.numbers)) == len(self.numbers)
        return alone and (self._sets is None or not np.any(np.asarray(self._sets.sum(axis=0)) > 1))

    def num_independent(self, chosen: np.ndarray) -> np.ndarray:
        """At least so many of the chosen outcomes [n, sets] 0/1 share nothing with each other, whole numbers [sets].

        For clusters it is their number. For a graph it is the sum of 1 / (neighbours + 1), after Caro and Wei.
        """
        return np.floor(np.sum(chosen / np.maximum(1, self.sums(chosen)), axis=0) + 1e-9)

    def sums(self, values: np.ndarray) -> np.ndarray:
        """Sums of values [n, ...] over each outcome and all outcomes with which it shares a unit."""
        return self._apply(values, similarity=False)

    def alike(self, values: np.ndarray) -> np.ndarray:
        """Computes `sums` with each outcome weighted by the share of units in common (Jaccard's index)."""
        return self._apply(values, similarity=True)

    def _apply(self, values: np.ndarray, similarity: bool) -> np.ndarray:
        values = np.asarray(values, np.float64)
        columns = values.reshape(len(values), -1)
        num_sets = int(self.numbers.max(initial=-1)) + 1
        totals = np.empty((num_sets, columns.shape[1]))
        for column in range(columns.shape[1]):
            totals[:, column] = np.bincount(self.numbers, columns[:, column], num_sets)
        if self._sets is not None:
            parts = [(alike if similarity else shared) @ totals for shared, alike in self._neighbours()]
            totals = np.concatenate(parts)
        return totals[self.numbers].reshape(values.shape)

    def _neighbours(self) -> Iterable[tuple[Any, Any]]:
        """Blocks of rows of [num_sets, num_sets] matrices: whether two sets share a unit, and their Jaccard index."""
        return self._kept if self._kept is not None else self._blocks()

    @functools.cached_property
    def _kept(self) -> list[tuple[Any, Any]] | None:
        """All blocks, where they are few."""
        return list(self._blocks()) if self._costs().sum() <= _PAIRS_AT_ONCE else None

    def _costs(self) -> np.ndarray:
        """[num_sets] at most so many sets share a unit with each."""
        return self._sets @ np.asarray(self._sets.sum(axis=0)).ravel()

    def _blocks(self) -> Iterator[tuple[Any, Any]]:
        sizes = np.asarray(self._sets.sum(axis=1)).ravel()
        other = self._sets.T.tocsr()
        blocks = (np.cumsum(self._costs()) // _PAIRS_AT_ONCE).astype(np.int64)
        starts = [*np.unique(blocks, return_index=True)[1], len(sizes)]
        for start, stop in itertools.pairwise(starts):
            shared = (self._sets[start:stop] @ other).tocsr()
            rows = np.repeat(np.arange(start, stop), np.diff(shared.indptr))
            alike = shared.copy()
            alike.data = shared.data / (sizes[rows] + sizes[shared.indices] - shared.data)
            shared.data = np.ones_like(shared.data)
            yield shared, alike


def _numbered(labels: Iterable[Hashable]) -> np.ndarray:
    """Numbers equal labels alike, from 0 on in order of appearance, [n] int64."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(label, len(numbers)) for label in labels], np.int64)
