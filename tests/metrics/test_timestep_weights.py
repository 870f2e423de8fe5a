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
