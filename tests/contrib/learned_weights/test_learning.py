"""Weights of timesteps, learned from scores that are made for it."""

import numpy as np
import pytest

from winobench.contrib.learned_weights import learning
from winobench.metrics import timestep_weights


def learnable(count, seed):
    """Questions of three candidates on 40 samples, of which only those at timesteps 250 to 500 tell anything."""
    rng = np.random.default_rng(seed)
    timesteps = np.arange(0, 1000, 25)
    tells = (timesteps >= 250) & (timesteps < 500)
    targets = rng.integers(3, size=count)
    scores = rng.normal(size=(count, 3, 40)) * np.where(tells, 1.0, 4.0)
    scores[np.arange(count), targets] += 0.5 * tells
    return scores, targets, timesteps


def accuracy(scores, targets, weights):
    return np.mean(np.argmax((scores * weights).mean(axis=-1), axis=1) == targets)


def test_timesteps_that_tell_are_found():
    scores, targets, timesteps = learnable(400, seed=0)
    curve = learning.fit(list(scores), list(targets), timesteps)
    weights = timestep_weights.sample_weights(curve, timesteps)
    telling = (timesteps >= 300) & (timesteps < 500)  # bins of a hundred timesteps
    assert weights[telling].min() > 10 * weights[(timesteps < 200) | (timesteps >= 500)].max()
    others, right, _ = learnable(1000, seed=1)
    assert accuracy(others, right, weights) > accuracy(others, right, 1.0) + 0.2
    # However large the errors are, and in whatever order the questions come.
    again = learning.fit([1e4 * matrix for matrix in scores[::-1]], list(targets[::-1]), timesteps)
    np.testing.assert_allclose(again.weights, curve.weights, atol=2e-3)


def test_where_nothing_tells_all_count():
    curve = learning.fit([np.zeros((2, 4))] * 3, [0, 1, 0], np.array([1, 2, 3, 4]))
    assert len(set(curve.weights)) == 1
    assert curve.weights[0] == 1.0


def test_questions_may_have_any_number_of_candidates():
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=(number, 6)) for number in (2, 5, 3, 2)]
    curve = learning.fit(scores, [0, 4, 1, 1], np.float32([0.1, 0.1, 0.4, 0.4, 0.9, 0.9]))
    assert len(curve.weights) == 3
    assert curve.edges == pytest.approx((0.25, 0.65))
