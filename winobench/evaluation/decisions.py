"""Decides questions of a race: rankings of candidates, and pairs that have to win together."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from winobench.metrics import sequential

# Numbers of samples after which a candidate's rivals are chosen for the later samples, and the shares of the
# level: 1 / 2, 1 / 4, ... With two candidates there is nothing to choose.
_FIRST_CHOICE, _NEXT_CHOICE = 4, 4


class _Question:
    """A question whose scores are sums of errors: rows [..., terms] of them with signs [terms]."""

    def __init__(
        self, rows: np.ndarray, signs: np.ndarray, weights: np.ndarray | None = None, order: np.ndarray | None = None
    ):
        self.terms = rows, signs
        self._weights, self._order = weights, order
        self.num_samples = np.zeros(rows.shape[:-1], np.int64)  # that each score was judged on

    def _scores(self, errors: np.ndarray, n: int) -> np.ndarray:
        """float64 [..., n], the scores of the first samples, NaN where one is not known."""
        rows, signs = self.terms
        first = np.arange(n) if self._order is None else self._order[:n]
        known = errors[np.moveaxis(rows, -1, 0)[..., None], first].astype(np.float64)
        scores = np.tensordot(signs, known, axes=1)
        return scores if self._weights is None else scores * self._weights[first]


class Ranking(_Question):
    """A question whose candidates are ranked: texts for an image, or images for a text.

    ``rows`` are int [candidates, terms], rows of the errors that a candidate's score is made of, with ``signs``
    [terms]. ``tops`` are the sets of best candidates that are requested. ``weights`` [samples] and ``order`` (int, in
    which samples are met) are uniform and as numbered when None.
    """

    def __init__(self, rows: np.ndarray, signs: np.ndarray, tops: Sequence[int] = (1,), **samples: np.ndarray | None):
        super().__init__(rows, signs, **samples)
        # A single candidate decides nothing, but has a score.
        self._tops = [_TopK(len(rows), k) for k in sorted(tops) if k < len(rows)] or [_TopK(len(rows), len(rows))]

    @property
    def decided(self) -> bool:
        return not self._running().any()

    def _running(self) -> np.ndarray:
        """[candidates] bool: those that another look needs. All of them before the first."""
        if not self.num_samples.any():
            return np.ones(len(self.terms[0]), bool)
        return np.any([top.is_open for top in self._tops], axis=0)

    def needed(self) -> np.ndarray:
        """Rows of the errors that the next look needs. None once all is decided."""
        return self.terms[0][self._running()].ravel()

    def interim_look(
        self, errors: np.ndarray, n: int, budget: int, level: float, share: float = sequential.SHARE
    ) -> None:
        """Decides by the first n samples of errors [rows, samples], floats that exist for the needed rows."""
        running = self._running()
        self.num_samples[running] = n
        scores = self._scores(errors, n)
        for top in self._tops:
            if top.is_open.any():
                top.interim_look(scores, budget, level / len(self._tops), share)

    def scores(self, errors: np.ndarray) -> np.ndarray:
        """[candidates] float64, higher = better: the winner's, and how far the others are behind on common samples.

        Where few samples would order two candidates otherwise than was decided, the decision stands.
        """
        most = int(self.num_samples.max())
        samples = self._scores(errors, most)
        is_winner = self._tops[0].is_in if self._tops[0].is_in.any() else self.num_samples == most
        winner = int(np.argmax(is_winner))
        common = np.minimum(self.num_samples, self.num_samples[winner])
        behind = np.array([(samples[winner, :n] - row[:n]).mean() for row, n in zip(samples, common, strict=True)])
        scores = samples[winner, : self.num_samples[winner]].mean() - behind
        for top in self._tops:
            rest = ~top.is_in
            if top.is_in.any() and rest.any():
                scores[rest] = np.minimum(scores[rest], np.nextafter(scores[top.is_in].min(), -np.inf))
        return scores


class _TopK:
    """Decides which of some candidates are the k best.

    A candidate leaves when it is sure that k others are better, and enters when it is sure that it is better than all
    but k - 1 others. Rivals are chosen after a few samples, and only later ones are evidence: a choice by the same
    samples would need a share of the level for each possible rival. There are k mistakes of one kind, and as many of
    the other as there are other candidates.
    """

    def __init__(self, num_candidates: int, k: int):
        self.is_open = np.full(num_candidates, k < num_candidates)
        self.is_in = ~self.is_open
        self._k = k
        # With one place, the last candidate enters when all others have left.
        kinds = int(k > 0) + int(1 < k < num_candidates - 1)
        others = num_candidates - k
        self._leaving = 0.0 if others == 1 < k else 1 / (kinds * k)
        self._entering = 0.0 if k == 1 else 1 / (kinds * max(others, 1))
        # Samples used for choosing -> the share of the level, and open candidates from best to worst after them.
        self._choices: dict[int, tuple[float, np.ndarray, int]] = {}

    def interim_look(self, scores: np.ndarray, budget: int, level: float, share: float) -> None:
        """Settles candidates whose fate the scores, [candidates, n], make sure."""
        n = scores.shape[1]
        if n >= budget:
            enter, leave = self._by_means(scores)
        else:
            self._choose(scores, budget)
            leave = self._sure(scores, budget, level, share, leaving=True)
            enter = self._sure(scores, budget, level, share, leaving=False)
        # No more than there are places, and rivals for them, even after a mistake.
        enter = enter[: self._k - int(self.is_in.sum())]
        self.is_in[enter] = True
        self.is_open[enter] = False
        leave = leave[: max(0, int(self.is_open.sum()) - (self._k - int(self.is_in.sum())))]
        self.is_open[leave] = False
        # All places are taken, or all open candidates get one.
        num_free = self._k - int(self.is_in.sum())
        if num_free in (0, int(self.is_open.sum())):
            self.is_in |= self.is_open & (num_free > 0)
            self.is_open[:] = False

    def _by_means(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Candidates accepted and rejected by their full-budget means. Ties stay open."""
        candidates = np.flatnonzero(self.is_open)
        num_free = self._k - int(self.is_in.sum())
        order = candidates[np.argsort(-scores[candidates].mean(axis=1), kind="stable")]
        above, below = order[:num_free], order[num_free:]
        better = (scores[above][:, None] - scores[below][None]).mean(axis=-1) > 0
        return above[better.all(axis=1)], below[better.all(axis=0)]

    def _choose(self, scores: np.ndarray, budget: int) -> None:
        """Orders the open candidates by the first samples, as often as there are new numbers of them."""
        candidates = np.flatnonzero(self.is_open)
        num_free = self._k - int(self.is_in.sum())
        if len(self.is_open) == 2:
            self._choices.setdefault(0, (1.0, candidates, num_free))
            return
        number, part = _FIRST_CHOICE, 0.5
        while number < min(scores.shape[1], budget / 2):
            if number not in self._choices:
                means = scores[candidates, :number].mean(axis=1)
                self._choices[number] = (part, candidates[np.argsort(-means, kind="stable")], num_free)
            number, part = number * _NEXT_CHOICE, part / 2

    def _sure(self, scores: np.ndarray, budget: int, level: float, share: float, *, leaving: bool) -> np.ndarray:
        """Candidates that surely leave, or surely enter."""
        of_level = self._leaving if leaving else self._entering
        certain: set[int] = set()
        if not of_level:
            return np.zeros(0, np.int64)
        # Settled rivals need no comparison. A comparison with a rival that went the other way cannot be won.
        settled = self.is_in if leaving else ~self.is_in & ~self.is_open
        means = scores.mean(axis=1) * (1 if leaving else -1)
        for start, (part, order, num_free) in self._choices.items():
            number = num_free if leaving else len(order) - num_free

            def are_sure(
                candidates: Sequence[int], rivals: Sequence[int], start: int = start, part: float = part
            ) -> np.ndarray:
                """[n] bool: whether each rival is better than its leaving candidate, or worse than its entering one."""
                sign = 1 if leaving else -1
                differences = sign * (scores[list(rivals)] - scores[list(candidates)])
                return sequential.will_stay_positive(differences, budget, level * of_level * part, share, start)

            rivals_of = {}
            for candidate in order[self.is_open[order]].tolist():
                rivals = [rival for rival in (order if leaving else order[::-1]).tolist() if rival != candidate][
                    :number
                ]
                rivals = [rival for rival in rivals if not settled[rival]]
                if candidate not in certain and rivals and all(self.is_open[rival] for rival in rivals):
                    rivals_of[candidate] = sorted(rivals, key=lambda rival: means[rival])
            # The closest rival of each first: most candidates need no other comparison.
            close = are_sure(list(rivals_of), [rivals[0] for rivals in rivals_of.values()])
            rivals_of = dict(itertools.compress(rivals_of.items(), close))
            pairs = [(candidate, rival) for candidate, rivals in rivals_of.items() for rival in rivals[1:]]
            rest = are_sure([candidate for candidate, _ in pairs], [rival for _, rival in pairs])
            certain |= set(rivals_of) - {candidate for candidate, _ in itertools.compress(pairs, np.logical_not(rest))}
        return np.array(sorted(certain), np.int64)


class PairwiseQuestion(_Question):
    """A question of n images and n texts that belong together in order (Winoground: two and two).

    Its pairs continue together until the text score and the image score are both decided: all of a score's comparisons
    are won, or one is lost. ``rows`` are int [n, n, terms]. Other arguments: see `Ranking`.
    """

    decided = False
    _won = _lost = np.zeros(2, bool)

    def needed(self) -> np.ndarray:
        return np.zeros(0, np.int64) if self.decided else self.terms[0].ravel()

    def interim_look(
        self, errors: np.ndarray, n: int, budget: int, level: float, share: float = sequential.SHARE
    ) -> None:
        scores = self._scores(errors, n)
        size = len(scores)
        row, column = np.nonzero(~np.eye(size, dtype=bool))
        own = scores[row, row]
        margins = np.stack([own - scores[row, column], own - scores[column, row]])  # [text or image, comparisons, n]
        # Half of the level for each score. A score is won by mistake only if a lost comparison is, and lost by mistake
        # if any comparison is.
        won = sequential.will_stay_positive(margins, budget, level / 2, share).all(axis=1)
        lost = sequential.will_stay_positive(-margins, budget, level / 2 / len(row), share).any(axis=1)
        means = margins.mean(axis=-1)
        self.num_samples[:] = n
        # Means must confirm decisions of earlier looks: scores are means.
        self._won, self._lost = self._won | won, self._lost | lost
        by_means = (means > 0).all(axis=1)
        settled = (self._won & by_means) | (self._lost & (means < 0).any(axis=1))
        self.decided = bool(settled.all())

    def scores(self, errors: np.ndarray) -> np.ndarray:
        """[n, n] float64, means over the samples that the pairs were judged on."""
        return self._scores(errors, int(self.num_samples.max())).mean(axis=-1)
