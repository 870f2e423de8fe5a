import numpy as np
import pytest
import scipy.stats

from tests.expectations import names
from winobench.metrics import Design, clustered, paired_difference, wilson
from winobench.metrics.intervals import reaches, unskewed


@pytest.mark.parametrize(("successes", "total"), [(0, 1), (0, 100), (1, 100), (50, 100), (99, 100), (100, 100), (7, 9)])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_wilson_is_widened_to_an_exact_interval_of_a_lower_level(successes, total, level):
    test, lower = scipy.stats.binomtest(successes, total), 1 - min(1.4 * (1 - level), 1 - level + 0.02)
    score, exact = test.proportion_ci(level, method="wilson"), test.proportion_ci(lower, method="exact")
    expected = min(score.low, exact.low), max(score.high, exact.high)
    found = wilson(successes, total, level)
    assert found.value == successes / total
    assert (found.low, found.high) == pytest.approx(expected, abs=1e-12)


def test_ends_of_rare_outcomes_by_hand():
    # z^2 = 3.8415: 3.8415 / 103.8415 = 0.0370; exact, of 93%: 1 - 0.035^(1 / 100) = 0.0330.
    assert wilson(0, 100) == pytest.approx((0.0, 0.0, 0.0370), abs=1e-4)
    assert wilson(100, 100) == pytest.approx((1.0, 0.9630, 1.0), abs=1e-4)
    # Of 10: 1 - 0.035^(1 / 10) = 0.2848, and Wilson's 3.8415 / 13.8415 = 0.2775.
    assert wilson(0, 10).high == pytest.approx(0.2848, abs=1e-4)
    # One of 50: 1 - (1 - p)^50 = 0.035 has the solution 0.000712, and Wilson's end is 0.0035.
    assert wilson(1, 50).low == pytest.approx(0.000712, abs=1e-6)
    # The closed form would miss the ends by rounding.
    assert {(wilson(0, total).low, wilson(total, total).high) for total in range(1, 200)} == {(0.0, 1.0)}


@pytest.mark.parametrize(("level", "least"), [(0.9, 0.88), (0.95, 0.93), (0.99, 0.986)])
def test_exact_least_coverage(level, least):
    """Binomial probabilities at both sides of every end, where coverage jumps; Wilson's own falls to 84% at 95%."""
    for total in (10, 13, 25, 50, 100, 333):
        _, low, high = np.array([wilson(successes, total, level) for successes in range(total + 1)]).T
        ends = np.concatenate([low[1:], high[:-1]])
        truth = np.concatenate([ends - 1e-11, ends + 1e-11])
        covering = (low <= truth[:, None]) & (truth[:, None] <= high)
        coverage = np.sum(covering * scipy.stats.binom.pmf(np.arange(total + 1), total, truth[:, None]), axis=1)
        assert coverage.min() >= least


def test_effective_numbers_between_whole_ones_give_intervals_between():
    ends = np.array([wilson(0.97 * total, total)[1:] for total in np.arange(20, 40, 0.1)])
    assert (np.diff(ends[:, 0]) > 0).all()
    assert (np.diff(ends[:, 1]) < 1e-12).all()
    assert np.abs(np.diff(ends, axis=0)).max() < 1e-3


@pytest.mark.parametrize(
    "arguments", [(0, 0), (-1, 5), (6, 5), (1, float("inf")), (1, float("nan")), ("1", 3), (1, 2, 1.0), (1, 2, 0.0)]
)
def test_wilson_refuses_what_is_no_proportion(arguments):
    successes, total, *level = arguments
    named = ("level", str(level[0])) if level else ("wilson", f"{successes!r} of {total!r}")
    with pytest.raises(ValueError, match=names(*named)):
        wilson(*arguments)


def test_hand_worked_design_effect():
    # Four images with two answers each: (1,1) (1,1) (1,0) (0,0); value 5/8. Deviations of the totals from 2 * 5/8:
    # 0.75, 0.75, -0.25, -1.25, squares 2.75; single ones give 8 (5/8)(3/8) = 1.875. Without dependence the mean would
    # take 1/8 of these and 2/8 of those: observed effect (7/8) / (6/8) * 2.75 / 1.875 = 1.711111; worst possible 2;
    # rarer outcomes 3: effect (3 * 1.711111 + 2) / 4 = 1.783333; effective number 8 / 1.783333 = 4.485981. Each outcome
    # adds 2/64 to the sum over pairs, 1/64 of it for its partner: 16^2 / 16 - 1 = 15 degrees of freedom; times
    # (1.959964 / 2.131450)^2 = 0.845565: 3.793188.
    found = clustered([1, 1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    assert found == pytest.approx(tuple(wilson(0.625 * 3.793188, 3.793188)), abs=1e-5)


@pytest.mark.parametrize("right", [0, 1])
def test_answers_that_agree_are_worth_their_images(right):
    # One image: three equal answers say as much as one. Eight images with seven equal answers each: as much as eight.
    assert clustered([right] * 3, [0, 0, 0])[1:] == pytest.approx(clustered([right], [0])[1:])
    ends = clustered([right] * 56, np.repeat(np.arange(8), 7))[1:]
    assert ends == pytest.approx(wilson(8 * right, 8)[1:])
    # More questions about the same images, all right, never make the interval wider.
    assert ends == pytest.approx(clustered([right] * 112, np.repeat(np.arange(8), 14))[1:])
    # Copies of answers on one image are one answer, also where they differ: 2/3 of one.
    assert clustered([1, 1, 0], [0, 0, 0])[1:] == pytest.approx(wilson(2 / 3, 1)[1:])


def test_macro_mean_is_the_mean_of_the_strata():
    outcomes, strata = [1, 1, 1, 0, 0], ["a", "a", "a", "a", "b"]
    result = clustered(outcomes, range(5), strata=strata)
    assert result.value == pytest.approx((3 / 4 + 0) / 2)
    # With half an outcome of each kind the strata are at 3.5/5 and 0.5/2, with variances 0.21 and 0.1875 an outcome and
    # 0.21/4 and 0.1875/1 of the means: that of the macro mean is (0.0525 + 0.1875) / 4 = 0.06. No two depend on each
    # other: effect 1. One outcome has the variance of (0.7 + 0.25) / 2 = 0.475, 0.249375: 4.15625 of them. Degrees of
    # freedom of the strata: 0.24^2 / (0.0525^2 / 3 + 0.1875^2 / 1) = 1.596656.
    student = scipy.stats.t.ppf(0.975, 0.24**2 / (0.0525**2 / 3 + 0.1875**2))
    effective = 4.15625 * (1.9599640 / student) ** 2
    assert result == pytest.approx(tuple(wilson(0.375 * effective, effective)), rel=1e-5)


@pytest.mark.parametrize("arguments", [([], []), ([1, 0], [0]), ([[1]], [[0]]), ([2, -1], [0, 1]), ([0.5], [0])])
def test_clustered_refuses_what_does_not_fit(arguments):
    with pytest.raises((ValueError, TypeError)):
        clustered(*arguments)


def test_means_are_students_and_know_copies():
    half_of_them = np.random.default_rng(1).normal(size=(20, 2))
    values = np.concatenate([half_of_them, -half_of_them])  # not skewed
    mean, low, high = Design(range(40)).means(values)
    half = scipy.stats.t.ppf(0.975, 39) * scipy.stats.sem(values, axis=0)
    np.testing.assert_allclose(mean, values.mean(axis=0), atol=1e-15)
    np.testing.assert_allclose([high - mean, mean - low], [half, half], rtol=1e-9)
    # Twice the same: the same means and the same degrees of freedom.
    skewed = np.exp(values)
    once, doubled = Design(range(40)).means(skewed), Design(np.repeat(np.arange(40), 2)).means(np.repeat(skewed, 2, 0))
    np.testing.assert_allclose(doubled, once, rtol=1e-12)
    assert np.isnan(Design([0, 0]).means(values[:2])[1:]).all()
    assert np.isnan(Design([0]).means(values[:1])[1:]).all()


def test_means_of_skewed_values_reach_further_to_their_side():
    # Mean 3, sum of squares 56 and of cubes 96: the mean has the variance 56 / (8 * 7) = 1, and the third moment and
    # skewness 96 / (8 * 7 * 6) = 2 / 7. The one supposed is 2 / 7 * 9 / 7 = 18 / 49 = s. Hall's transformation
    # t + s t^2 / 3 + s^2 t^3 / 27 + s / 6 of t = 3 - truth is Student's quantile -2.364624 at the upper end.
    values = np.array([0.0, 0, 2, 2, 2, 4, 6, 8])[:, None]
    mean, low, high = Design(range(8)).means(values)
    assert (mean[0], low[0]) == pytest.approx((3, 3 - 2.364624), abs=1e-6)
    t, s = 3 - high[0], 18 / 49
    assert t + s * t**2 / 3 + s**2 * t**3 / 27 + s / 6 == pytest.approx(-2.364624, abs=1e-6)
    assert t < -2.364624
    np.testing.assert_allclose(Design(range(8)).means(-values)[1:], [-high, -low])


def test_the_reach_is_limited_and_never_shorter_with_more_skewness():
    # Of 0, 0, 0, 4 the mean 1 has the variance and the skewness 1. The largest skewness that counts is
    # s = 2 / (q + sqrt(q^2 + 2 / 3)) with q = 3.182446, where the interval reaches 3 / s = 9.702.
    _, low, high = Design(range(4)).means([[0.0], [0.0], [0.0], [4.0]])
    assert (low[0], high[0]) == pytest.approx((1 - 3.182446, 1 + 9.702), abs=1e-3)
    third = np.linspace(0, 3, 200)
    below, above = reaches(third, np.ones(200), 2.0)
    np.testing.assert_array_equal(below, 2)
    assert np.all(np.diff(above) >= 0)


@pytest.mark.parametrize("third", [0.0, 0.01, 0.2, 0.4, 2.0])
@pytest.mark.parametrize("student", [1.3, 2.0, 12.7])
def test_the_transformed_statistic_fits_the_interval(third, student):
    """A test on the transformed statistic rejects what the interval leaves out, on both sides."""
    _, above = reaches(third, 1.0, student)
    # At the limit a cubic root of 0 keeps a third of the digits.
    assert unskewed(-float(above), third) == pytest.approx(-student, rel=1e-4)
    assert unskewed(float(above), -third) == pytest.approx(student, rel=1e-4)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (range(9), True),  # fewer than ten
        (range(10), False),
        ([3] * 30, True),  # an interval without a width
        ([0] * 18 + [1, 1], True),  # skewness of the mean 2.9 / sqrt(20)
        ([0] * 18 * 4 + [1, 1] * 4, False),  # and here half of it
        ([-9] + [0, 1, 2] * 10, True),
    ],
)
def test_too_few_values_for_an_interval(values, expected):
    values = np.array(values, float)[:, None]
    assert Design(range(len(values))).too_few(values) == [expected]
    # Copies are one value.
    assert Design(np.repeat(np.arange(len(values)), 3)).too_few(np.repeat(values, 3, axis=0)) == [expected]


def test_one_large_cluster_leaves_few_values():
    values = np.array([0.0, 1, 2] * 10)[:, None]
    assert not Design(range(30)).too_few(values)
    assert Design([*range(10), *[10] * 20]).too_few(values)


def test_what_outcomes_have_in_common_by_hand():
    # Two outcomes that rise together: the mean has the variance 1/2, each outcome alone brings 1/2 / 4.
    together = [[0, 1], [0, 1]]
    assert Design(range(2)).common_variance(together) == pytest.approx(0.25)
    # Of one cluster it is in the variance between outcomes already.
    assert Design([0, 0]).common_variance(together) == 0
    assert Design(range(2)).common_variance([[0, 1], [1, 0]]) == 0


def test_noise_that_all_share_widens_a_difference():
    first, second = np.zeros(40, bool), np.arange(40) < 12
    plain = paired_difference(first, second, range(40))
    same = paired_difference(first, second, range(40), replicates=np.zeros((40, 5)), freedom=3)
    assert same == pytest.approx(plain)
    noise = np.tile([0.1, -0.1, 0.1, -0.1, 0.0], (40, 1))
    noisy = paired_difference(first, second, range(40), replicates=noise, freedom=3)
    assert noisy.value == plain.value
    assert noisy.low < plain.low
    assert noisy.high > plain.high
    assert noisy.p_value > plain.p_value


def test_means_of_values_that_cancel_are_as_sure_as_independent_ones():
    values = np.array([[1.0], [-1.0], [3.0], [-3.0], [0.5], [-0.5]])
    mean, low, high = Design([0, 0, 1, 1, 2, 2]).means(values)
    half = scipy.stats.t.ppf(0.975, 3 - 1) * scipy.stats.sem(values, axis=0)
    np.testing.assert_allclose([mean, high, -low], [[0.0], half, half], rtol=1e-9, atol=1e-12)
    # Of two values: Student's quantile of one degree of freedom, and 3 / sqrt(2) / sqrt(2).
    ends = np.array([2.5, 2.5 - 12.706204736 * 1.5, 2.5 + 12.706204736 * 1.5])
    np.testing.assert_allclose(Design([0, 1]).means([[1.0], [4.0]]), ends[:, None], rtol=1e-9)
