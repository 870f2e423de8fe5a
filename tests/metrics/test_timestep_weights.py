import json

import numpy as np
import pytest

from tests.expectations import names, raises
from winobench.base.errors import InputError
from winobench.metrics import timestep_weights
from winobench.metrics.timestep_weights import Curve

LEVELS = np.float32([0.25, 0.5, 0.8])


@pytest.mark.parametrize(
    ("rule", "by_hand"),
    [
        # 1 / s^2; 2 / (pi (1 - 2s + 2s^2)); the density of a logistic-normal variable.
        ("sigma_sqrt", [16, 4, 1.5625]),
        ("cosmap", [1.0186, 1.2732, 0.9362]),
        ("logit_normal", [1.1637, 1.5958, 0.9538]),
    ],
)
def test_the_rules_of_noise_levels(rule, by_hand):
    np.testing.assert_allclose(timestep_weights.LEVEL_RULES[rule](LEVELS.astype(np.float64)), by_hand, rtol=1e-4)
    weights = timestep_weights.sample_weights(timestep_weights.parse(rule), LEVELS)
    np.testing.assert_allclose(weights, np.array(by_hand) / np.mean(by_hand), rtol=1e-4)
    # Flow models may be asked for pure noise.
    assert np.isfinite(timestep_weights.sample_weights(rule, np.float32([0.5, 1.0]))).all()
    with pytest.raises(InputError, match=names(rule, "uniform")):
        timestep_weights.sample_weights(rule, np.int32([10, 500]))


def test_uniform_is_no_weighting():
    assert timestep_weights.parse(None) == timestep_weights.parse("uniform") == "uniform"
    assert timestep_weights.sample_weights("uniform", LEVELS) is None


def test_learned_weights_are_steps(tmp_path):
    curve = Curve((100.0, 500.0), (1.0, 0.0, 3.0))
    np.testing.assert_array_equal(curve(np.array([0, 99, 100, 499, 500, 999])), [1, 1, 0, 0, 3, 3])
    np.testing.assert_allclose(timestep_weights.sample_weights(curve, [0, 300, 700, 800]), np.r_[1, 0, 3, 3] / 1.75)
    path = tmp_path / "weights.json"
    path.write_text(json.dumps({**timestep_weights.described(curve), "questions": 3}))
    assert timestep_weights.parse(str(path)) == curve == timestep_weights.parse(timestep_weights.described(curve))
    with pytest.raises(InputError, match=names("weights", "0")):
        timestep_weights.sample_weights(curve, [200, 300])
    # A published rule at a level that has no weight that is a number.
    with raises("bad-timestep-weights"), np.errstate(divide="ignore"):
        timestep_weights.sample_weights("sigma_sqrt", np.float32([0.0, 0.5]))
    with raises("bad-timestep-weights"):
        timestep_weights.sample_weights(Curve((100.0,), (1e308, 1e308)), [50, 200])


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {},
        {"edges": [2, 1], "weights": [1, 1, 1]},
        {"edges": [1], "weights": [1, -1]},
        {"edges": [1], "weights": [0, 0]},
        {"edges": [1], "weights": [1e308, 1e308]},
        {"edges": [1], "weights": ["1", 1]},
        {"edges": 1, "weights": [1]},
        *({"edges": [1], "weights": [number, 1]} for number in (10**400, float("nan"), float("inf"))),
        *({"edges": [number], "weights": [1, 1]} for number in (10**400, float("nan"), float("inf"))),
    ],
)
def test_what_holds_no_weights(content, tmp_path):
    path = tmp_path / "weights.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match=names("weights", "--fit_timesteps")):
        timestep_weights.parse(path)
    if isinstance(content, dict):
        with raises("bad-timestep-weights", "edges", "weights", "--fit_timesteps"):
            timestep_weights.parse(content)


def test_a_rule_that_does_not_exist():
    with raises("bad-timestep-weights", "'cosmop'", "cosmap", "--fit_timesteps"):
        timestep_weights.parse("cosmop")


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
    curve = timestep_weights.fit(list(scores), list(targets), timesteps)
    weights = timestep_weights.sample_weights(curve, timesteps)
    telling = (timesteps >= 300) & (timesteps < 500)  # bins of a hundred timesteps
    assert weights[telling].min() > 10 * weights[(timesteps < 200) | (timesteps >= 500)].max()
    others, right, _ = learnable(1000, seed=1)
    assert accuracy(others, right, weights) > accuracy(others, right, 1.0) + 0.2
    # However large the errors are, and in whatever order the questions come.
    again = timestep_weights.fit([1e4 * matrix for matrix in scores[::-1]], list(targets[::-1]), timesteps)
    np.testing.assert_allclose(again.weights, curve.weights, atol=2e-3)


def test_where_nothing_tells_all_count():
    curve = timestep_weights.fit([np.zeros((2, 4))] * 3, [0, 1, 0], np.array([1, 2, 3, 4]))
    assert len(set(curve.weights)) == 1
    assert curve.weights[0] == 1.0


def test_questions_may_have_any_number_of_candidates():
    rng = np.random.default_rng(0)
    scores = [rng.normal(size=(number, 6)) for number in (2, 5, 3, 2)]
    curve = timestep_weights.fit(scores, [0, 4, 1, 1], np.float32([0.1, 0.1, 0.4, 0.4, 0.9, 0.9]))
    assert len(curve.weights) == 3
    assert curve.edges == pytest.approx((0.25, 0.65))
