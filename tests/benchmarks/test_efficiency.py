"""Passes until an answer is that of a large budget, from questions whose scores are known."""

import json

import numpy as np
import pytest

from benchmarks import efficiency

POINTS = 64


def drawn(rule, count=32, seed=0, **learned):
    parts = {name: np.linspace(1, 3, 10) for name in ("size", "size_of_partners", "signal")}
    return efficiency.RULES[rule](
        efficiency.Draw(np.random.default_rng(seed), seed, count, POINTS, **{**parts, **learned})
    )


@pytest.mark.parametrize("rule", efficiency.RULES)
def test_rules_without_learned_weights_leave_the_mean(rule):
    values = np.linspace(0, 1, POINTS) ** 2
    found = [drawn(rule, seed=seed) for seed in range(200)]
    assert all(len(part) == 32 for one in found for part in (one.points, one.signs, one.weights))
    mean = np.mean([np.mean(values[one.points] * one.weights) for one in found])
    if "weights" in rule:
        assert abs(mean - values.mean()) > 0.03
    else:
        assert mean == pytest.approx(values.mean(), abs=0.01)


def test_partners_share_a_point_and_differ_in_sign():
    chosen = drawn("antithetic", count=9)
    np.testing.assert_array_equal(chosen.points[:8:2], chosen.points[1:8:2])
    np.testing.assert_array_equal(chosen.signs[:8:2], 1 - chosen.signs[1:8:2])
    assert len(chosen.points) == 9
    below = drawn("antithetic, low timesteps", count=32)
    points, signs = below.points.reshape(8, 2, 2), below.signs.reshape(8, 2, 2)
    assert (points[:, 0] < POINTS / 2).all()
    assert (points[:, 1] >= POINTS / 2).all()
    assert (points[:, 0, 0] == points[:, 0, 1]).all()
    assert (signs[:, 0, 0] != signs[:, 0, 1]).all()
    assert len(np.unique(points[:, 1])) == 16


def noisy_set(odd, even, targets=(0, 1, 0, 1)):
    """Four questions with two texts: the right one is ahead by 1 and by noise, which partners have in common or not."""
    random = np.random.default_rng(1)
    ahead = 1 + even * random.standard_normal((4, POINTS, 1)) + odd * random.standard_normal((4, POINTS, 1)) * [1, -1]
    scores = np.zeros((4, 1, 2, POINTS, 2))
    scores[np.arange(4), 0, list(targets)] = ahead
    return efficiency.Set(scores, np.array(targets))


def test_odd_noise_is_gone_with_partners():
    found = efficiency.figures_of(noisy_set(odd=8.0, even=0.0), seeds=10)
    assert found["antithetic"]["agrees"]["2"][0] == 1
    assert found["antithetic"]["samples"][0] == 2
    assert found["antithetic"]["variance"][0] < 1e-6
    assert found["low_discrepancy"]["agrees"]["2"][0] < 0.8
    assert found["antithetic"]["gain"][0] > 0


def test_even_noise_is_no_less_with_partners():
    found = efficiency.figures_of(noisy_set(odd=0.0, even=3.0), seeds=40)
    assert found["antithetic"]["variance"][0] > 1.3
    assert found["low_discrepancy"]["variance"] == [1, 1, 1]


def test_a_question_settles_where_the_answer_stays():
    agrees = np.array([[1, 0, 1, 1], [0, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 0]], bool)
    assert efficiency.settled(agrees, np.array([2, 4, 8, 16]), 32).tolist() == [8, 32, 2, 32]


def test_pairs_of_images_need_all_comparisons():
    of = efficiency.Set(np.zeros((1, 2, 2, 1, 1)), None)
    texts = np.array([[[2.0, 1], [0, 1]]])[..., None]  # each image has its text; text 1 fits both images alike
    assert of.answers(texts).tolist() == [[1]]
    assert of.right(of.answers(texts)).tolist() == [[False]]
    both = np.array([[[2.0, 0], [1, 1.5]]])[..., None]
    assert of.right(of.answers(both)).tolist() == [[True]]


@pytest.mark.slow
def test_runs(tiny_pipeline, single_device, tmp_path, capsys):
    words = ["--models", str(tiny_pipeline), "--rounds=1", "--images=2", "--classes=6", "--points=32", "--seeds=2"]
    words += ["--workdir", str(tmp_path / "errors"), "--output", str(tmp_path / "figures.json")]
    efficiency.main(words)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert {of["set"]: of["questions"] for of in figures["sets"]} == {
        efficiency.HARD: 8,
        efficiency.PAIRS: 8,
        efficiency.CLASSES: 2,
    }
    for row in figures["rules"]:
        assert row["agrees"]["32"][1] <= row["agrees"]["32"][0] <= row["agrees"]["32"][2]
        assert 2 <= row["samples"][0] <= figures["budget"]
    assert all(row["samples"][0] <= 32 for row in figures["dropping"])
    table = capsys.readouterr().out
    assert all(f"| {rule} |" in table for rule in (*efficiency.RULES, *efficiency.MEANS))
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "errors").rglob("*.npy")}
    efficiency.main(words)  # finds the errors
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "errors").rglob("*.npy")}
    assert json.loads((tmp_path / "figures.json").read_text())["rules"] == figures["rules"]
