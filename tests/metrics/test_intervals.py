"""Intervals against closed forms, scipy, hand-worked cases, and their own promise: coverage."""

import numpy as np
import pytest
import scipy.stats

from winobench.metrics import clustered, wilson


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


@pytest.mark.parametrize("arguments", [(1, 0), (-1, 5), (6, 5), (1, 2, 1.0)])
def test_wilson_refuses_what_is_no_proportion(arguments):
    with pytest.raises(ValueError, match=r"wilson needs|confidence level"):
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
    # 0.75, 0.75, -0.25, -1.25, squares 2.75; variance 4/3 * 2.75 / 64 = 0.0572917; under independence
    # (5/8)(3/8)/8 = 0.0292969; observed effect 1.955556; worst possible 2; rarer outcomes 3:
    # effect (3 * 1.955556 + 2) / 4 = 1.966667; effective number 8 / 1.966667 = 4.067797, times (1.959964 / 3.182446)^2
    # = 0.379291: 1.542879.
    found = clustered([1, 1, 1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 2, 2, 3, 3])
    assert found == pytest.approx(tuple(wilson(0.625 * 1.542879, 1.542879)), abs=1e-5)


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
    assert clustered([1, 0, 1, 1], ["a"] * 4) == pytest.approx(tuple(wilson(0.75, 1)))


def test_macro_mean_is_the_mean_of_the_strata():
    outcomes, strata = [1, 1, 1, 0, 0], ["a", "a", "a", "a", "b"]
    found = clustered(outcomes, range(5), strata=strata)
    assert found.value == pytest.approx((3 / 4 + 0) / 2)
    # Effective number of outcomes: 1 / (4 * (1/8)^2 + (1/2)^2) = 3.2
    assert found == pytest.approx(tuple(wilson(0.375 * 3.2, 3.2)))


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
