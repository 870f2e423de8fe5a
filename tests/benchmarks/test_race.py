"""The comparison of races and fixed budgets, in its smallest form."""

import json

import numpy as np
import pytest

from benchmarks import race
from tests.expectations import raises
from winobench import metrics


@pytest.mark.slow
def test_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(race, "_REPEATS", 2)
    monkeypatch.setattr(race, "_LEARNING", 16)
    monkeypatch.setattr(race, "QUESTIONS", {name: race.QUESTIONS[name] for name in ("1 x 2", "3 x 3")})
    output, errors = tmp_path / "figures.json", tmp_path / "errors.npz"
    words = ["--scenes", "1", "--budget", "16", "--races", "3", "--errors", str(errors), "--output", str(output)]
    race.main([*words, "--questions", "2"])
    figures = json.loads(output.read_text())
    decisions = figures["decisions"]["tasks"]
    assert list(decisions) == list(race.TASKS)
    assert decisions["clevr"]["questions"] == 14
    for rule in ("low0", "importance"):
        for name in ("before", "now 0.2"):
            of = decisions["clevr"][rule][name]
            assert of["passes"] <= of["fixed_passes"]
            assert of["agrees"][1] <= of["agrees"][0] <= of["agrees"][2]
    assert np.mean(figures["decisions"]["density"]) == pytest.approx(1, abs=0.01)
    assert len(figures["simulations"]) == 2 * len(race.DISTRIBUTIONS)
    assert list(figures["timesteps"]["relative_error"]) == list(race.RULES)
    assert figures["timesteps"]["relative_error"]["uniform"] == 1
    table = capsys.readouterr().out
    assert all(f"| {name} |" in table for name in (*race.TASKS, *race.RULES))
    # What was scored is not scored again.
    race.main([*words, "--questions", "0"])
    assert json.loads(output.read_text())["decisions"] == figures["decisions"]


def test_the_rule_before_decided_too_early():
    """Four samples that miss the rare kind: the t test believed in their spread, and what is there today does not."""
    random = np.random.default_rng(0)
    decision = metrics.METRICS["accuracy"].decision
    wrong = {"before": 0, "now": 0}
    for _ in range(40):
        ahead = race.DISTRIBUTIONS["a tenth at -3"](random, (1, 1, 250))
        scores = np.concatenate([ahead, np.zeros_like(ahead)], axis=1)
        for name, rule in (("before", race._Before(250, 0.01)), ("now", race._Now(250, 0.01, 0.04))):
            ended, _ = rule.decide(scores, decision)
            wrong[name] += np.argmax(ended) != np.argmax(scores.mean(axis=-1))
    assert wrong["before"] > 10
    assert wrong["now"] <= 2


def test_importance_is_unbiased():
    """The weighted mean of a function of the timestep is its mean over the range, whatever the density."""
    density = np.linspace(1, 3, 10)
    density /= density.sum()
    drawn = [race._timesteps("importance", (300, 800), number, density) for number in range(400)]
    timesteps, weights = (np.concatenate(part) for part in zip(*drawn, strict=True))
    assert timesteps.min() >= 300
    assert timesteps.max() < 800
    assert weights.mean() == pytest.approx(1, abs=0.01)
    assert (weights * timesteps).mean() == pytest.approx(549.5, rel=0.01)


def test_bad_arguments():
    with raises("out-of-range", "--scenes", "-1"):
        race.main(["--scenes", "-1"])
    with raises("out-of-range", "--budget", "0"):
        race.main(["--budget", "0"])
