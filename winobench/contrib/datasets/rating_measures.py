"""Measures of the agreement of scores with people's ratings (`winobench.metrics.ratings`).

Sources: M. G. Kendall, Biometrika 33 (1945), tau-b; A. Stuart, Biometrika 40 (1953), tau-c; D. Deutsch, G. Foster and
M. Freitag, "Ties Matter", EMNLP 2023, pairwise accuracy with tie calibration (sections 5 and 6), which Z. Lin et al.,
"Evaluating Text-to-Visual Generation with Image-to-Text Generation", ECCV 2024, take for images; S. Han et al.,
"EvalMuse-40K", arXiv 2412.18150, and its published code, Spearman's and Pearson's correlation and the accuracy of
elements.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import numpy as np

from winobench.metrics.ratings import Measure, Rated, RatingMetric

_WEIGHTS = 2**22  # of images in resamples that are held: 32 MB
YES_ABOVE = 0.5  # people say yes to an image if more than this share of them does

# Thresholds of ties among which a resample calibrates again, as quantiles of all differences of scores. The value
# itself is the best of all thresholds.
_THRESHOLDS = 32


def _undefined(chance: float | None) -> Measure:
    """A number that these images do not have."""
    return Measure(lambda counts: np.full(len(counts), np.nan), chance)


class _Pairs:
    """Pairs of images, i before j, each once: all, or those within one prompt."""

    def __init__(self, rated: Rated, *, within: bool):
        if within:
            members = [np.flatnonzero(rated.prompts == prompt) for prompt in range(rated.num_prompts)]
        else:
            members = [np.arange(len(rated.scores))]
        size = sum(len(of) * (len(of) - 1) // 2 for of in members)
        self.num_prompts = rated.num_prompts
        # Thousands of images make tens of millions of pairs, so that these are the only arrays of their size.
        self.gap = np.empty(size)
        self.cell = np.empty(size, np.int32 if self.num_prompts < 2**15 else np.int64)  # one prompt * prompts + other
        kinds = np.empty((4, size), bool)
        start = 0
        for first, others in ((of[i], of[i + 1 :]) for of in members for i in range(len(of) - 1)):
            here = slice(start, start + len(others))
            by_score, by_rating = (side[first] - side[others] for side in (rated.scores, rated.ratings))
            agreement = np.sign(by_score) * np.sign(by_rating)
            self.gap[here] = np.abs(by_score)
            self.cell[here] = rated.prompts[first] * self.num_prompts + rated.prompts[others]
            kinds[:, here] = agreement > 0, agreement < 0, by_score == 0, by_rating == 0
            start = here.stop
        self.concordant, self.discordant, self.score_tie, self.rating_tie = kinds

    def __len__(self) -> int:
        return len(self.gap)

    def total(self, weights: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """The sum of [pairs] weights as a function of how often prompts were sampled.

        A pair of two prompts counts as often as both were sampled together. Two images of a prompt that was sampled m
        times meet m * m times.
        """
        size = self.num_prompts
        cells = np.bincount(self.cell, weights, size * size).reshape(size, size)
        return lambda counts: np.einsum("bi,bi->b", counts @ cells, counts)

    def by_prompt(self, weights: np.ndarray) -> np.ndarray:
        """[prompts] float64, the sum of [pairs] weights of pairs within each prompt."""
        return np.bincount(self.prompt, weights, self.num_prompts)

    def thresholds(self, weights: np.ndarray | float) -> tuple[float, np.ndarray]:
        """The best threshold of ties, and [k] ascending ones among which resamples choose, it among them.

        It is the smallest difference of scores such that, where no larger one makes a tie, the sum of the weights of
        right pairs is the greatest (Deutsch et al. 2023, section 6).
        """
        order = np.argsort(self.gap, kind="stable")
        gaps = self.gap[order]
        gains = np.cumsum((weights * self.gains)[order])
        last = np.append(gaps[1:] != gaps[:-1], True)  # of equal differences all become ties, or none
        gaps, gains = gaps[last], gains[last]
        if gaps[0] > 0:
            gaps, gains = np.append(0.0, gaps), np.append(0.0, gains)
        # Sums in another order differ by rounding. Of equally good thresholds the smallest is meant.
        best = int(np.flatnonzero(gains >= gains.max() - 1e-9 * max(1.0, np.abs(gains).max()))[0])
        grid = np.quantile(gaps, np.linspace(0, 1, _THRESHOLDS), method="nearest")
        return float(gaps[best]), np.unique(np.append(grid, gaps[best]))

    @property
    def prompt(self) -> np.ndarray:
        """[pairs] int, the prompt of the first image."""
        return self.cell // self.num_prompts

    @property
    def gains(self) -> np.ndarray:
        """[pairs] by how much a pair is righter as a tie than in the order of its scores: -1, 0 or 1."""
        return self.rating_tie * 1.0 - self.concordant


def kendall_tau_b(pairs: _Pairs) -> Measure:
    signed = pairs.total(pairs.concordant * 1.0 - pairs.discordant)
    untied = [pairs.total(~tie * 1.0) for tie in (pairs.score_tie, pairs.rating_tie)]
    return Measure(lambda counts: _ratio(signed(counts), np.sqrt(untied[0](counts) * untied[1](counts))), 0.0)


def kendall_tau_c(pairs: _Pairs, rated: Rated) -> Measure:
    """Stuart's tau-c over all pairs. The number of classes counts all images."""
    classes = min(len(np.unique(rated.scores)), len(np.unique(rated.ratings)))
    if classes < 2:
        return _undefined(0.0)
    signed, every = pairs.total(pairs.concordant * 1.0 - pairs.discordant), pairs.total(np.ones(len(pairs)))
    # 2 (C - D) / (n^2 (classes - 1) / classes), in which the number of pairs, n (n - 1) / 2, takes the place of n^2.
    scale = 2 * len(pairs) / len(rated.scores) ** 2 * classes / (classes - 1)
    # A resample may have fewer ties than all images, whose scale this is.
    return Measure(lambda counts: np.clip(scale * _ratio(signed(counts), every(counts)), -1, 1), 0.0)


def pearson(rated: Rated) -> Measure:
    x, y = rated.scores - rated.scores.mean(), rated.ratings - rated.ratings.mean()
    if not (np.ptp(rated.scores) and np.ptp(rated.ratings)):
        return _undefined(0.0)
    parts = (np.ones(len(x)), x, y, x * x, y * y, x * y)
    sums = np.stack([np.bincount(rated.prompts, part, rated.num_prompts) for part in parts], axis=1)

    def of(counts: np.ndarray) -> np.ndarray:
        n, sx, sy, sxx, syy, sxy = np.moveaxis(counts @ sums, -1, 0)
        spread = np.maximum(n * sxx - sx * sx, 0) * np.maximum(n * syy - sy * sy, 0)
        return np.clip(_ratio(n * sxy - sx * sy, np.sqrt(spread)), -1, 1)

    return Measure(of, 0.0)


def spearman(rated: Rated) -> Measure:
    """The correlation of ranks, where equal numbers share the mean of their ranks."""
    classes = [np.unique(side, return_inverse=True)[1] for side in (rated.scores, rated.ratings)]
    at_once = max(1, _WEIGHTS // len(rated.scores))

    def of(counts: np.ndarray) -> np.ndarray:
        return np.concatenate([of_few(counts[start : start + at_once]) for start in range(0, len(counts), at_once)])

    def of_few(counts: np.ndarray) -> np.ndarray:
        weights = counts[:, rated.prompts]
        half, ranks = weights.sum(axis=1, keepdims=True) / 2, []
        for of_side in classes:
            sizes = np.stack([np.bincount(of_side, row) for row in weights])
            ranks.append((np.cumsum(sizes, axis=1) - sizes / 2 - half)[:, of_side])  # less the mean of all ranks
        xx, yy, xy = ((weights * ranks[i] * ranks[j]).sum(axis=1) for i, j in ((0, 0), (1, 1), (0, 1)))
        return np.clip(_ratio(xy, np.sqrt(xx * yy)), -1, 1)

    return Measure(of, 0.0)


def logistic_pearson(rated: Rated) -> Measure:
    """Pearson's correlation of ratings with a logistic function of scores, as the quality of images is reported.

    The function has four parameters, of least squares over these very images. Resamples keep it. It may fall, so that
    scores in the opposite order have a positive correlation as well. The correlation of chance is unknown.
    """
    import scipy.optimize  # late: listings and help need none of it

    x, y = rated.scores, rated.ratings
    if len(x) < 4 or not (np.ptp(x) and np.ptp(y)):
        return _undefined(None)
    start = [y.max(), y.min(), x.mean(), x.std()]
    with np.errstate(all="ignore"):
        fit = scipy.optimize.least_squares(lambda at: _logistic(x, *at) - y, start, method="lm", max_nfev=10_000)
        fitted = _logistic(x, *fit.x)
    if not (fit.success and np.isfinite(fitted).all()):
        return _undefined(None)
    return pearson(dataclasses.replace(rated, scores=fitted))._replace(chance=None)


def _logistic(x: np.ndarray, high: float, low: float, middle: float, width: float) -> np.ndarray:
    return low + (high - low) / (1 + np.exp(-(x - middle) / abs(width)))


def element_accuracy(rated: Rated, yes: np.ndarray) -> Measure:
    """Share of images on which people and a score that is a probability agree, both yes from one half on."""
    right = np.bincount(rated.prompts, (rated.scores >= YES_ABOVE) == yes, rated.num_prompts)
    sizes = np.bincount(rated.prompts, minlength=rated.num_prompts) * 1.0
    return Measure(functools.partial(_ratio_of, right, sizes), float(max(yes.mean(), 1 - yes.mean())))


def pairwise_accuracy(pairs: _Pairs) -> Measure:
    """Share of pairs of images in whose order, or tie, scores and ratings agree, with ties calibrated.

    Scores that differ by no more than ``threshold`` are a tie. It is the one by which most pairs are right, of these
    very images, as published. Resamples calibrate again.
    """
    best, grid = pairs.thresholds(1.0)
    size = pairs.num_prompts
    thresholds: np.ndarray = np.searchsorted(grid, pairs.gap)
    cells = np.bincount(thresholds * size**2 + pairs.cell, pairs.gains, len(grid) * size**2)
    cells = cells.reshape(len(grid), size, size)
    np.cumsum(cells, axis=0, out=cells)
    ordered, every = pairs.total(pairs.concordant), pairs.total(np.ones(len(pairs)))

    def of(counts: np.ndarray) -> np.ndarray:
        gained = np.einsum("kbi,bi->kb", counts @ cells, counts)
        return _ratio(ordered(counts) + gained.max(axis=0), every(counts))

    return Measure(of, _calibrated_chance(pairs.rating_tie.mean()), {"threshold": best})


def within_prompts(pairs: _Pairs) -> dict[str, Measure]:
    """The mean over prompts of their tau-b, and of their pairwise accuracy with one threshold for all.

    Prompts whose scores or ratings are all alike have no tau-b and are left out of its mean.
    """
    number = pairs.by_prompt(np.ones(len(pairs)))
    untied = [pairs.by_prompt(~tie * 1.0) for tie in (pairs.score_tie, pairs.rating_tie)]
    signed = pairs.by_prompt(pairs.concordant * 1.0 - pairs.discordant)
    tau = _ratio(signed, np.sqrt(untied[0] * untied[1]))
    has_tau, has_pairs = np.isfinite(tau), number > 0
    tau = np.where(has_tau, tau, 0.0)
    weights = 1 / number[pairs.prompt]
    best, grid = pairs.thresholds(weights)
    thresholds = np.searchsorted(grid, pairs.gap)
    gains = np.bincount(pairs.prompt * len(grid) + thresholds, weights * pairs.gains, pairs.num_prompts * len(grid))
    gains = np.cumsum(gains.reshape(pairs.num_prompts, len(grid)), axis=1)
    ordered = pairs.by_prompt(weights * pairs.concordant)
    tie_share = pairs.by_prompt(weights * pairs.rating_tie)[has_pairs].mean()
    return {
        "within_prompt_pairwise_accuracy": Measure(
            lambda counts: _ratio(counts @ ordered + (counts @ gains).max(axis=1), counts @ (has_pairs * 1.0)),
            _calibrated_chance(tie_share),
            {"threshold": best},
        ),
        "within_prompt_kendall_tau_b": Measure(
            functools.partial(_ratio_of, tau, has_tau * 1.0), 0.0, {"prompts_with_tau": int(has_tau.sum())}
        ),
    }


def preference_accuracy(pairs: _Pairs) -> dict[str, Measure]:
    """Pairwise preference accuracy within a prompt, over all pairs, and the mean over prompts.

    A tie of scores is wrong, and pairs that people rank alike do not count.

    Source: J. Xu et al., "ImageReward", NeurIPS 2023, Table 3, and its published test.py, which counts pairs.
    """
    right, comparable = pairs.by_prompt(pairs.concordant * 1.0), pairs.by_prompt(~pairs.rating_tie * 1.0)
    is_comparable = comparable > 0
    shares = np.where(is_comparable, right / np.maximum(comparable, 1), 0.0)
    sums = {"preference_accuracy": (right, comparable), "mean_preference_accuracy": (shares, is_comparable * 1.0)}
    return {
        name: Measure(functools.partial(_ratio_of, above, below), 0.5, {"pairs": int(comparable.sum())})
        for name, (above, below) in sums.items()
    }


def auroc(rated: Rated, yes: np.ndarray) -> Measure:
    """Share of pairs in which the image with ``yes`` scores higher than the other one. A tie counts half."""
    order = np.argsort(rated.scores, kind="stable")
    order = order[yes[order]]
    scores, prompts, size = rated.scores[order], rated.prompts[order], rated.num_prompts
    cells = np.empty((size, size))  # images with yes of one prompt that score higher than the others of another
    for other in range(size):
        others = rated.scores[(rated.prompts == other) & ~yes]
        ends = np.concatenate([np.searchsorted(scores, others, side) for side in ("left", "right")])
        beaten = np.cumsum(np.bincount(ends, minlength=len(scores) + 1)[:-1]) / 2
        cells[:, other] = np.bincount(prompts, beaten, size)
    of_yes, of_no = (np.bincount(rated.prompts[which], minlength=size) * 1.0 for which in (yes, ~yes))

    def of(counts: np.ndarray) -> np.ndarray:
        return _ratio(np.einsum("bi,bi->b", counts @ cells, counts), (counts @ of_yes) * (counts @ of_no))

    return Measure(of, 0.5, {"yes": int(yes.sum())})


def best_accuracy(rated: Rated) -> Measure:
    """Share of images on which people and the score agree, yes or no, with the best threshold.

    The score says yes from ``threshold`` on, above all scores where it had better never say so. It is of these very
    images, and resamples choose again. Chance is the more frequent answer of people.
    """
    yes = rated.ratings > YES_ABOVE
    levels = np.append(np.unique(rated.scores), np.inf)
    right = (rated.scores[:, None] >= levels) == yes[:, None]
    sums = np.zeros((rated.num_prompts, len(levels)))
    np.add.at(sums, rated.prompts, right)
    sizes = np.bincount(rated.prompts, minlength=rated.num_prompts)
    best = levels[np.argmax(sums.sum(axis=0))]
    threshold = {"threshold": float(best)} if np.isfinite(best) else {}
    return Measure(
        lambda counts: _ratio((counts @ sums).max(axis=1), counts @ sizes),
        float(max(yes.mean(), 1 - yes.mean())),
        threshold,
    )


def average_precision(scores: np.ndarray, yes: np.ndarray) -> float:
    """The mean, over the images with a yes, of the share of yes among the images that score at least as high.

    ``scores`` [n] float64 and ``yes`` [n] bool. Equal scores enter together, so that scores that are all alike give the
    share of yes. NaN without a yes. It is the area under the steps of precision over recall.

    Source: A. Ray et al., "Cola", NeurIPS 2023, scripts/eval.py, and average_precision_score of scikit-learn.
    """
    if not yes.any():
        return math.nan
    order = np.argsort(-scores, kind="stable")
    last = np.append(np.diff(scores[order]) != 0, True)  # of the images with one score
    hits = np.cumsum(yes[order])[last]
    taken = np.flatnonzero(last) + 1
    return float(np.sum(np.diff(hits, prepend=0) * hits / taken) / yes.sum())


def average_precision_chance(num_images: int, num_yes: int) -> float:
    """The expected average precision of images in a random order without ties."""
    if num_images == 1:
        return float(num_yes)
    harmonic = np.sum(1 / np.arange(1, num_images + 1))
    return float((harmonic + (num_yes - 1) / (num_images - 1) * (num_images - harmonic)) / num_images)


def precision_measures(rated: Rated) -> dict[str, Measure]:
    """The mean over prompts of `average_precision` of their images. Prompts without a yes are left out."""
    yes = rated.ratings > YES_ABOVE
    every = enumerate(np.flatnonzero(rated.prompts == prompt) for prompt in range(rated.num_prompts))
    members = [(prompt, of) for prompt, of in every if yes[of].any()]
    if not members:
        return {}
    precisions, counts_in = np.zeros((2, rated.num_prompts))
    for prompt, of in members:
        precisions[prompt], counts_in[prompt] = average_precision(rated.scores[of], yes[of]), 1.0
    chance = np.mean([average_precision_chance(len(of), int(yes[of].sum())) for _, of in members])
    measure = Measure(functools.partial(_ratio_of, precisions, counts_in), float(chance), {"yes": int(yes.sum())})
    return {"mean_average_precision": measure}


def rank_measures(rated: Rated) -> dict[str, Measure]:
    """Over all images: pairwise accuracy, tau-b, tau-c and Pearson's correlation. Then the means within prompts."""
    pairs, within = _Pairs(rated, within=False), _Pairs(rated, within=True)
    measures = {}
    if len(pairs):
        measures = {
            "pairwise_accuracy": pairwise_accuracy(pairs),
            "kendall_tau_b": kendall_tau_b(pairs),
            "kendall_tau_c": kendall_tau_c(pairs, rated),
            "pearson": pearson(rated),
        }
    return measures | (within_prompts(within) if len(within) else {})


def yes_no_measures(rated: Rated) -> dict[str, Measure]:
    """The area under the ROC curve and the accuracy of yes and no, followed by `rank_measures`."""
    yes = rated.ratings > YES_ABOVE
    return {"auroc": auroc(rated, yes), "best_accuracy": best_accuracy(rated), **rank_measures(rated)}


def correlation_measures(rated: Rated) -> dict[str, Measure]:
    """Correlations over all images, which may be tens of thousands, and the means within prompts."""
    within = _Pairs(rated, within=True)
    found = {"spearman": spearman(rated), "pearson": pearson(rated), "logistic_pearson": logistic_pearson(rated)}
    return found | (within_prompts(within) if len(within) else {})


def element_measures(rated: Rated) -> dict[str, Measure]:
    """The area under the ROC curve and the accuracy of probabilities, for elements that people see in an image or not.

    People say yes where half of them or more do. Scores that do not all lie in [0, 1] have no such accuracy.
    """
    yes = rated.ratings >= YES_ABOVE
    are_probabilities = rated.scores.min() >= 0 and rated.scores.max() <= 1
    accuracy = {"element_accuracy": element_accuracy(rated, yes)} if are_probabilities else {}
    return {"auroc": auroc(rated, yes), **accuracy}


def preference_measures(rated: Rated) -> dict[str, Measure]:
    """Accuracy of preferences, and the means within prompts."""
    within = _Pairs(rated, within=True)
    return preference_accuracy(within) | within_prompts(within) if len(within) else {}


RANK_AGREEMENT = RatingMetric("rank_agreement", rank_measures, headline="pairwise_accuracy")
YES_NO_AGREEMENT = RatingMetric("yes_no_agreement", yes_no_measures, headline="auroc")
PREFERENCE_AGREEMENT = RatingMetric("preference_agreement", preference_measures, headline="preference_accuracy")
AVERAGE_PRECISION = RatingMetric("average_precision", precision_measures, headline="mean_average_precision")
CORRELATION_AGREEMENT = RatingMetric("correlation_agreement", correlation_measures, headline="spearman")
ELEMENT_AGREEMENT = RatingMetric("element_agreement", element_measures, headline="auroc")


def _calibrated_chance(tie_share: float) -> float:
    """Chance with calibrated ties: all are ties, or none and half of the rest is right by luck."""
    return float(max(tie_share, (1 - tie_share) / 2))


def _ratio_of(above: np.ndarray, below: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return _ratio(counts @ above, counts @ below)


def _ratio(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """above / below, NaN where that is 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(below > 0, above / below, np.nan)
