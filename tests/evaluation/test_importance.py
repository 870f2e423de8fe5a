"""Learned timesteps: by hand, unbiased, and less noisy where differences depend on the timestep."""

import numpy as np
import pytest

from tests.evaluation import fakes
from tests.expectations import raises
from winobench.evaluation import evaluate, importance
from winobench.runs import reading
from winobench.scorers import samples

POSITIONS = samples.low_discrepancy(16, 0)


def test_density_by_hand():
    # Differences three times as large in the second half of the range, of whatever scale a question has.
    gap = np.where(POSITIONS < 0.5, 1.0, 3.0)
    questions = [scale * np.stack([gap, -gap]) for scale in (1, 1000)]
    density = importance.learn(questions, POSITIONS)
    # Root mean squares 1 and 3, mean 2; half of their ratio to the mean, and a half for all.
    np.testing.assert_allclose(density, np.repeat([0.75, 1.25], 5), atol=0.006)


def test_no_timestep_is_left_out():
    """Questions that are unlike the pilot's: a tenth of the range gets a twentieth of the samples at least."""
    density = importance.learn([np.stack([POSITIONS >= 0.9, POSITIONS < 0])], POSITIONS)
    assert density.min() >= 0.5
    timesteps, weights = importance.draw(fakes.FakeScorer(), density, 250, seed=0)
    assert np.count_nonzero(timesteps < 100) >= 12
    assert weights.max() <= 2


def test_nothing_to_learn_is_uniform():
    np.testing.assert_array_equal(importance.learn([np.zeros((2, 16))], POSITIONS), np.ones(10))
    np.testing.assert_array_equal(importance.learn([], POSITIONS), np.ones(10))


def test_rounding_differences_change_nothing():
    random = np.random.default_rng(0)
    questions = [random.standard_normal((3, 16)) * (1 + POSITIONS) for _ in range(64)]
    others = [question * (1 + 1e-6 * random.standard_normal(question.shape)) for question in questions]
    np.testing.assert_array_equal(importance.learn(questions, POSITIONS), importance.learn(others, POSITIONS))


def test_drawn_timesteps_follow_the_density_and_weights_undo_it():
    scorer = fakes.FakeScorer()
    density = np.repeat([0.25, 1.75], 5)
    timesteps, weights = importance.draw(scorer, density, 4096, seed=3)
    assert timesteps.dtype == np.int32
    assert timesteps.min() >= 0
    assert timesteps.max() < 1000
    assert (timesteps >= 500).mean() == pytest.approx(1.75 / 2, abs=0.002)
    np.testing.assert_allclose(weights, np.where(timesteps < 500, 4, 4 / 7))
    assert weights.mean() == pytest.approx(1, abs=0.01)
    assert (weights * timesteps).mean() == pytest.approx(499.5, rel=0.01)
    np.testing.assert_array_equal(importance.draw(scorer, density, 16, seed=3)[0], timesteps[:16])
    uniform, ones = importance.draw(scorer, np.ones(10), 64, seed=3)
    np.testing.assert_array_equal(ones, 1)
    np.testing.assert_allclose(uniform, samples.choose_timesteps("low_discrepancy", 64, seed=3), atol=1)


class Uneven(fakes.FakeScorer):
    """The candidates differ at late timesteps alone."""

    def error_of(self, image, text, sample, salt):
        noise = super().error_of(image, text, sample, salt)
        of_pair = super().error_of(image, text, 0, "pair") if text else 0.5
        timestep = salt[1] if isinstance(salt, tuple) else 0
        late = timestep >= 800
        return np.float32(50 + (3 * noise + 3 * of_pair if late else 0.01 * noise))


@pytest.mark.slow
def test_a_race_learns_where_candidates_differ_and_takes_fewer_passes(tmp_path):
    tasks = [fakes.text_task(count=12), fakes.image_task(count=12)]
    arguments = {"num_samples": 200, "mode": "race", "rare_share": 0.1, "reuse": False, "progress": False}
    plain = evaluate.evaluate(Uneven(), tasks, tmp_path / "plain", timesteps="low_discrepancy", **arguments)
    learned = evaluate.evaluate(Uneven(), tasks, tmp_path / "learned", **arguments)
    assert learned["race"]["density"][-1] > 4 * learned["race"]["density"][0]
    assert learned["race"]["passes"] < 0.75 * plain["race"]["passes"]
    fixed = evaluate.evaluate(Uneven(), tasks, tmp_path / "fixed", num_samples=512, reuse=False, progress=False)
    for task, entries in fixed["tasks"].items():
        assert learned["tasks"][task]["accuracy"]["value"] == pytest.approx(entries["accuracy"]["value"], abs=0.05)
    described = fakes.config(tmp_path / "learned")["rounds"][0]
    assert len(described["timesteps"]) == 200
    assert np.mean(np.array(described["timesteps"]) >= 800) > 0.45


def test_a_race_that_was_stopped_goes_on_and_repeats_no_pilot(tmp_path):
    tasks = [fakes.text_task(count=30)]
    arguments = {"num_samples": 64, "mode": "race", "reuse": False, "progress": False}
    stopped = Uneven(stop_after=40)
    with pytest.raises(KeyboardInterrupt):
        evaluate.evaluate(stopped, tasks, tmp_path / "run", **arguments)
    rest, whole, again = Uneven(), Uneven(), Uneven()
    results = evaluate.evaluate(rest, tasks, tmp_path / "run", **arguments)
    assert len(stopped.scored) + len(rest.scored) == results["passes"]
    assert evaluate.evaluate(again, tasks, tmp_path / "run", **arguments)["tasks"] == results["tasks"]
    assert not again.scored
    alone = evaluate.evaluate(whole, tasks, tmp_path / "alone", **arguments)
    assert len(whole.scored) == alone["computed_passes"] == alone["passes"] == results["passes"]
    assert alone["race"] == results["race"]
    assert alone["tasks"] == results["tasks"]


def test_a_fixed_number_of_samples_learns_timesteps_for_pairs_and_resumes(tmp_path):
    tasks = [fakes.text_task(count=12), fakes.bias_task()]
    arguments = {"num_samples": 33, "timesteps": "antithetic_importance", "reuse": False, "progress": False}
    stopped, rest, again = Uneven(stop_after=20), Uneven(), Uneven()
    with pytest.raises(KeyboardInterrupt):
        evaluate.evaluate(stopped, tasks, tmp_path / "run", **arguments)
    results = evaluate.evaluate(rest, tasks, tmp_path / "run", **arguments)
    assert len(stopped.scored) + len(rest.scored) == results["passes"]
    assert evaluate.evaluate(again, tasks, tmp_path / "run", **arguments)["tasks"] == results["tasks"]
    assert not again.scored
    learned, bias = fakes.config(tmp_path / "run")["rounds"]
    timesteps, weights = np.array(learned["timesteps"]), np.array(learned["weights"])
    np.testing.assert_array_equal(timesteps[:32:2], timesteps[1:32:2])
    np.testing.assert_array_equal(weights[:32:2], weights[1:32:2])
    assert (timesteps >= 800).mean() > 0.4
    assert weights[timesteps >= 800].max() < 0.6 < 1 < weights[timesteps < 800].min()
    assert "weights" not in bias
    # Scores are the weighted means of the recorded errors.
    run = reading.read_run(tmp_path / "run")
    assert run.batches("words") is not None
    np.testing.assert_array_equal(run.tasks["words"].mean.weights, weights)


def test_timesteps_are_not_learned_with_other_weights_or_in_a_race():
    named = {"timesteps": "antithetic_importance", "progress": False}
    with raises("option-of-others", "antithetic_importance", "timestep_weights"):
        weights = {"edges": [], "weights": [1]}
        evaluate.evaluate(fakes.FakeScorer(), [fakes.text_task()], timestep_weights=weights, **named)
    with raises("option-of-others", "antithetic_importance", "'importance'"):
        evaluate.evaluate(fakes.FakeScorer(), [fakes.text_task()], mode="race", **named)
