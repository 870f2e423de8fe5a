"""Intervals against closed forms, scipy, hand-worked cases, and their own promise: coverage."""

import numpy as np
import pytest
import scipy.stats

from tests.expectations import names
from winobench.metrics import (
    Design,
    clustered,
    wilson,
)


@pytest.mark.parametrize(("successes", "total"), [(0, 1), (0, 100), (1, 100), (50, 100), (99, 100), (100, 100), (7, 9)])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_wilson_equals_scipys(successes, total, level):
    expected = scipy.stats.binomtest(successes, total).proportion_ci(level, method="wilson")
    found = wilson(successes, total, level)
    assert found.value == successes / total
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_at_the_ends_is_not_of_zero_width():
    # z^2 = 3.8415: 3.8415 / 103.8415 = 0.0370
    assert wilson(0, 100) == pytest.approx((0.0, 0.0, 0.0370), abs=1e-4)
    assert wilson(100, 100) == pytest.approx((1.0, 0.9630, 1.0), abs=1e-4)
    # The closed form would miss them by rounding.
    assert {(wilson(0, total).low, wilson(total, total).high) for total in range(1, 200)} == {(0.0, 1.0)}


@pytest.mark.parametrize("arguments", [(1, 0), (0, 0), (-1, 5), (6, 5), (1, 2, 1.0), (1, 2, 0.0)])
def test_wilson_refuses_what_is_no_proportion(arguments):
    successes, total, *level = arguments
    named = ("level", str(level[0])) if level else ("wilson", "successes", "total", f"{successes} of {total}")
    with pytest.raises(ValueError, match=names(*named)):
        wilson(*arguments)


def test_one_outcome_a_cluster_is_wilson():
    outcomes = np.arange(60) % 3 == 0
    assert clustered(outcomes, np.arange(60)) == pytest.approx(tuple(wilson(20, 60)), abs=1e-12)
    names = [f"image {number}" for number in range(60)]
    assert clustered(np.ones(60, bool), names) == pytest.approx(tuple(wilson(60, 60)), abs=1e-12)


def test_copies_of_an_outcome_add_nothing():
    """Seven identical answers an image count as one, up to Student's correction for 200 clusters (below 1%)."""
    once = np.random.default_rng(0).random(200) < 0.7
    found = clustered(np.repeat(once, 7), np.repeat(np.arange(200), 7))
    expected = wilson(once.sum(), 200)
    assert found.value == expected.value
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=2e-3)
    assert found.high - found.low > expected.high - expected.low


def test_hand_worked_design_effect():
    # Four images with two answers each: (1,1) (1,1) (1,0) (0,0); value 5/8. Deviations of the totals from 2 * 5/8:
    # 0.75, 0.75, -0.25, -1.25, squares 2.75; single ones give 8 (5/8)(3/8) = 1.875. Without dependence the mean would
    # take 1/8 of these and 2/8 of those: observed effect (7/8) / (6/8) * 2.75 / 1.875 = 1.711111; worst possible 2;
    # rarer outcomes 3: effect (3 * 1.711111 + 2) / 4 = 1.783333; effective number 8 / 1.783333 = 4.485981. Each outcome
    # adds 2/64 to the sum over pairs, 1/64 of it for its partner: 16^2 / 16 - 1 = 15 degrees of freedom; times
    # (1.959964 / 2.131450)^2 = 0.845565: 3.793188.
    found = clustered([1, 1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    assert found == pytest.approx(tuple(wilson(0.625 * 3.793188, 3.793188)), abs=1e-5)


def test_agreement_of_all_counts_clusters_not_outcomes():
    everything_right = clustered(np.ones(700, bool), np.repeat(np.arange(100), 7))
    assert everything_right.high == 1
    # As if there were 100 outcomes (0.963), up to Student's correction.
    assert everything_right.low == pytest.approx(wilson(100, 100).low, abs=2e-3)
    nothing_right = clustered(np.zeros(700, bool), np.repeat(np.arange(100), 7))
    assert nothing_right.high == pytest.approx(1 - everything_right.low)
    # One wrong answer among the right ones of its image is evidence that an image's answers are not copies.
    one_wrong = np.ones(700, bool)
    one_wrong[3] = False
    assert everything_right.low < clustered(one_wrong, np.repeat(np.arange(100), 7)).low < wilson(699, 700).low


def test_negative_dependence_does_not_narrow_the_interval():
    outcomes, clusters = np.tile([1, 0], 50), np.repeat(np.arange(50), 2)  # every image has one right and one wrong
    found, independent = clustered(outcomes, clusters), wilson(50, 100)
    assert found.high - found.low >= independent.high - independent.low


def test_one_cluster_of_many_outcomes_counts_once():
    # Less Student's correction, with the fewest degrees of freedom, (1.959964 / 4.302653)^2.
    effective = (1.9599640 / 4.3026527) ** 2
    assert clustered([1, 0, 1, 1], ["a"] * 4) == pytest.approx(tuple(wilson(0.75 * effective, effective)))


def test_macro_mean_is_the_mean_of_the_strata():
    outcomes, strata = [1, 1, 1, 0, 0], ["a", "a", "a", "a", "b"]
    found = clustered(outcomes, range(5), strata=strata)
    assert found.value == pytest.approx((3 / 4 + 0) / 2)
    # With half an outcome of each kind the strata are at 3.5/5 and 0.5/2, with variances 0.21 and 0.1875 an outcome and
    # 0.21/4 and 0.1875/1 of the means: that of the macro mean is (0.0525 + 0.1875) / 4 = 0.06. No two depend on each
    # other: effect 1. One outcome has the variance of (0.7 + 0.25) / 2 = 0.475, 0.249375: 4.15625 of them. Degrees of
    # freedom of the strata: 0.24^2 / (0.0525^2 / 3 + 0.1875^2 / 1) = 1.596656.
    student = scipy.stats.t.ppf(0.975, 0.24**2 / (0.0525**2 / 3 + 0.1875**2))
    effective = 4.15625 * (1.9599640 / student) ** 2
    assert found == pytest.approx(tuple(wilson(0.375 * effective, effective)), rel=1e-5)


def test_macro_mean_of_equal_strata_has_the_plain_value():
    generator = np.random.default_rng(1)
    outcomes, clusters, strata = generator.random(350) < 0.8, np.repeat(np.arange(50), 7), np.tile(np.arange(7), 50)
    macro, plain = clustered(outcomes, clusters, strata=strata), clustered(outcomes, clusters)
    assert macro.value == pytest.approx(plain.value)
    assert (macro.low, macro.high) == pytest.approx((plain.low, plain.high), abs=0.01)


@pytest.mark.parametrize("arguments", [([], []), ([1, 0], [0]), ([[1]], [[0]])])
def test_clustered_refuses_what_does_not_fit(arguments):
    with pytest.raises((ValueError, TypeError)):
        clustered(*arguments)


@pytest.mark.parametrize("num_clusters", [30, 100])
@pytest.mark.parametrize("value", [0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("correlation", [0.0, 0.1, 0.4])
def test_coverage(num_clusters, value, correlation):
    """Seven beta-binomial answers an image: the 95% interval holds the truth in at least 95% - 3 standard errors."""
    generator, repetitions, size = np.random.default_rng(2), 400, 7
    clusters = np.repeat(np.arange(num_clusters), size)
    spread = (1 - correlation) / correlation if correlation else None
    hits = 0
    for _ in range(repetitions):
        each = (
            generator.beta(value * spread, (1 - value) * spread, num_clusters)
            if spread
            else np.full(num_clusters, value)
        )
        interval = clustered((generator.random((num_clusters, size)) < each[:, None]).ravel(), clusters)
        hits += interval.low <= value <= interval.high
    assert hits / repetitions >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / repetitions)


def test_means_are_students_and_know_copies():
    values = np.random.default_rng(1).normal(size=(40, 2))
    mean, low, high = Design(range(40)).means(values)
    half = scipy.stats.t.ppf(0.975, 39) * scipy.stats.sem(values, axis=0)
    np.testing.assert_allclose(mean, values.mean(axis=0))
    np.testing.assert_allclose([high - mean, mean - low], [half, half], rtol=1e-9)
    # Twice the same: the same means and the same degrees of freedom.
    doubled = Design(np.repeat(np.arange(40), 2)).means(np.repeat(values, 2, axis=0))
    np.testing.assert_allclose(doubled, [mean, low, high], rtol=1e-12)
    assert np.isnan(Design([0, 0]).means(values[:2])[1:]).all()
    assert np.isnan(Design([0]).means(values[:1])[1:]).all()


def test_means_of_values_that_cancel_are_as_sure_as_independent_ones():
    values = np.array([[1.0], [-1.0], [3.0], [-3.0], [0.5], [-0.5]])
    mean, low, high = Design([0, 0, 1, 1, 2, 2]).means(values)
    half = scipy.stats.t.ppf(0.975, 3 - 1) * scipy.stats.sem(values, axis=0)
    np.testing.assert_allclose([mean, high, -low], [[0.0], half, half], rtol=1e-9, atol=1e-12)


def test_means_of_two():
    mean, low, high = Design([0, 1]).means([[1.0], [4.0]])
    half = 12.706204736 * 1.5  # Student's quantile of one degree of freedom, and 3 / sqrt(2) / sqrt(2)
    np.testing.assert_allclose([mean, low, high], [[2.5], [2.5 - half], [2.5 + half]], rtol=1e-9)


def test_the_usual_level_is_95_percent():
    design, first, second = Design([0, 0, 1, 2]), *np.eye(4)[:, :2].T[:, :, None]
    np.testing.assert_array_equal(design.differences(first, second), design.differences(first, second, 0.95))
    np.testing.assert_array_equal(design.proportions(first), design.proportions(first, 0.95))
    np.testing.assert_array_equal(design.means(first), design.means(first, 0.95))
