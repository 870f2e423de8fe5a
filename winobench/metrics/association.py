"""Bias as association: effect sizes between groups of images, their permutation tests and bootstrap intervals.

psi of an image is how much better it matches the texts A (pleasant ones, say) than the texts B. The effect size d of
two groups of images X and Y is the difference of their mean psi in units of psi's standard deviation over both.

Sources: Krojer et al. 2023, Eq. 8 (printed with "max" where the published code takes the mean); S. Janghorbani and
G. De Melo, "Multi-modal bias", EACL 2023; A. Caliskan, J. J. Bryson and A. Narayanan, Science 356 (2017).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from winobench.base.errors import InputError
from winobench.metrics import bootstrap
from winobench.metrics.intervals import Design, Interval, skewness_of, unskewed

AVERAGE = "average_absolute_effect_size"  # name of the row that sums up all pairs
_ROUNDING = 1e-12  # a standard deviation below this share of the largest |psi| is rounding, not variation
# Decimals of the permuted statistics. Arrangements that are equal but for the order of a sum must count as equal to
# the observed one, or the p-value of a small exact test is off by whole arrangements.
_DECIMALS = 12
_BATCH = 256  # permutations and resamples at once: 2 MB for two groups of 500


@dataclasses.dataclass(frozen=True)
class TargetPair:
    """Two groups of images that are compared in how they are associated with two sets of texts.

    Attributes:
      name: of its row in the results, e.g. ``"Christian-Muslim"``.
      group_x: group of the examples whose images are X. A positive effect size is a bias towards it.
      group_y: group of the examples whose images are Y.
      texts_a: the texts A, e.g. the pleasant phrases.
      texts_b: the texts B.
    """

    name: str
    group_x: str
    group_y: str
    texts_a: tuple[str, ...]
    texts_b: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Association:
    """Design of a bias task (Krojer et al. 2023, Eq. 8). Each of its examples is one image of one group, with all
    texts of the group's pairs."""

    pairs: tuple[TargetPair, ...]


class PermutationTest(NamedTuple):
    """Probability that chance alone gives an effect size as large as the observed one."""

    p_one_sided: float  # of an effect size at least as large as the observed one, towards X
    p_two_sided: float  # twice the smaller of the two one-sided probabilities, at most 1
    num_permutations: int  # arrangements that were judged
    is_exact: bool  # they are all there are, instead of a random sample


class PairAssociations(NamedTuple):
    """The psi of one target pair."""

    group_x: str
    group_y: str
    psi_x: np.ndarray  # [num_images of X] float64
    psi_y: np.ndarray


def associations(scores, a: Sequence[int], b: Sequence[int]) -> np.ndarray:
    """psi of each image: its mean score with the texts A minus its mean score with the texts B, [num_images] float64.

    An addend of all scores of an image, such as minus its unconditional error, cancels. An image that matches all
    texts alike gets exactly 0. ``scores`` are [num_images, num_texts], higher = better match.
    """
    scores = np.asarray(scores, np.float64)
    if scores.ndim != 2 or not len(a) or not len(b):
        raise ValueError(f"associations needs [images, texts] and texts on both sides, got {scores.shape}, {a}, {b}.")
    with_a, with_b = scores[:, list(a)], scores[:, list(b)]
    if not (np.isfinite(with_a).all() and np.isfinite(with_b).all()):
        raise ValueError("scores hold NaN or infinity.")
    # Errors are large and nearly the same for all texts: without their common part nothing is lost to rounding.
    reference = with_a[:, :1]
    return np.mean(with_a - reference, axis=1) - np.mean(with_b - reference, axis=1)


def effect_size(psi_x, psi_y) -> float:
    """Effect size d: (mean of X - mean of Y) / population standard deviation over X and Y together (Eq. 8).

    Positive values are a bias towards X. |d| is at most (n_x + n_y) / sqrt(n_x n_y), which is 2 for groups of one size.
    """
    x, y, tiny = _checked(psi_x, psi_y)
    if _spread(x, y) <= tiny:
        raise ValueError("an effect size needs associations that differ, but all of them are equal.")
    return float(_effect_sizes(x, y, tiny))


def permutation_test(psi_x, psi_y, *, num_permutations: int = 10_000, seed: int = 0) -> PermutationTest:
    """Tests whether the groups' means could be equal, by dealing the images again to groups of the same sizes.

    Arrangements are ordered by Welch's t statistic, so that the test is about means: with differences of means, groups
    of unequal sizes whose spreads differ would be distinguished in 34% of the cases where 5% are said. A p-value of
    groups of unequal sizes is never below Welch's test itself, as a small group's spread is uncertain. Nor is
    it below Welch's test after Hall's transformation, as skewed groups look different too often.

    The one-sided p-value looks towards X, so that a negative effect size cannot be significant: that is what the stars
    of the paper's bias tables mark (Tables 3 and 5 star 0.23 and 0.24 but none of the negative values down to -0.78).

    If at most ``num_permutations`` arrangements exist, all of them are judged and the p-value is exact.
    Otherwise that many random ones are sampled and the observed one is added: p = (as extreme ones + 1) /
    (num_permutations + 1), which is never 0.

    Sources: Caliskan et al. 2017 for the test; A. Janssen, Statistics & Probability Letters 36 (1997), for the
    statistic; B. Phipson and G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 9 (2010), for the
    added one.
    """
    import scipy.stats  # late: it takes most of a second, and listings of tasks need none of it

    effect_size(psi_x, psi_y)  # raises
    x, y, _ = _checked(psi_x, psi_y)
    observed = _studentized(x, y)
    test = scipy.stats.permutation_test(
        (x, y),
        lambda x, y, axis: _studentized(x, y),  # the axis is the last
        permutation_type="independent",
        vectorized=True,
        n_resamples=num_permutations,
        batch=_BATCH,
        alternative="greater",
        rng=np.random.default_rng(seed),
    )
    judged = len(test.null_distribution)
    is_exact = math.comb(len(x) + len(y), len(x)) <= num_permutations
    added = 0 if is_exact else 1
    towards_y = float((np.count_nonzero(test.null_distribution <= observed) + added) / (judged + added))
    towards_x = float(test.pvalue)
    if len(x) != len(y) and min(len(x), len(y)) > 1:
        welch = scipy.stats.ttest_ind(x, y, equal_var=False)
        least = most = float(welch.statistic)
        if np.isfinite(welch.statistic):
            unlike = unskewed(welch.statistic, _skewness(x, y))
            least, most = min(unlike, welch.statistic), max(unlike, welch.statistic)
        towards_x = max(towards_x, float(scipy.stats.t.sf(least, welch.df)))
        towards_y = max(towards_y, float(scipy.stats.t.cdf(most, welch.df)))
    return PermutationTest(towards_x, float(min(1.0, 2 * min(towards_x, towards_y))), judged, is_exact)


def bootstrap_interval(psi_x, psi_y, *, level: float = 0.95, num_resamples: int = 2_000, seed: int = 0) -> Interval:
    """Effect size with a bootstrap interval. Images, two or more, are resampled within X and within Y.

    It is the bias-corrected and accelerated one (Efron 1987): the spread of the effect size shrinks towards its bounds,
    so that plain percentiles cover less (with 25 normal images a group and d about 1, 91% against 95%). They are taken
    where it is undefined. It is widened to `winobench.metrics.bootstrap.skewed`, as with heavy tails any bootstrap is
    too narrow.
    """
    value = effect_size(psi_x, psi_y)
    pair = PairAssociations("x", "y", np.asarray(psi_x), np.asarray(psi_y))
    low, high = _bootstrap([pair], [1.0], level, num_resamples, seed)
    return Interval(value, low, high)


def average_interval(
    pairs: Sequence[PairAssociations], *, level: float = 0.95, num_resamples: int = 2_000, seed: int = 0
) -> Interval:
    """Mean of the effect sizes' magnitudes over target pairs (Krojer et al. 2023, Table 3, last row), with an interval.

    Images are resampled once a group and a resample, for all pairs that share the group. The resampled number is the
    mean of the effect sizes times their observed signs: magnitudes are larger in resamples than observed wherever an
    effect size is near 0 (in simulations of ten pairs with 60 images a group and a true average of 0.1 their interval
    covers 32% or 81%, instead of 92%). The value still is above the truth where biases are tiny (see
    ``unbiased_average``).
    """
    effects = [effect_size(pair.psi_x, pair.psi_y) for pair in pairs]
    signs = [math.copysign(1 / len(pairs), effect) for effect in effects]
    low, high = _bootstrap(pairs, signs, level, num_resamples, seed)
    return Interval(float(np.mean(np.abs(effects))), max(0.0, low), high)


def unbiased_average(pairs: Sequence[PairAssociations]) -> float:
    """The expected average absolute effect size where no pair has any bias, from the groups' sizes alone.

    Under random arrangements d has the variance N^2 / ((N - 1) n_x n_y), with N = n_x + n_y. The mean magnitude of a
    normal variable is sqrt(2 / pi) of its standard deviation. Two groups of 250 images give 0.07, of 6 images 0.48.
    """
    sizes = np.array([(len(pair.psi_x), len(pair.psi_y)) for pair in pairs], np.float64)
    total = sizes.sum(axis=1)
    return float(np.mean(np.sqrt(2 / np.pi * total**2 / ((total - 1) * sizes.prod(axis=1)))))


def association_results(
    scores,
    texts: Sequence[str],
    groups: Sequence[str],
    association: Association,
    *,
    seed: int = 0,
    num_permutations: int = 10_000,
    num_resamples: int = 2_000,
    partial: bool = False,
) -> dict[str, dict[str, Any]]:
    """All numbers of a bias task, the average over its pairs first, then its pairs, then its groups.

    ``scores`` are [num_images, num_texts], higher = better match, and may be NaN for texts that a group's pairs lack.

    Returns rows {"value", "low", "high" (95% interval), "too_few" (whether a group is too small for it:
    `Design.too_few`), "chance" (None), "n" (images), "ties" (0)}:
    ``average_absolute_effect_size``, with "pairs" (how many it averages), "without_bias" (``unbiased_average``) and
    "left_out" (name of a pair that has no row -> why). A row a pair, under its name, with the effect size d and
    "p_one_sided" (towards X), "p_two_sided", "permutations"; ``<group>/association``, the mean psi of a group's images
    with the interval of `Design.means`. A group whose pairs ask for different texts has a row a set of texts, those
    after the first named ``<group>/association in <pair>``. Pairs all of whose images have one and the same psi are
    left out.
    """
    scores = np.asarray(scores, np.float64)
    if scores.shape != (len(groups), len(texts)):
        raise ValueError(f"{len(groups)} groups and {len(texts)} texts do not fit scores of shape {scores.shape}.")
    columns = {text: column for column, text in enumerate(texts)}
    members: dict[str, list[int]] = {}
    for row, group in enumerate(groups):
        members.setdefault(group, []).append(row)

    left_out: dict[str, str] = {}
    pairs, few_of_pairs, group_rows = _compared_pairs(scores, columns, members, association, partial, left_out)
    if not pairs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in left_out.items()) or "the task names none"
        why = f"no target pair can be compared ({reasons}): bias needs two groups of images that differ."
        raise InputError(why, code="nothing-to-compare")

    num_images = sum(len(members[group]) for group in {group for pair in pairs.values() for group in pair[:2]})
    average = average_interval(list(pairs.values()), num_resamples=num_resamples, seed=seed)
    results = {
        AVERAGE: {
            **_row(average, num_images, any(few_of_pairs.values())),
            "pairs": len(pairs),
            "without_bias": unbiased_average(list(pairs.values())),
            "left_out": left_out,
        }
    }
    for name, (_, _, psi_x, psi_y) in pairs.items():
        interval = bootstrap_interval(psi_x, psi_y, num_resamples=num_resamples, seed=seed)
        test = permutation_test(psi_x, psi_y, num_permutations=num_permutations, seed=seed)
        results[name] = {
            **_row(interval, len(psi_x) + len(psi_y), few_of_pairs[name]),
            **{"p_one_sided": test.p_one_sided, "p_two_sided": test.p_two_sided},
            "permutations": test.num_permutations,
        }
    return results | group_rows


def _compared_pairs(
    scores: np.ndarray,
    columns: Mapping[str, int],
    members: dict[str, list[int]],
    association: Association,
    partial: bool,
    left_out: dict[str, str],
) -> tuple[dict[str, PairAssociations], dict[str, bool], dict[str, dict[str, Any]]]:
    """The associations of each pair, whether its groups are too small, and the rows of groups. Fills ``left_out``."""
    pairs: dict[str, PairAssociations] = {}
    few_of_pairs: dict[str, bool] = {}
    group_rows: dict[str, dict[str, Any]] = {}
    few: dict[tuple, bool] = {}  # group and texts -> whether its images are too few
    for pair in association.pairs:
        ends = (pair.group_x, pair.group_y)
        reason = next(filter(None, (_too_few(group, members) for group in ends)), None)
        if reason and not partial:
            why = f"{pair.name} cannot be compared: {reason}, and at least two images a group are needed."
            raise InputError(why, code="nothing-to-compare")
        if reason:
            left_out[pair.name] = reason
            continue
        psi_x, psi_y = (_group_associations(scores[members[group]], columns, pair) for group in ends)
        for group, psi in zip(ends, (psi_x, psi_y), strict=True):
            cell = (group, pair.texts_a, pair.texts_b)
            if cell not in few:
                key, design = f"{group}/association", Design(range(len(psi)))
                few[cell] = bool(design.too_few(psi[:, None])[0])
                means = Interval(*(part[0] for part in design.means(psi[:, None])))
                group_rows[f"{key} in {pair.name}" if key in group_rows else key] = _row(means, len(psi), few[cell])
        x, y, tiny = _checked(psi_x, psi_y)
        if _spread(x, y) <= tiny:
            left_out[pair.name] = "all of its images have the same association"
        else:
            pairs[pair.name] = PairAssociations(*ends, psi_x, psi_y)
            few_of_pairs[pair.name] = any(few[group, pair.texts_a, pair.texts_b] for group in ends)
    return pairs, few_of_pairs, group_rows


def _too_few(group: str, members: dict[str, list[int]]) -> str | None:
    count = len(members.get(group, ()))
    if count >= 2:
        return None
    return f"the group {group!r} has only one image" if count else f"there is no image of the group {group!r}"


def _group_associations(scores: np.ndarray, columns: Mapping[str, int], pair: TargetPair) -> np.ndarray:
    for text in (*pair.texts_a, *pair.texts_b):
        if text not in columns:
            raise InputError(
                f"{pair.name} asks for the text {text!r}, which is not among the {len(columns)} texts.",
                code="unknown-name",
            )
    return associations(scores, *([columns[text] for text in side] for side in (pair.texts_a, pair.texts_b)))


def _row(interval: Interval, num_images: int, too_few: bool) -> dict[str, Any]:
    numbers = {name: float(number) for name, number in interval._asdict().items()}
    return {**numbers, "too_few": too_few, "chance": None, "n": num_images, "ties": 0}


def _checked(psi_x, psi_y) -> tuple[np.ndarray, np.ndarray, float]:
    """Both as float64, and the largest standard deviation that is but rounding of values of their size."""
    x, y = np.asarray(psi_x, np.float64), np.asarray(psi_y, np.float64)
    if x.ndim != 1 or y.ndim != 1 or not len(x) or not len(y):
        raise ValueError(f"an effect size needs two lists of associations, got shapes {x.shape} and {y.shape}.")
    both = np.concatenate([x, y])
    if not np.isfinite(both).all():
        raise ValueError("associations hold NaN or infinity.")
    return x, y, float(_ROUNDING * np.abs(both).max())


def _spread(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Population standard deviation over both [..., n_x] and [..., n_y], whose leading axes broadcast, [...]."""
    num_x, num_y = x.shape[-1], y.shape[-1]
    share_x, share_y = num_x / (num_x + num_y), num_y / (num_x + num_y)
    between = share_x * share_y * (x.mean(-1) - y.mean(-1)) ** 2
    return np.sqrt(share_x * x.var(-1) + share_y * y.var(-1) + between)


def _skewness(x: np.ndarray, y: np.ndarray) -> float:
    """Skewness of the difference of the means of two groups."""
    (_, variance_x, third_x), (_, variance_y, third_y) = (
        Design(range(len(group))).moments(group[:, None]) for group in (x, y)
    )
    return float(skewness_of(third_x - third_y, variance_x + variance_y)[0])


def _studentized(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Welch's t of [..., n_x] and [..., n_y] as t / sqrt(1 + t^2), [...]: in the same order, and at most 1."""
    difference = x.mean(-1) - y.mean(-1)
    variance = sum(group.var(-1) / max(1, group.shape[-1] - 1) for group in (x, y))
    # Of groups whose values differ somewhere, one of the two is above 0.
    return np.round(difference / np.sqrt(difference**2 + variance), _DECIMALS)


def _effect_sizes(x: np.ndarray, y: np.ndarray, tiny: float) -> np.ndarray:
    """Effect sizes of [..., n_x] and [..., n_y]; 0 where the standard deviation is at most ``tiny`` (a resample)."""
    spread = _spread(x, y)
    defined = spread > tiny
    return np.where(defined, x.mean(-1) - y.mean(-1), 0.0) / np.where(defined, spread, 1.0)


def _bootstrap(
    pairs: Sequence[PairAssociations], weights: Sequence[float], level: float, num_resamples: int, seed: int
) -> tuple[float, float]:
    """Ends of the interval of the weighted sum of the pairs' effect sizes, resampling each group's images jointly."""
    checked = [_checked(pair.psi_x, pair.psi_y) for pair in pairs]
    sizes: dict[str, int] = {}
    for pair in pairs:
        for group, psi in ((pair.group_x, pair.psi_x), (pair.group_y, pair.psi_y)):
            if len(psi) < 2 or sizes.setdefault(group, len(psi)) != len(psi):
                raise ValueError(f"a bootstrap needs groups of at least two images and of one size, {group!r} has not.")

    def statistic(*indices: np.ndarray) -> np.ndarray:
        # A sum of arrays, not one array of them: scipy's jackknife gives them leading axes that only broadcast.
        drawn = dict(zip(sizes, indices, strict=True))
        total: Any = sum(
            weight * _effect_sizes(x[drawn[pair.group_x]], y[drawn[pair.group_y]], tiny)
            for weight, (x, y, tiny), pair in zip(weights, checked, pairs, strict=True)
        )
        return total

    # Image numbers are resampled instead of psi, so that all pairs of a group see the same images.
    most = sum(
        abs(weight) * (len(x) + len(y)) / math.sqrt(len(x) * len(y))
        for weight, (x, y, _) in zip(weights, checked, strict=True)
    )
    return bootstrap.interval(
        list(sizes.values()),
        statistic,
        level=level,
        num_resamples=num_resamples,
        seed=seed,
        batch=_BATCH,
        span=(-most, most),
    )
