"""Looks, levels and the test behind a race, by hand and by simulation."""

import math

import numpy as np
import pytest

from winobench.metrics import sequential


def test_looks_double_up_to_the_budget():
    assert sequential.looks(250) == [4, 8, 16, 32, 64, 128, 250]
    assert sequential.looks(16) == [4, 8, 16]
    assert sequential.looks(3) == [3]
    assert sequential.looks(20, first=5) == [5, 10, 20]


def test_the_levels_of_all_looks_but_the_last_add_up():
    assert 6 * sequential.level_of_a_look(0.012, 250) == pytest.approx(0.012)
    assert sequential.level_of_a_look(0.01, 3) == 0.01


def test_by_hand():
    # Mean 2, s^2 = 2 / 3, n = 4 of N = 8: spread = sqrt(2 / 3 / 4 * (1 - 4 / 8)) = 0.288675, so t = sqrt(48). With
    # three degrees of freedom it is exceeded with the probability 1/2 - (x / (1 + x^2) + atan(x)) / pi, where
    # x = t / sqrt(3) = 4.
    differences = np.array([1.0, 2.0, 2.0, 3.0])
    tail = 0.5 - (4 / 17 + math.atan(4)) / math.pi
    assert sequential.will_stay_positive(differences, 8, tail * 1.001)
    assert not sequential.will_stay_positive(differences, 8, tail * 0.999)
    assert not sequential.will_stay_positive(-differences, 8, 0.4)


def test_the_whole_budget_decides_by_its_mean():
    differences = np.array([[1e-9, 0.0], [0.0, 0.0], [-1.0, 0.5]])
    np.testing.assert_array_equal(sequential.will_stay_positive(differences, 2, 0.01), [True, False, False])


def test_one_sample_says_nothing_of_more():
    assert not sequential.will_stay_positive(np.array([5.0]), 2, 0.49)


def test_equal_candidates_are_never_told_apart():
    assert not sequential.will_stay_positive(np.zeros(4), 8, 0.49)


@pytest.mark.parametrize("effect", [0.0, 0.05, 0.2])
def test_predictions_of_a_look_fail_as_rarely_as_the_level_says(effect):
    """Normal differences, 8 of 32 samples known: of 20,000 races, those whose early verdict the budget overturns."""
    random = np.random.default_rng(0)
    differences = random.normal(effect, 1.0, (20_000, 32))
    level = 0.05
    positive = sequential.will_stay_positive(differences[:, :8], 32, level)
    wrong = positive & (differences.mean(axis=1) <= 0)
    # A verdict is wrong only where the whole mean has the other sign: the level bounds it for every effect, and is met
    # at none. Three standard errors of 0.0015.
    assert wrong.mean() <= level + 0.005
    assert positive.mean() > 0.01
