import fractions
import itertools
import json
import tracemalloc

import numpy as np
import pytest
import scipy.stats

from tests.expectations import names, raises
from winobench.metrics import association as assoc
from winobench.metrics.association import Association, TargetPair

GOOD, BAD = ("joy", "trust"), ("vulgar", "bad")
MMBIAS_PAIRS = (
    *("Christian-Muslim", "Christian-Jewish", "Jewish-Muslim", "Hindu-Muslim", "American-Arab", "Heterosexual-LGBT"),
    *("Buddhist-Muslim", "Buddhist-Christian", "Buddhist-Hindu", "Buddhist-Jewish"),
)


def pair(name, texts_a=GOOD, texts_b=BAD):
    return TargetPair(name, *name.split("-"), texts_a, texts_b)


def draw(sizes, shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=sizes[0]) + shift, rng.normal(size=sizes[1])


def scores_of(**groups):
    """Scores with joy, trust, vulgar and bad in which the images have the psi given, around levels of their own."""
    rng = np.random.default_rng(3)
    psi = np.concatenate([np.asarray(values, np.float64) for values in groups.values()])
    scores = np.repeat(rng.normal(size=(len(psi), 1)), 4, axis=1)
    scores[:, :2] += psi[:, None] + np.array([0.5, -0.5])
    return scores, [group for group, values in groups.items() for _ in values]


# By hand: four images, two texts a side.
#   image   joy trust vulgar bad   psi
#   x1        5     3      2   4   4 - 3 =  1
#   x2        7     5      2   4   6 - 3 =  3
#   y1        1     3      3   3   2 - 3 = -1
#   y2        0     8      2   4   4 - 3 =  1
# Means 2 and 0; over all four the mean is 1 and the variance (0 + 4 + 4 + 0) / 4 = 2, so d = 2 / sqrt(2) = sqrt(2).
# The six ways to choose X have the sums 1+3=4, 1-1=0, 1+1=2, 3-1=2, 3+1=4, -1+1=0; the observed sum is 4. At least as
# large: 2 of 6; at most as large: 6 of 6. One-sided p = 1/3, two-sided 2/3.
HAND_SCORES = np.array([[5, 3, 2, 4], [7, 5, 2, 4], [1, 3, 3, 3], [0, 8, 2, 4]])


def test_worked_by_hand():
    psi = assoc.associations(HAND_SCORES, (0, 1), (2, 3))
    assert psi.dtype == np.float64
    assert psi.tolist() == [1, 3, -1, 1]
    assert assoc.effect_size(psi[:2], psi[2:]) == pytest.approx(2**0.5, rel=1e-14)
    assert assoc.permutation_test(psi[:2], psi[2:]) == pytest.approx((1 / 3, 2 / 3, 6, True), abs=1e-15)


@pytest.mark.parametrize(("sizes", "shift"), [((6, 6), -0.3), ((40, 25), 2.0)])
def test_effect_size_is_a_correlation_in_other_units(sizes, shift):
    x, y = draw(sizes, shift)
    total, product = sum(sizes), sizes[0] * sizes[1]
    found = assoc.effect_size(x, y)
    membership = np.repeat([1.0, 0.0], sizes)
    correlation = scipy.stats.pointbiserialr(membership, np.concatenate([x, y])).statistic
    assert found == pytest.approx(correlation * total / np.sqrt(product), rel=1e-12)


@pytest.mark.parametrize("sizes", [(5, 5), (7, 3)])
def test_symmetries_and_bound_of_the_effect_size(sizes):
    x, y = draw(sizes, 0.4)
    result = assoc.effect_size(x, y)
    assert assoc.effect_size(y, x) == pytest.approx(-result, rel=1e-14)
    assert assoc.effect_size(1e-7 * x, 1e-7 * y) == pytest.approx(result, rel=1e-12)
    assert assoc.effect_size(-3 * x, -3 * y) == pytest.approx(-result, rel=1e-12)
    assert assoc.effect_size(x + 1e6, y + 1e6) == pytest.approx(result, rel=1e-8)  # 1e6 takes 6 of 16 digits
    # The bound is reached where the groups do not vary, and never passed.
    bound = sum(sizes) / np.sqrt(sizes[0] * sizes[1])
    assert assoc.effect_size(np.ones(sizes[0]), np.zeros(sizes[1])) == pytest.approx(bound, rel=1e-14)
    assert abs(result) < bound
    assert (bound == 2) == (sizes[0] == sizes[1])


def test_what_belongs_to_an_image_or_to_a_text_cancels():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(8, 5))
    a, b = (0, 3), (1, 2, 4)
    psi = assoc.associations(scores, a, b)
    with_image_offsets = assoc.associations(scores + 1e4 * rng.normal(size=(8, 1)), a, b)
    assert with_image_offsets == pytest.approx(psi, abs=1e-10)
    shifted = assoc.associations(scores + rng.normal(size=(1, 5)), a, b)
    assert shifted - psi == pytest.approx(np.full(8, shifted[0] - psi[0]), abs=1e-12)
    assert assoc.effect_size(shifted[:4], shifted[4:]) == pytest.approx(assoc.effect_size(psi[:4], psi[4:]), rel=1e-12)
    assert assoc.associations(scores, b, a) == pytest.approx(-psi, abs=1e-14)


def test_a_scorer_that_ignores_the_text_is_associated_with_nothing():
    # 0.1 * 3 / 3 is not 0.1: without care rounding would be taken for a bias.
    scores = np.repeat([[-0.1], [-16384.3], [-7777.7], [-1 / 3]], 7, axis=1)
    psi = assoc.associations(scores, (0, 1, 2), (3, 4, 5, 6))
    assert psi.tolist() == [0, 0, 0, 0]
    with pytest.raises(ValueError, match="all of them are equal"):
        assoc.effect_size(psi[:2], psi[2:])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: assoc.effect_size([0.1 + 0.2, 0.3], [0.3]), ("equal",)),  # but for rounding
        (lambda: assoc.permutation_test(np.full(3, 3.1), np.full(4, 3.1)), ("equal",)),
        (lambda: assoc.effect_size([], [1.0]), ("(0,)", "(1,)")),
        (lambda: assoc.effect_size([[1.0]], [1.0]), ("(1, 1)", "(1,)")),
        (lambda: assoc.effect_size([1.0, np.nan], [2.0]), ("associations", "NaN")),
        (lambda: assoc.associations(np.zeros((2, 2)), (), (1,)), ("associations", "(2, 2)", "()")),
        (lambda: assoc.associations(np.zeros(2), (0,), (1,)), ("associations", "(2,)")),
        (lambda: assoc.associations([[np.nan, 1.0]], (0,), (1,)), ("scores", "NaN")),
        (lambda: assoc.bootstrap_interval([1.0], [2.0, 3.0]), ("bootstrap", "'x'")),
    ],
)
def test_refuses_what_has_no_effect_size(call, message):
    with pytest.raises(ValueError, match=names(*message)):
        call()


@pytest.mark.parametrize("shift", [-1.0, 0.0, 0.7])
def test_exact_p_values_equal_enumeration_and_scipy(shift):
    x, y = draw((5, 4), shift, seed=7)
    result = assoc.permutation_test(x, y)

    def welch(x, y, axis=0):
        return scipy.stats.ttest_ind(x, y, axis=axis, equal_var=False).statistic

    # Welch's t of all 126 arrangements, and a p-value that is at least Welch's own, with skewness and without.
    union = np.concatenate([x, y])
    sizes = []
    for chosen in itertools.combinations(range(9), 5):
        sizes.append(welch(union[list(chosen)], np.delete(union, chosen)))
    sizes, observed = np.array(sizes), welch(x, y)
    own = scipy.stats.ttest_ind(x, y, equal_var=False)
    # Hall's transformation of Welch's t.
    variance = sum(scipy.stats.kstat(of, 2) / len(of) for of in (x, y))
    skewness = sum(sign * scipy.stats.kstat(of, 3) / len(of) ** 2 for sign, of in ((1, x), (-1, y))) / variance**1.5
    skewness *= 1 + abs(skewness)
    skewness = np.clip(skewness, -3 / abs(observed), 3 / abs(observed))
    unskewed = observed + skewness * observed**2 / 3 + skewness**2 * observed**3 / 27 + skewness / 6
    tails = scipy.stats.t.cdf([observed, unskewed], own.df)
    towards_x = max(np.mean(sizes >= observed - 1e-10), *(1 - tails))
    towards_y = max(np.mean(sizes <= observed + 1e-10), *tails)
    expected = (towards_x, min(1, 2 * min(towards_x, towards_y)))
    assert (result.p_one_sided, result.p_two_sided) == pytest.approx(expected, abs=1e-12)
    assert (result.num_permutations, result.is_exact) == (126, True)
    scipys = scipy.stats.permutation_test((x, y), welch, alternative="greater", n_resamples=1000)
    assert result.p_one_sided == pytest.approx(max(scipys.pvalue, *(1 - tails)), abs=1e-12)


def test_groups_of_one_size_are_tested_as_by_their_effect_sizes():
    x, y = draw((12, 12), 0.5)

    def difference(x, y, axis):
        return x.mean(axis) - y.mean(axis)

    expected = scipy.stats.permutation_test(
        (x, y), difference, n_resamples=500, batch=256, alternative="greater", rng=np.random.default_rng(3)
    )
    assert assoc.permutation_test(x, y, num_permutations=500, seed=3).p_one_sided == expected.pvalue


def test_arrangements_without_spread_have_the_largest_statistic():
    # Of 0, 0, 1, 1 two arrangements part the values: t is plus and minus infinity.
    assert assoc.permutation_test([1.0, 1.0], [0.0, 0.0])[:2] == pytest.approx((1 / 6, 1 / 3))
    # All four arrangements of two values tie or lie on both sides: either tail holds more than half of them.
    assert assoc.permutation_test([0.0, 1.0], [0.0, 1.0])[:2] == pytest.approx((5 / 6, 1.0))


@pytest.mark.parametrize(("num_permutations", "judged", "is_exact"), [(126, 126, True), (125, 125, False)])
def test_as_many_permutations_as_arrangements_are_all_of_them(num_permutations, judged, is_exact):
    x, y = draw((5, 4), 0.7, seed=7)
    found = assoc.permutation_test(x, y, num_permutations=num_permutations)
    assert (found.num_permutations, found.is_exact) == (judged, is_exact)
    if is_exact:
        assert found == assoc.permutation_test(x, y)


@pytest.mark.parametrize("tenths", [[1, 2, 3, 4, 3, 2, 2, 1], [1, 2, 3, 4, 2, 3, 4, 1], [7, 1, 1, 3, 3, 6, 2, 1]])
def test_exact_p_values_count_ties_in_spite_of_rounding(tenths):
    """As the same numbers as fractions; in the last two lists both groups have the same sum but for rounding."""
    exact = [fractions.Fraction(sum(c)) for c in itertools.combinations(tenths, 4)]
    observed = sum(tenths[:4])
    expected = sum(value >= observed for value in exact) / len(exact)
    psi = np.array(tenths) / 10 + 1 / 3
    assert assoc.permutation_test(psi[:4], psi[4:]).p_one_sided == pytest.approx(expected, abs=1e-15)
    assert 0 < expected < 1


def test_random_permutations_add_the_observed_one():
    x, y = draw((30, 30), shift=5.0)
    found = assoc.permutation_test(x, y, num_permutations=99)
    assert found == (1 / 100, 2 / 100, 99, False)
    found = assoc.permutation_test(y, x, num_permutations=99)
    assert found == (1.0, 2 / 100, 99, False)


def test_seeds_decide_and_memory_stays_small():
    x, y = draw((500, 500), 0.1)
    tracemalloc.start()
    result = assoc.permutation_test(x, y, num_permutations=3_000, seed=1)
    interval = assoc.bootstrap_interval(x, y, seed=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * 2**20  # all permutations at once would take 24 MB
    for call, first in ((assoc.permutation_test, result), (assoc.bootstrap_interval, interval)):
        options = {"num_permutations": 3_000} if call is assoc.permutation_test else {}
        assert call(x, y, seed=1, **options) == first != call(x, y, seed=2, **options)


def test_the_interval_is_scipys_or_that_of_the_jackknife():
    x, y = draw((30, 20), 0.8)
    x[0] += 6  # skewed

    def effect(x, y, axis):
        return (x.mean(axis) - y.mean(axis)) / np.concatenate([x, y], axis).std(axis)

    # The jackknife of Fisher's z of the correlation of psi and membership, image by image.
    unit = np.sqrt(30 * 20) / 50
    z = np.arctanh(unit * effect(x, y, 0))
    of_x = np.array([np.arctanh(unit * effect(np.delete(x, i), y, 0)) for i in range(30)])
    of_y = np.array([np.arctanh(unit * effect(x, np.delete(y, i), 0)) for i in range(20)])
    influences = [(len(of) - 1) * (of.mean() - of) for of in (of_x, of_y)]
    variances = [of.var(ddof=1) / len(of) for of in influences]
    third = sum(scipy.stats.kstat(of, 3) / len(of) ** 2 for of in influences)
    freedom = sum(variances) ** 2 / (variances[0] ** 2 / 29 + variances[1] ** 2 / 19)
    error, skewness = sum(variances) ** 0.5, third / sum(variances) ** 1.5
    skewness *= 1 + abs(skewness)
    # The same generator draws the same images, so that only rounding is left.
    for level in (0.8, 0.95):
        theirs = scipy.stats.bootstrap(
            (x, y), effect, n_resamples=999, batch=256, confidence_level=level, rng=np.random.default_rng(5)
        ).confidence_interval
        student = scipy.stats.t.ppf(0.5 + level / 2, freedom)
        ends = []
        for sign in (1, -1):  # Hall's transformation of t is Student's quantile at the ends
            of_t = np.roots([skewness**2 / 27, skewness / 3, 1, skewness / 6 - sign * student])
            t = of_t[np.abs(of_t.imag) < 1e-9].real[0]
            ends.append(np.tanh(z - error * (max(student, t) if sign > 0 else min(-student, t))) / unit)
        result = assoc.bootstrap_interval(x, y, level=level, num_resamples=999, seed=5)
        expected = (effect(x, y, 0), min(theirs.low, ends[0]), max(theirs.high, ends[1]))
        assert result == pytest.approx(expected, abs=1e-9)


def test_resamples_without_variation_are_harmless():
    # A fourth of the resamples of X are constant, as is Y; those of both at 1 have no effect size and show nothing.
    found = assoc.bootstrap_interval([1.0, 2.0], [1.0, 1.0])
    assert found.value == pytest.approx(assoc.effect_size([1.0, 2.0], [1.0, 1.0]))
    assert -2 <= found.low <= found.value <= found.high <= 2
    # Two points: nothing that a resample could change.
    assert assoc.bootstrap_interval([1.0, 1.0], [0.0, 0.0]) == pytest.approx((2, 2, 2))


def test_pairs_that_share_images_are_resampled_jointly():
    x, y = draw((20, 20), -0.5)
    forth = assoc.PairAssociations("x", "y", x, y)
    back = assoc.PairAssociations("y", "x", y, x)
    once = assoc.average_interval([forth], seed=4)
    # One pair: the effect size with its sign turned.
    signed = assoc.bootstrap_interval(x, y, seed=4)
    assert once == pytest.approx((-signed.value, max(0, -signed.high), -signed.low), abs=0.02)  # quantiles of 2,000
    # The same question asked twice is no more evidence. Independent resamples would narrow the interval by a third.
    assert assoc.average_interval([forth, back], seed=4) == pytest.approx(tuple(once), abs=1e-12)
    strangers = assoc.average_interval([forth, assoc.PairAssociations("z", "w", y, x)], seed=4)
    assert strangers.high - strangers.low < 0.85 * (once.high - once.low)
    with pytest.raises(ValueError, match=names("bootstrap", "'x'")):
        assoc.average_interval([forth, assoc.PairAssociations("x", "z", x[:3], y)])


def test_coverage_of_the_average():
    """Small true effects, 0.12 on average, where the percentiles of resampled magnitudes cover 23%."""
    rng = np.random.default_rng(1)
    names = sorted({group for name in MMBIAS_PAIRS for group in name.split("-")})
    shifts = dict(zip(names, 0.15 * np.random.default_rng(5).normal(size=9), strict=True))
    pairs = [name.split("-") for name in MMBIAS_PAIRS]
    differences = np.array([shifts[x] - shifts[y] for x, y in pairs])
    truth = np.mean(np.abs(differences) / np.sqrt(1 + differences**2 / 4))
    hits = 0
    for trial in range(30):
        psi = {name: rng.normal(size=40) + shifts[name] for name in names}
        rows = [assoc.PairAssociations(x, y, psi[x], psi[y]) for x, y in pairs]
        result = assoc.average_interval(rows, num_resamples=300, seed=trial)
        assert 0 <= result.low < result.value < result.high
        hits += result.low <= truth <= result.high
    assert hits >= 24


@pytest.mark.parametrize("sizes", [(6, 6), (250, 250), (30, 10)])
def test_average_without_bias_is_what_permutations_give(sizes):
    x, y = draw(sizes)
    union = np.concatenate([x, y])
    rng = np.random.default_rng(0)
    permuted = [rng.permutation(union) for _ in range(2_000)]
    mean = np.mean([abs(assoc.effect_size(u[: sizes[0]], u[sizes[0] :])) for u in permuted])
    expected = assoc.unbiased_average([assoc.PairAssociations("x", "y", x, y)])
    assert mean == pytest.approx(expected, rel=0.06)  # sampling 2%, and at 6 + 6 images the normal approximation


def test_rows_of_a_task():
    scores, groups = scores_of(Christian=[1, 3, 2], Muslim=[-1, 1, 0, 0.5], Jewish=[0.2, 0.1, -0.3], Another=[9, 9, 9])
    texts = [*GOOD, *BAD]
    task = Association((pair("Christian-Muslim"), pair("Jewish-Muslim")))
    result = assoc.association_results(scores, texts, groups, task, num_resamples=200)
    assert list(result) == [
        *("average_absolute_effect_size", "Christian-Muslim", "Jewish-Muslim"),
        *("Christian/association", "Muslim/association", "Jewish/association"),
    ]
    common = {"value", "low", "high", "chance", "n", "ties"}
    for row in result.values():
        assert common <= set(row)
        assert (row["chance"], row["ties"]) == (None, 0)
        assert row["low"] <= row["value"] <= row["high"]
    # scores_of makes psi what it is told: joy and trust are half a point up and down.
    d = assoc.effect_size([1, 3, 2], [-1, 1, 0, 0.5])
    other = assoc.effect_size([0.2, 0.1, -0.3], [-1, 1, 0, 0.5])
    row = result["Christian-Muslim"]
    assert row["value"] == pytest.approx(d, rel=1e-12)
    assert (row["n"], row["permutations"]) == (7, 35)
    test = assoc.permutation_test([1, 3, 2], [-1, 1, 0, 0.5])
    assert (row["p_one_sided"], row["p_two_sided"]) == (test.p_one_sided, test.p_two_sided)
    average = result["average_absolute_effect_size"]
    assert average["value"] == pytest.approx((abs(d) + abs(other)) / 2, rel=1e-12)
    assert (average["n"], average["pairs"], average["left_out"]) == (10, 2, {})
    assert average["without_bias"] == pytest.approx(0.65, abs=0.01)  # sqrt(2 / pi * 49 / (6 * 12))
    muslim = result["Muslim/association"]
    # Skewed to the left: Student's end above, and further below.
    student = scipy.stats.ttest_1samp([-1, 1, 0, 0.5], 0).confidence_interval()
    assert (muslim["value"], muslim["high"]) == pytest.approx((0.125, student.high))
    assert muslim["low"] < student.low
    assert muslim["n"] == 4
    assert json.loads(json.dumps(result, allow_nan=False)) == result
    assert assoc.association_results(scores, texts, groups, task, num_resamples=200) == result
    scores, groups = scores_of(A=np.arange(20.0), B=np.arange(20.0) - 2)
    seeds = [results(scores, groups, pair("A-B"), num_permutations=999, seed=seed) for seed in (0, 0, 1)]
    assert seeds[0] == seeds[1] != seeds[2]


def test_each_pair_is_asked_with_its_own_texts():
    texts = ["suit", "apron", "beer", "wine"]
    scores = np.full((8, 4), np.nan)
    scores[:4, :2] = [[3, 1], [4, 3], [1, 1], [0, 1]]
    scores[4:, 2:] = [[1, 3], [2, 2], [5, 1], [6, 2]]
    groups = ["m1", "m1", "f1", "f1", "m2", "m2", "f2", "f2"]
    clothes = TargetPair("Clothes", "m1", "f1", ("suit",), ("apron",))
    drinks = TargetPair("Drinks", "m2", "f2", ("beer",), ("wine",))
    result = results(scores, groups, clothes, drinks, texts=texts)
    assert result["Clothes"]["value"] == pytest.approx(assoc.effect_size([2, 1], [0, -1]))
    assert result["Drinks"]["value"] == pytest.approx(assoc.effect_size([-2, 0], [4, 4]))
    assert result["m1/association"]["value"] == 1.5
    assert result["f2/association"]["value"] == 4
    assert (result["f2/association"]["low"], result["f2/association"]["high"]) == (4, 4)


def results(scores, groups, *pairs, texts=GOOD + BAD, **options):
    return assoc.association_results(scores, texts, groups, Association(pairs), **{"num_resamples": 50, **options})


def test_a_group_asked_with_two_sets_of_texts_has_two_rows():
    found = results(*scores_of(A=[1, 2], B=[3, 4.5]), pair("A-B"), TargetPair("reversed", "A", "B", BAD, GOOD))
    assert found["reversed"]["value"] == pytest.approx(-found["A-B"]["value"])
    assert found["A/association"]["value"] == pytest.approx(1.5)
    assert found["A/association in reversed"]["value"] == pytest.approx(-1.5)


def test_missing_groups_are_named_or_left_out():
    scored = scores_of(Christian=[1, 3, 2], Muslim=[-1, 1, 0], Hindu=[1])
    pairs = (pair("Christian-Muslim"), pair("Jewish-Muslim"), pair("Hindu-Muslim"))
    with raises("nothing-to-compare", "Jewish-Muslim", "'Jewish'"):
        results(*scored, *pairs)
    result = results(*scored, *pairs, partial=True)
    assert result["average_absolute_effect_size"]["pairs"] == 1
    assert result["average_absolute_effect_size"]["left_out"] == {
        "Jewish-Muslim": "there is no image of the group 'Jewish'",
        "Hindu-Muslim": "the group 'Hindu' has only one image",
    }
    assert [name for name in result if "-" in name] == ["Christian-Muslim"]
    with raises("nothing-to-compare"):
        results(*scored, pair("Jewish-Muslim"), partial=True)


def test_a_pair_without_differences_is_left_out_and_the_others_stay():
    scores, groups = scores_of(A=[1, 2], B=[3, 4], C=[5, 5], D=[5, 5, 5])
    found = results(scores, groups, pair("A-B"), pair("C-D"))
    average = found["average_absolute_effect_size"]
    assert average["left_out"] == {"C-D": "all of its images have the same association"}
    assert average["value"] == pytest.approx(abs(found["A-B"]["value"]))
    assert "C-D" not in found
    with raises("nothing-to-compare"):
        results(scores[4:], groups[4:], pair("C-D"))


def test_texts_and_lengths_are_checked():
    scores, groups = scores_of(A=[1, 2], B=[3, 4])
    with raises("unknown-name", "A-B", "'trust'", "4"):
        results(scores, groups, pair("A-B"), texts=["joy", "x", "vulgar", "bad"])
    with pytest.raises(ValueError, match=names("3 groups", "4 texts", "(4, 4)")):
        results(scores, groups[1:], pair("A-B"))
    scores[0, 0] = np.nan
    with pytest.raises(ValueError, match=names("NaN")):
        results(scores, groups, pair("A-B"))
