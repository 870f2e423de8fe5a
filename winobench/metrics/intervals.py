"""Confidence intervals for proportions and their differences, also where examples share an image.

How much wider dependence makes an interval is estimated from all pairs of outcomes that share something, and turned
into an effective number of independent outcomes, for Wilson's interval for a proportion or Tango's for the difference
of two. docs/explanation/intervals.md has their coverage.

Sources: P. M. Aronow, C. Samii and V. A. Assenova, "Cluster-robust variance estimation for dyadic data", Political
Analysis 23 (2015), and A. C. Cameron, J. B. Gelbach and D. L. Miller, "Robust inference with multiway clustering", JBES
29 (2011), for the variance; R. M. Bell and D. F. McCaffrey, Survey Methodology 28 (2002), and A. V. Carter, K. T.
Schnepel and D. G. Steigerwald, Review of Economics and Statistics 99 (2017), for its correction in small samples and
the effective number of clusters; L. Kish, "Survey sampling" (1965), for the design effect; E. L. Korn and B. I.
Graubard, Survey Methodology 24 (1998), for the effective sample size and its degrees of freedom; N. Dean and M. Pagano,
J. Survey Statistics and Methodology 3 (2015), who find Wilson's interval at an effective size among the best.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from winobench.metrics.dependence import Dependence

# Outcomes of the rarer kind (right or wrong) that weigh as much as the prior belief that outcomes are as alike as what
# they share. Any positive value keeps an all-right or all-wrong sample from claiming independence. With one the
# intervals keep their coverage in benchmarks/intervals.py.
_PRIOR_OUTCOMES = 1.0
_PRIOR_COUNT = 0.5  # of each kind and stratum, where a stratum may have all outcomes alike (Jeffreys)
_FEWEST = 2.0  # degrees of freedom. With less, Student's distribution has no variance
# An interval for independent outcomes misses the truth at most so many times as often as its level says, and at most so
# much more often.
_MOST_MISSES, _MORE_MISSES = 1.4, 0.02
_HALVINGS = 55  # of [-1, 1]: to the last bit
# A mean of fewer independent values has an interval of unknown worth: their skewness cannot be seen. A larger skewness
# of a mean is rare for even values. Both limits come from simulations: see docs/explanation/intervals.md.
_FEWEST_VALUES, _MOST_SKEWNESS = 10 - 1e-6, 0.45


class Interval(NamedTuple):
    """A value in [0, 1] and the ends of its two-sided confidence interval."""

    value: float
    low: float
    high: float


class PairedDifference(NamedTuple):
    """Gain of the second of two sets of outcomes over the first, on the same examples."""

    value: float  # of the proportions, in [-1, 1]
    low: float
    high: float
    p_value: float  # two-sided, of no difference. Below 1 - level exactly where the interval excludes 0
    num_apart: int  # at least so many of the examples on which the two differ are independent of each other


class Noise(NamedTuple):
    """Variance of a difference beyond its outcomes, as with samples that serve all questions."""

    variance: float  # of the mean
    freedom: float  # degrees of freedom behind it


def wilson(successes: float, total: float, level: float = 0.95) -> Interval:
    """Wilson's score interval for a proportion of independent outcomes, widened where outcomes of one kind are few.

    Wilson's 95% interval covers a rare proportion 84% of the time in the worst case. So it reaches at least as far as
    the exact interval (Clopper and Pearson's) of the level 93% (88% for 90%, 98.6% for 99%), by less than half of one
    outcome. The width is never zero. ``total`` may be an effective sample size and need not be whole.

    Sources: E. B. Wilson, JASA 22 (1927); L. D. Brown, T. T. Cai and A. DasGupta, Statistical Science 16 (2001).
    """
    numeric = all(isinstance(count, int | float | np.number) for count in (successes, total))
    if not numeric or not 0 < total < math.inf or not 0 <= successes <= total:
        raise ValueError(
            f"wilson needs 0 <= successes <= total and a finite total > 0, got {successes!r} of {total!r}."
        )
    value = successes / total
    share: Any = np.float64(value)
    size: Any = np.float64(total)
    low, high = _proportion_ends(share, size, level)
    return Interval(float(value), float(low), float(high))


def mean_of_means(parts: Sequence[Interval]) -> Interval:
    """The plain mean of independent means, such as the means of groups without a common prompt.

    Its interval recovers their variances from their intervals. It is NaN where one of theirs is.

    Source: G. Y. Zou and A. Donner, Statistics in Medicine 27 (2008), 1693-1702.
    """
    value = math.fsum(part.value for part in parts) / len(parts)
    below, above = (
        math.sqrt(math.fsum((part.value - end) ** 2 for part, end in zip(parts, ends, strict=True))) / len(parts)
        for ends in ([part.low for part in parts], [part.high for part in parts])
    )
    return Interval(value, value - below, value + above)


def clustered(outcomes, clusters, *, strata=None, level: float = 0.95) -> Interval:
    """Interval for a proportion of outcomes [n] 0/1 that depend on each other, such as all questions about one image.

    With one outcome a cluster and no strata the result *is* Wilson's interval. See `Design` for the method,
    ``clusters`` and ``strata``.
    """
    outcomes = np.asarray(outcomes, np.float64)
    if outcomes.ndim != 1 or not len(outcomes):
        raise ValueError("clustered needs at least one outcome, in one dimension.")
    if not np.isin(outcomes, (0, 1)).all():
        raise ValueError("clustered needs outcomes that are each 0 or 1.")
    ends = Design(clusters, strata).proportions(outcomes[:, None], level)
    return Interval(*(float(end[0]) for end in ends))


def paired_difference(
    first, second, clusters, *, strata=None, level: float = 0.95, replicates=None, freedom: float = math.inf
) -> PairedDifference:
    """Interval and test for the difference of two proportions over the same examples, second - first, [n] bool each.

    With one outcome a cluster and no strata the interval is Tango's (Statistics in Medicine 17, 1998) and the test
    McNemar's, without continuity correction. ``replicates`` [n, sets] are second - first under each of many choices of
    the samples of all outcomes: the difference is then the mean over samples, too.
    """
    first, second = np.asarray(first, bool), np.asarray(second, bool)
    if first.ndim != 1 or not len(first) or first.shape != second.shape:
        raise ValueError(f"paired_difference needs two lists of one length, got {first.shape} and {second.shape}.")
    design = Design(clusters, strata)
    noise = None if replicates is None else Noise(design.common_variance(replicates), freedom)
    columns = design.differences(first[:, None], second[:, None], level, noise)
    value, low, high, p_value, num_apart = (part[0] for part in columns)
    return PairedDifference(float(value), float(low), float(high), float(p_value), int(num_apart))


class Design:
    """Dependence between outcomes, and their weights.

    ``clusters`` are [n] hashable labels, of which equal ones share a cluster, or a `Dependence`. With ``strata``, [n]
    labels, the value is the plain mean of the strata's proportions (a macro mean over sub-tasks), and each outcome
    weighs 1 / (number of strata x size of its stratum). A cluster may reach into several strata.

    The variance of a weighted mean is the sum of the products of the weighted residuals of *all pairs that share
    something*. Where sharing is transitive that is the usual cluster-robust variance, elsewhere, as with candidates
    that are sampled from one pool, the dyadic one.

    Small samples, where the plain estimate misleads:

    * It is too small by what estimating the mean took away. It is divided by what that leaves on average where outcomes
    are independent (Bell and McCaffrey), and taken as a design effect: as a multiple of what the same residuals give if
    each depends on itself alone. * It is 0 where all outcomes agree, and unreliable where few disagree. So it is
    averaged with the largest variance that is to be expected (two outcomes are as alike as their images), weighted by
    the number of outcomes of the rarer kind against one. An all-right sample therefore counts its images, not its
    questions, and the width is never zero. (A wrong answer among an image's right ones is evidence that the
    image's answers are not copies, so 699 of 700 may well have the narrower interval.) * It is never below the width of
    independent outcomes: chance agreement does not narrow the interval. With strata that one is the sum over the
    strata's own variances, as a small stratum may be the hard one. * It is itself an estimate. Student's quantile takes
    the place of the normal one, with degrees of freedom from the sizes of the clusters: 2 with one that holds most of
    the outcomes, infinite without any dependence. Strata add Satterthwaite's for their own variances.
    """

    def __init__(self, clusters: Dependence | Iterable[Hashable], strata: Iterable[Hashable] | None = None):
        self.dependence = clusters if isinstance(clusters, Dependence) else Dependence.from_labels(clusters)
        num = len(self.dependence)
        self._strata = np.zeros(num, np.int64) if strata is None else Dependence.from_labels(strata).numbers
        if len(self._strata) != num:
            raise ValueError(f"{num} clusters and {len(self._strata)} strata do not fit each other.")
        self._sizes = np.bincount(self._strata).astype(np.float64)
        self._weights = weights = 1.0 / (len(self._sizes) * self._sizes[self._strata])
        # The variance of independent outcomes is a function of their proportion: there is nothing to estimate.
        self._is_plain = len(self._sizes) == 1 and self.dependence.is_none
        in_strata = np.zeros((num, len(self._sizes)))
        in_strata[np.arange(num), self._strata] = weights
        # A stratum's residuals add up to 0. What that leaves on average of the sum over pairs, if outcomes are in truth
        # independent: of each with itself, and of all that share something.
        total = np.sum(weights**2)
        alone = total - np.sum(in_strata**2 / self._sizes)
        left = total - np.sum(in_strata * self.dependence.sums(in_strata) / self._sizes)
        self._correction = alone / left if left > 1e-9 * total else np.nan
        # What each outcome adds to the sum over pairs, with and without the pair of itself. Kish's effective number of
        # clusters, computed from these, follows Carter, Schnepel and Steigerwald.
        added = weights * self.dependence.sums(weights)
        pairs = added - weights**2
        pairs[pairs < 1e-9 * weights**2] = 0  # of an outcome that depends on no other, but for rounding
        self._num_clusters = np.sum(added) ** 2 / np.sum(added * self.dependence.sums(added))
        noise = np.sum(pairs * self.dependence.sums(pairs))
        self._freedom = np.inf
        if noise > 0:
            self._freedom = max(_FEWEST, np.sum(added) ** 2 / noise - 1)

    def proportions(self, outcomes, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Proportions of outcomes [n, sets] 0/1 and their intervals: value, low and high, each [sets] float64."""
        right = self._checked(outcomes)
        counts, sizes = self._by_stratum(right), self._sizes[:, None]
        value = np.mean(counts / sizes, axis=0)
        shrunk = _shrunk(counts, sizes)
        mean = shrunk.mean(axis=0)
        number, _, _ = self._effective_number(
            mean * (1 - mean),
            shrunk * (1 - shrunk),
            right - (counts / sizes)[self._strata],
            np.minimum(self._effective_count(right), self._effective_count(1 - right)),
            level,
        )
        return value, *_proportion_ends(value, number, level)

    def differences(self, first, second, level: float = 0.95, noise: Noise | None = None) -> tuple[np.ndarray, ...]:
        """The fields of `PairedDifference`, each [sets] float64, of many pairs of sets of outcomes [n, sets]."""
        import scipy.special  # late: listings and help need none of it

        first, second = self._checked(first), self._checked(second)
        better, worse = second * (1 - first), first * (1 - second)
        apart = better + worse
        gained, lost, sizes = self._by_stratum(better), self._by_stratum(worse), self._sizes[:, None]
        gain, loss = np.mean(gained / sizes, axis=0), np.mean(lost / sizes, axis=0)
        of_better, of_worse = _shrunk(gained, sizes), _shrunk(lost, sizes)
        number, student, freedom = self._effective_number(
            _difference_variance(of_better.mean(axis=0), of_worse.mean(axis=0)),
            _difference_variance(of_better, of_worse),
            better - worse - ((gained - lost) / sizes)[self._strata],
            self._effective_count(apart),
            level,
            noise,
        )
        z = _normal_quantile(level)
        low, high = _tango_ends(gain, loss, number, z)
        either = gain + loss
        statistic = np.abs(gain - loss) * np.sqrt(number / np.where(either > 0, either, 1)) * student / z
        p_value = np.minimum(1, 2 * scipy.special.stdtr(freedom, -statistic))
        return gain - loss, low, high, p_value, self.dependence.num_independent(apart)

    def means(self, values, level: float = 0.95) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means of columns of numbers [n, columns], and the ends of their intervals; NaN where there is one cluster.

        The intervals are Student's, and reach further to the side to which the numbers are skewed (`reaches`).
        """
        import scipy.special  # late: listings and help need none of it

        means, variance, third = self.moments(values)
        student = scipy.special.stdtrit(max(1.0, self._num_clusters - 1), 0.5 + level / 2)
        below, above = reaches(third, variance, student)
        return means, means - below * np.sqrt(variance), means + above * np.sqrt(variance)

    def too_few(self, values) -> np.ndarray:
        """Whether the numbers of each column [n, columns] are too few for the intervals of `means`, [columns] bool.

        They are where fewer than ten are independent, where all are equal, and where few numbers far from the others
        skew their mean.
        """
        _, variance, third = self.moments(values)
        is_skewed = np.abs(skewness_of(third, variance)) > _MOST_SKEWNESS
        return is_skewed | ~(variance > 0) | (self._num_clusters < _FEWEST_VALUES)

    def moments(self, values) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Means of columns of numbers [n, columns], and the variances and third central moments of these means."""
        values = self._checked(values)
        if len(self._sizes) > 1:
            raise ValueError("means knows no strata.")
        means = values.mean(axis=0)
        parts = self._weights[:, None] * (values - means)
        tied = self.dependence.sums(parts)
        effect = self._correction * np.sum(parts * tied, axis=0)
        variance = np.maximum(np.sum(parts**2, axis=0), effect) * len(values) / max(1, len(values) - 1)
        return means, variance, unbiased_third(self._num_clusters) * np.sum(parts * tied**2, axis=0)

    def common_variance(self, replicates) -> float:
        """The variance of the weighted mean from what outcomes vary together that share nothing but random samples.

        ``replicates`` [n, sets] are the outcomes under each of many choices of samples. How each varies by itself, and
        with those with which it shares something, is in the estimates from one set of outcomes already.
        """
        replicates = self._checked(replicates)
        parts = self._weights[:, None] * (replicates - replicates.mean(axis=1, keepdims=True))
        alone = np.sum(parts * self.dependence.sums(parts))
        return max(0.0, float(np.sum(parts.sum(axis=0) ** 2) - alone) / (replicates.shape[1] - 1))

    def _checked(self, values) -> np.ndarray:
        values = np.asarray(values, np.float64)
        if values.ndim != 2 or len(values) != len(self.dependence) or not len(values):
            raise ValueError(f"outcomes of shape {values.shape} do not fit {len(self.dependence)} clusters.")
        return values

    def _by_stratum(self, values: np.ndarray) -> np.ndarray:
        """[strata, sets] sums of [n, sets]."""
        if len(self._sizes) == 1:
            return values.sum(axis=0, keepdims=True)
        return np.stack([np.bincount(self._strata, column, len(self._sizes)) for column in values.T], axis=1)

    def _effective_count(self, chosen: np.ndarray) -> np.ndarray:
        """Kish's effective number of the chosen outcomes, [sets] of [n, sets] 0/1: their number, if all weigh alike."""
        squares = self._weights**2 @ chosen
        return (self._weights @ chosen) ** 2 / np.where(squares > 0, squares, 1)

    def _effective_number(
        self,
        of_one: np.ndarray,
        of_strata: np.ndarray,
        residuals: np.ndarray,
        telling: np.ndarray,
        level: float,
        noise: Noise | None = None,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Number of independent outcomes with the same variance, less the part for Student's quantile.

        ``of_one`` [sets] and ``of_strata`` [strata, sets] are variances of one outcome, ``residuals`` [n, sets],
        ``telling`` [sets] the outcomes that the estimate of the dependence rests on. Returns the number, Student's
        quantile and its degrees of freedom, each [sets].
        """
        import scipy.special  # late: listings and help need none of it

        parts = self._weights[:, None] * np.sqrt(of_strata)[self._strata]
        variance = least = np.sum(parts**2, axis=0)
        if not self._is_plain:
            variance = most = np.sum(parts * self.dependence.alike(parts), axis=0)
            if np.isfinite(self._correction):
                seen = self._weights[:, None] * residuals
                single = np.sum(seen**2, axis=0)
                effect = self._correction * np.sum(seen * self.dependence.sums(seen), axis=0)
                effect /= np.where(single > 0, single, 1)
                mixed = (telling * effect * least + _PRIOR_OUTCOMES * most) / (telling + _PRIOR_OUTCOMES)
                variance = np.maximum(least, mixed)
        # Where all outcomes agree, or all share something, the variance is the largest expected one, and no estimate.
        is_estimated = np.isfinite(self._correction) & (telling > 0)
        inverse = np.where(is_estimated, 1 / self._freedom, 0.0)
        if len(self._sizes) > 1:
            shares = of_strata / self._sizes[:, None]
            inverse += np.sum(shares**2 / np.maximum(1, self._sizes - 1)[:, None], axis=0) / shares.sum(axis=0) ** 2
        if noise is not None:
            total = variance + noise.variance
            inverse = (variance**2 * inverse + noise.variance**2 / noise.freedom) / total**2
            variance = total
        with np.errstate(divide="ignore"):
            freedom = 1 / inverse
        student = scipy.special.stdtrit(freedom, 0.5 + level / 2)  # the normal quantile for infinitely many
        return of_one / variance * (_normal_quantile(level) / student) ** 2, student, freedom


def false_discovery_rates(p_values: Iterable[float]) -> list[float]:
    """P-values adjusted for their number: of those up to 5%, at most 5% are expected to be false.

    For tests that are independent or depend positively (Y. Benjamini and Y. Hochberg, JRSS B 57, 1995).
    """
    import scipy.stats  # late: it takes most of a second

    p_values = list(p_values)
    return scipy.stats.false_discovery_control(p_values).tolist() if p_values else []


def family_wise(p_values: Iterable[float]) -> list[float]:
    """P-values adjusted for their number: any false one is up to 5% in at most 5% of the cases (Holm 1979)."""
    p_values = np.array(list(p_values), np.float64)
    if not np.all((p_values >= 0) & (p_values <= 1)):
        raise ValueError("a p-value lies between 0 and 1.")
    order = np.argsort(p_values, kind="stable")
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(1, np.maximum.accumulate(p_values[order] * np.arange(len(order), 0, -1)))
    return adjusted.tolist()


def reaches(third, variance, student) -> tuple[np.ndarray, np.ndarray]:
    """Number of standard errors that an interval reaches below and above an estimate.

    Student's quantile is too short to the side to which data are skewed. There Hall's transformation takes its place
    (JRSS B 54, 1992), with `_supposed` skewness. More skewness never makes the reach shorter, and the reach is at most
    three times as long as Student's and a little more: the bare formula turns back beyond.
    """
    most = 2 / (student + np.sqrt(student**2 + 2 / 3))
    skewness = np.clip(_supposed(skewness_of(third, variance)), -most, most)
    near_zero = np.abs(skewness) < 1e-6
    divisor = np.where(near_zero, 1.0, skewness)

    def inverse(quantile):
        return np.where(near_zero, quantile, 3 / divisor * (np.cbrt(1 + skewness * (quantile - skewness / 6)) - 1))

    return np.maximum(student, inverse(student)), np.maximum(student, -inverse(-student))


def unskewed(statistic: float, skewness: float) -> float:
    """Student's statistic of an estimate of that skewness after Hall's transformation, the inverse of `reaches`."""
    most = 3 / max(abs(statistic), 1e-9)
    skewness = float(np.clip(_supposed(skewness), -most, most))
    return statistic + skewness * statistic**2 / 3 + skewness**2 * statistic**3 / 27 + skewness / 6


def skewness_of(third, variance) -> np.ndarray:
    """Skewness from the third central moment and the variance; 0 where nothing varies."""
    variance = np.asarray(variance, np.float64)
    return np.divide(third, variance**1.5, out=np.zeros_like(variance), where=variance > 0)


def _supposed(skewness):
    """The skewness of an estimate behind the one that is measured, which is too low where it is large.

    Measured ones are at most about 1, as far values of skewed data are missing in most small samples.
    """
    return skewness * (1 + np.abs(skewness))


def unbiased_third(number: float) -> float:
    """The factor of the third central moment of so many values; 0 where they are too few."""
    return number**2 / ((number - 1) * (number - 2)) if number > 2 else 0.0


def _shrunk(counts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    return (counts + _PRIOR_COUNT) / (sizes + 2 * _PRIOR_COUNT)


def _difference_variance(better: np.ndarray, worse: np.ndarray) -> np.ndarray:
    return better + worse - (better - worse) ** 2


def _proportion_ends(value: np.ndarray, total: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Ends of Wilson's interval, or of the exact one of a lower level where these are further out."""
    import scipy.special  # late: listings and help need none of it

    z = _normal_quantile(level)
    centre = (value + z * z / (2 * total)) / (1 + z * z / total)
    half = z / (1 + z * z / total) * np.sqrt(value * (1 - value) / total + z * z / (4 * total * total))
    tail = min(_MOST_MISSES * (1 - level), 1 - level + _MORE_MISSES) / 2
    right, wrong = value * total, (1 - value) * total
    # Quantiles of beta distributions, whose parameters need not be whole, and are above 0 where the end is not exact.
    lowest = scipy.special.betaincinv(np.where(value > 0, right, 1), wrong + 1, tail)
    highest = scipy.special.betainccinv(right + 1, np.where(value < 1, wrong, 1), tail)
    low = np.where(value == 0, 0.0, np.maximum(0.0, np.minimum(centre - half, lowest)))
    high = np.where(value == 1, 1.0, np.minimum(1.0, np.maximum(centre + half, highest)))
    return low, high


def _tango_ends(gain: np.ndarray, loss: np.ndarray, total: np.ndarray, z: float) -> tuple[np.ndarray, np.ndarray]:
    """Tango's interval for ``gain - loss``, the shares of examples that the second only and the first only has right.

    The score statistic falls with the tested difference. Its two quantiles are found by halving.
    """
    difference = gain - loss

    def statistic(tested: np.ndarray) -> np.ndarray:
        # The likeliest share of losses under the tested difference.
        linear = (2 - gain + loss) * tested - gain - loss
        constant = -loss * tested * (1 - tested)
        lost = (np.sqrt(np.maximum(0, linear**2 - 8 * constant)) - linear) / 4
        variance = np.maximum(2 * lost + tested * (1 - tested), 1e-30)
        return (difference - tested) * np.sqrt(total / variance)

    ends = []
    for quantile, low, high in ((z, -np.ones_like(gain), difference), (-z, difference, np.ones_like(gain))):
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            above = statistic(middle) > quantile
            low, high = np.where(above, middle, low), np.where(above, high, middle)
        ends.append((low + high) / 2)
    return ends[0], ends[1]


def _normal_quantile(level: float) -> float:
    if not 0 < level < 1:
        raise ValueError(f"a confidence level lies between 0 and 1, got {level}.")
    return statistics.NormalDist().inv_cdf(0.5 + level / 2)
