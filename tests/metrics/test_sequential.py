import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from winobench.metrics import sequential


def _exact(differences, budget, share, mean, start=0):
    """The capital's course if the mean of the negative parts is known, one sample after the other."""
    stakes, course = [1.0, 1.0], []
    y_seen = z_seen = 0.0
    for number, difference in enumerate(differences):
        left = budget - number
        y, z = min(max(difference, 0) / mean, 1 / share), max(-difference, 0) / mean
        rest_y, rest_z = (budget - y_seen) / left, (budget - z_seen) / left
        risk = min(1 / share, budget - z_seen) - rest_z
        if number >= start:
            gain_z = (rest_z - z) / risk
            stakes[0] *= max(0, 1 + gain_z)
            stakes[1] *= max(0, 1 + share * (y / rest_y - 1) + (1 - share) * gain_z)
        course.append(0.75 * stakes[0] + 0.25 * stakes[1])
        y_seen += y
        z_seen += z
    return course


def test_looks_begin_where_something_can_be_decided():
    for budget, level, share in [(250, 0.01, 0.04), (250, 0.05, 0.1), (64, 0.01, 0.3), (1000, 0.01, 0.04)]:
        numbers = sequential.looks(budget, level, share)
        assert numbers[-1] == budget
        assert (np.diff(numbers) > 0).all()
        first = numbers[0]
        assert sequential.will_stay_positive(np.ones((1, first)), budget, level, share).all()
        assert not sequential.will_stay_positive(np.ones((1, first - 1)), budget, level, share).any()
    assert sequential.looks(250, 0.01)[:4] == [95, 102, 110, 119]
    assert sequential.looks(250, 0.01, 0.2)[:4] == [21, 25, 29, 33]
    assert sequential.looks(3, 0.01) == [3]
    assert sequential.looks(1, 0.01) == [1]


def test_the_fewest_samples_miss_the_carriers_with_the_level():
    """Without any negative difference, the capital is one over the probability of missing all carriers."""
    # 10 of 100 samples might carry the opposite: 20 miss them all with (90 C 20) / (100 C 20).
    missed = math.comb(90, 20) / math.comb(100, 20)
    assert sequential.fewest(100, missed / 0.75 * 1.0001, 0.1) == 20
    assert sequential.fewest(100, missed / 0.75 * 0.9999, 0.1) == 21
    # Below one sample a share is that of one: all but the last are needed for a sure decision at a small level.
    assert sequential.fewest(100, 0.02, 0.001) == 99
    assert sequential.fewest(100, 1e-9, 0.001) == 100
    # 4.5 carriers are not missed once four samples are left: 97, whatever the level.
    assert sequential.fewest(100, 1e-30, 0.045) == 97


def test_the_whole_budget_decides_by_its_mean():
    differences = np.array([[1e-9, 0.0], [0.0, 0.0], [-1.0, 0.5]])
    np.testing.assert_array_equal(sequential.will_stay_positive(differences, 2, 0.01), [True, False, False])


def test_equal_candidates_are_never_told_apart():
    assert not sequential.will_stay_positive(np.zeros((3, 249)), 250, 0.49).any()
    assert sequential.will_stay_positive(np.r_[np.zeros(200), 1.0][None], 250, 0.01).all()


def test_scale_does_not_matter():
    differences = np.random.default_rng(0).normal(0.5, 1, (20, 120))
    once = sequential.capital(differences, 250)
    np.testing.assert_allclose(sequential.capital(1e-9 * differences, 250), once, rtol=1e-6)
    np.testing.assert_allclose(sequential.capital(1e9 * differences, 250), once, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([0.04, 0.1, 0.3, 0.5]),
    st.sampled_from(["normal", "points", "heavy", "skew"]),
    st.sampled_from([0.0, 0.3, 1.5]),
    st.sampled_from([0, 4, 16]),
)
def test_the_capital_is_at_most_that_of_every_mean(seed, share, kind, shift, start):
    """What is computed on a grid is a bound for all means between its points, however the samples have fallen."""
    random = np.random.default_rng(seed)
    budget = int(random.integers(30, 200))
    n = int(random.integers(start + 1, budget))
    draw = {
        "normal": random.standard_normal(n),
        "points": np.where(random.random(n) < 0.1, -3, 0.25),
        "heavy": random.standard_t(2, n),
        "skew": random.exponential(1, n) - 1,
    }[kind]
    differences = draw + shift
    bound = sequential.capital(differences[None], budget, share, start)[0]
    known = np.maximum(-differences, 0)
    least, typical = max(known.sum() / budget, 1e-12), np.abs(differences).mean()
    for mean in np.geomspace(least * (1 + 1e-9), 1e3 * (typical + least), 60):
        y = np.minimum(np.maximum(differences, 0) / mean, 1 / share)
        left = (budget - known.cumsum() / mean) / (budget - 1 - np.arange(n))
        if y.sum() > budget * (1 - 1e-9) or (left > (1 / share) * (1 - 1e-9)).any() or known.max() / mean > 1 / share:
            continue  # not a mean that these differences allow
        assert bound <= max(_exact(differences, budget, share, mean, start)) * (1 + 1e-6)


@pytest.mark.parametrize("kind", ["normal", "points"])
def test_the_capital_is_little_less_than_that_of_the_worst_mean(kind):
    """A coarser grid would be a bound as well, but races would take longer: a tenth is what it may cost."""
    random, n, budget, share = np.random.default_rng(3), 60, 120, 0.1
    differences = random.normal(1.5, 1, n) if kind == "normal" else np.where(random.random(n) < 0.1, -1.0, 1.0)
    known = np.maximum(-differences, 0)
    worst = np.inf
    for mean in np.geomspace(known.sum() / budget * (1 + 1e-9), 1e3, 400):
        left = (budget - known.cumsum() / mean) / (budget - 1 - np.arange(n))
        is_possible = (left <= 1 / share).all() and known.max() / mean <= 1 / share
        if is_possible and np.minimum(np.maximum(differences, 0) / mean, 1 / share).sum() <= budget:
            worst = min(worst, max(_exact(differences, budget, share, mean)))
    assert 0.9 * worst < sequential.capital(differences[None], budget, share)[0] < worst < np.inf


def test_the_capital_by_hand():
    """One difference of 1, of four samples; a share of a half: two carriers at least."""
    # Whatever the mean of the negative parts is: nothing negative, of which 4 / 4 was due, at the risk of 2 - 1: the
    # stake doubles. The other one: half of it as well, half for the positive part, which is lost where means are large.
    assert sequential.capital(np.array([[1.0]]), 4, 0.5)[0] == pytest.approx(0.75 * 2)
    # A second one: 4 / 3 was due, at the risk of 2 - 4 / 3; together 2 * 3. With the means that are the least of all
    # the other stake has grown, too, but not with all.
    assert sequential.capital(np.array([[1.0, 1.0]]), 4, 0.5)[0] == pytest.approx(0.75 * 6)
    assert sequential.capital(np.array([[1.0, 1.0]]), 4, 0.5, start=1)[0] == pytest.approx(0.75 * 3)


@pytest.mark.parametrize("share", [0.04, 0.3, 0.35])
def test_the_capital_of_one_mean_is_exact(share):
    random, n, budget = np.random.default_rng(4), 40, 100
    differences = random.normal(0.4, 1, n)
    known = np.maximum(-differences, 0)
    for mean in np.geomspace(known.sum() / budget * 1.05, 10 * np.abs(differences).mean(), 12):
        if known.max() / mean > 1 / share:
            continue
        at = np.array([[mean]])
        result = sequential._capital(differences[None], budget, share, 3, at, at)[0, 0]
        y = np.minimum(np.maximum(differences, 0) / mean, 1 / share).sum()
        assert result == (np.inf if y > budget else pytest.approx(max(_exact(differences, budget, share, mean, 3))))


def test_means_that_the_positive_parts_exceed_are_ruled_out():
    """Four samples, no one more than 1 / 0.3 of a sum of 4: two parts of 2 are all of it, and a little more is none."""
    for second, is_possible in ((2.0, True), (2.0 + 1e-6, False), (2.5, False), (1.5, True)):
        at = np.ones((1, 1))
        found = sequential._capital(np.array([[2.0, second]]), 4, 0.3, 0, at, at)[0, 0]
        assert np.isfinite(found) == is_possible


def test_negative_parts_for_which_no_samples_are_left_are_ruled_out():
    """Of five samples, two at least hold the negative parts (a share of a half: 2.5 of 5); one sample is too few."""
    assert sequential.capital(np.ones((1, 4)), 5, 0.5)[0] == np.inf
    assert np.isfinite(sequential.capital(np.ones((1, 3)), 5, 0.5)[0])


def test_the_last_axis_holds_the_samples():
    differences = np.random.default_rng(6).normal(0.9, 1, (3, 2, 40)) * [[[1.0], [-1.0]]]
    several = sequential.will_stay_positive(differences, 64, 0.05, 0.2)
    assert several.shape == (3, 2)
    assert several.any()
    assert not several.all()
    single = [[sequential.will_stay_positive(one, 64, 0.05, 0.2) for one in row] for row in differences]
    np.testing.assert_array_equal(several, single)


def _stops(differences, budget, level, share=sequential.SHARE):
    """The look at which each is sure to be positive; the budget for those that are not."""
    stops, rest = np.full(len(differences), budget), np.arange(len(differences))
    for n in sequential.looks(budget, level, share)[:-1]:
        sure = sequential.will_stay_positive(differences[rest, :n], budget, level, share)
        stops[rest[sure]], rest = n, rest[~sure]
    return stops


def test_the_worst_population_meets_the_level_and_no_more():
    """What the assumption allows at worst: as few carriers as there may be, all alike. The sampling is exact here, so
    that the rate of mistakes is known: the probability that all are missed ahead of the first look."""
    budget, level, share = 100, 0.05, 0.1
    differences = np.tile(np.where(np.arange(budget) < 10, -9.01, 1.0), (2_500, 1))
    differences = np.random.default_rng(0).permuted(differences, axis=1)
    first = sequential.fewest(budget, level, share)
    wrong = _stops(differences, budget, level, share) < budget
    missed = math.comb(90, first) / math.comb(100, first)
    assert missed <= 0.75 * level < math.comb(90, first - 1) / math.comb(100, first - 1)
    assert missed - 0.01 < wrong.mean() <= level
