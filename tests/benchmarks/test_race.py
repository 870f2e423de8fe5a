"""The comparison of races and fixed budgets, in its smallest form."""

import json

import numpy as np
import pytest

from benchmarks import race
from winobench.errors import InputError


def test_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(race, "_REPEATS", 2)
    monkeypatch.setattr(race, "_LEARNING", 16)
    output = tmp_path / "figures.json"
    race.main(["--scenes", "1", "--budget", "16", "--questions", "2", "--races", "5", "--output", str(output)])
    figures = json.loads(output.read_text())
    decisions = figures["decisions"]["tasks"]
    assert list(decisions) == list(race.TASKS)
    of = decisions["clevr"]
    assert of["questions"] == 14
    for kind in ("race", "race_importance"):
        assert of[kind]["passes"] <= of[kind]["fixed_passes"] == of["pairs"] * 16
    assert np.mean(figures["decisions"]["density"]) == pytest.approx(1, abs=0.01)
    assert len(figures["simulations"]) == 2 * len(race.DISTRIBUTIONS) * len(race.EFFECTS)
    assert list(figures["timesteps"]["relative_error"]) == list(race.RULES)
    assert figures["timesteps"]["relative_error"]["uniform"] == 1
    table = capsys.readouterr().out
    assert all(f"| {name} |" in table for name in (*race.TASKS, *race.RULES))


@pytest.mark.parametrize("kind", race.DISTRIBUTIONS)
def test_simulated_noise_has_mean_0_and_variance_1(kind):
    noise = race._standard(np.random.default_rng(0), kind, (400_000,))
    assert abs(noise.mean()) < 0.01
    # Student's t with 3 degrees of freedom has no fourth moment: its sample variance settles slowly.
    assert abs(noise.var() - 1) < (0.2 if "t, 3" in kind else 0.02)


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
    with pytest.raises(InputError, match="--scenes is 0"):
        race.main(["--scenes", "0"])
