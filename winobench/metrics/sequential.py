"""Deciding early: which candidate will win over the whole budget of samples, after a part of them.

A race (Maron and Moore, "Hoeffding Races", NIPS 1993) compares candidates on common samples and stops sampling those
whose fate is sure. The test is a bet (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", JRSS B 2024; "Confidence sequences for sampling without replacement", NeurIPS 2020). If the sum of two
candidates' differences is not positive, their negative parts z add up to at least as much as their positive parts y. A
gambler who bets against this at fair odds multiplies the capital by 100 with a probability of at most 1 / 100, however
often one looks (Ville's inequality). docs/explanation/race.md has the theorem, its proof and its assumption.
"""

from __future__ import annotations

import numpy as np

SHARE = 0.04  # the smallest share of the samples that may hold all that speaks for a candidate, by default
_WEIGHTS = (0.75, 0.25)  # of the stake: on rare negative differences alone, and on both signs
_RATIO = 1.08  # between means of the negative parts that are tried
_CHUNK = 2**20  # floats that one step of the computation may hold at once


def looks(budget: int, level: float, share: float = SHARE) -> list[int]:
    """Numbers of samples after which a race looks at its differences."""
    numbers = []
    n = fewest(budget, level, share)
    while n < budget:
        numbers.append(n)
        n += max(4, n // 12)
    return [*numbers, budget]


def fewest(budget: int, level: float, share: float = SHARE) -> int:
    """The samples without which nothing is sure, however positive the differences are.

    Of N samples ``share * N`` might speak against them. The inverse of the capital is the probability of missing these.
    """
    left = budget - np.arange(budget)
    carriers = max(share * budget, 1.0)
    with np.errstate(divide="ignore"):
        missed = np.cumsum(np.log(np.maximum(1 - carriers / left, 0)))
    enough = np.flatnonzero(-missed >= -np.log(level * _WEIGHTS[0]))
    return int(min(enough[0] + 1, budget)) if len(enough) else budget


def will_stay_positive(
    differences: np.ndarray, budget: int, level: float, share: float = SHARE, start: int = 0
) -> np.ndarray:
    """Is it sure that the mean over the whole budget is positive, by differences [..., n] in the order of samples?

    Where it is not positive, the probability that this is ever True, at any numbers of samples, is at most ``level``,
    if the differences come in random order and no sample holds more than 1 / (share * N) of the sum of their negative
    parts.
    """
    differences = np.asarray(differences, np.float64)
    mean = differences.mean(axis=-1)
    if differences.shape[-1] >= budget:
        return mean > 0
    flat = differences.reshape(-1, differences.shape[-1])
    sure = np.zeros(len(flat), bool)
    # Hypotheses by whose refutation alone nothing is sure, but which leave little to do: one mean for each comparison.
    candidates = np.flatnonzero((mean > 0).reshape(-1))
    at_mean = np.maximum(flat[candidates], 0).mean(axis=1)[:, None]
    for rows in _chunks(candidates, flat.shape[1]):
        of = np.searchsorted(candidates, rows)
        sure[rows] = (_capital(flat[rows], budget, share, start, at_mean[of], at_mean[of]) >= 1 / level)[:, 0]
    candidates = np.flatnonzero(sure)
    for rows in _chunks(candidates, flat.shape[1] * 32):
        sure[rows] = capital(flat[rows], budget, share, start) >= 1 / level
    return sure.reshape(mean.shape)


def capital(differences: np.ndarray, budget: int, share: float = SHARE, start: int = 0) -> np.ndarray:
    """The best capital, from 1, of a bet against "the mean over the whole budget is not positive".

    ``differences`` are [comparisons, n] with n < budget. Float64 [comparisons], the least over all values that the mean
    of the negative parts may have.
    """
    differences = np.asarray(differences, np.float64)
    n = differences.shape[1]
    positive = np.maximum(differences, 0)
    mean = positive.mean(axis=1)
    known = np.maximum(-differences, 0).sum(axis=1) / budget  # the mean of all negative parts is no less
    # Below ``edge`` the positive parts alone would exceed their largest sum, unless a few samples hold them.
    edge = mean * n / budget
    for _ in range(4):
        edge = np.minimum(positive, edge[:, None] / share).sum(axis=1) / budget
    edge = np.maximum(known, 0.98 * edge)
    count = int(np.ceil(np.log(2 * budget / n) / np.log(_RATIO))) + 2
    edges = edge[:, None] * _RATIO ** np.arange(count)
    lower = np.concatenate([known[:, None], edges], axis=1)
    upper = np.concatenate([edges, np.full((len(edges), 1), np.inf)], axis=1)
    return _capital(differences, budget, share, start, lower, upper).min(axis=1, initial=np.inf)


def _capital(
    differences: np.ndarray, budget: int, share: float, start: int, lower: np.ndarray, upper: np.ndarray
) -> np.ndarray:
    """A lower bound of the best capital, for every mean of the negative parts between two bounds [comparisons, bounds].

    Infinite where the differences known so far [comparisons, n] rule all of these means out.
    """
    n = differences.shape[1]
    left = (budget - np.arange(n)).astype(np.float64)
    y, z = np.maximum(differences, 0)[:, None], np.maximum(-differences, 0)[:, None]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # In units of the mean of the negative parts. What positive parts bring falls with it, and what the lack of
        # negative ones brings rises: each is taken at the bound where it is least.
        y = np.where(y > 0, np.minimum(y / upper[..., None], 1 / share), 0.0)
        z = np.where(z > 0, z / lower[..., None], 0.0)
        seen = np.cumsum(y, axis=-1)
        rest_y = budget - (seen - y)
        rest_z = np.maximum(budget - (np.cumsum(z, axis=-1) - z), 0.0)
        most = np.minimum(1 / share, rest_z)
        # Of the stake, what a sample brings: at least -1, and nothing on average.
        gain_y = y / (rest_y / left) - 1
        risk = most - rest_z / left
        gain_z = np.where(risk > 1e-12, (rest_z / left - z) / risk, np.where(risk < -1e-9, np.inf, 0.0))
        factors = np.stack([1 + gain_z, 1 + share * gain_y + (1 - share) * gain_z])
        factors = np.maximum(factors, 0.0)
        # A larger mean does not bound the positive parts either.
        factors[1, np.broadcast_to(np.isinf(upper), factors.shape[1:3])] = 0.0
        factors[..., :start] = 1.0
        grown = np.tensordot(np.array(_WEIGHTS), np.cumprod(factors, axis=-1), axes=1)
        best = np.fmax.reduce(grown, axis=-1)
    return np.where(seen[..., -1] > budget * (1 + 1e-9), np.inf, best)


def _chunks(rows: np.ndarray, size: int) -> list[np.ndarray]:
    """Rows in parts, for memory."""
    step = max(1, _CHUNK // (2 * size))
    return [rows[first : first + step] for first in range(0, len(rows), step)]
