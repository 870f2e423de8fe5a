"""The comparison of races and fixed budgets, in its smallest form."""

import itertools
import json

import numpy as np
import pytest

from benchmarks import race, race_classes
from winobench import metrics


@pytest.mark.slow
def test_runs(tiny_pipeline, single_device, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(race, "_REPEATS", 2)
    monkeypatch.setattr(race, "_LEARNING", 16)
    monkeypatch.setattr(race, "QUESTIONS", {name: race.QUESTIONS[name] for name in ("1 x 2", "3 x 3")})
    output, errors = tmp_path / "figures.json", tmp_path / "errors.npz"
    words = ["--model", str(tiny_pipeline), "--scenes", "1", "--budget", "16", "--races", "3"]
    words += ["--errors", str(errors), "--output", str(output)]
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
    race.main([*words, "--questions", "0"])
    assert json.loads(output.read_text())["decisions"] == figures["decisions"]


def test_the_rule_before_decided_too_early():
    random = np.random.default_rng(0)
    decision = metrics.METRICS["accuracy"].decision
    wrong = {"before": 0, "now": 0}
    for _ in range(40):
        ahead = race.DISTRIBUTIONS["a tenth at -3"](random, (1, 1, 250))
        scores = np.concatenate([ahead, np.zeros_like(ahead)], axis=1)
        for name, rule in (("before", race._Before(250, 0.01)), ("now", race.Now(250, 0.01, 0.04))):
            ended, _ = rule.decide(scores, decision)
            wrong[name] += np.argmax(ended) != np.argmax(scores.mean(axis=-1))
    assert wrong["before"] > 10
    assert wrong["now"] <= 2


def test_importance_is_unbiased():
    density = np.linspace(1, 3, 10)
    density /= density.sum()
    drawn = [race._timesteps("importance", (300, 800), number, density) for number in range(400)]
    timesteps, weights = (np.concatenate(part) for part in zip(*drawn, strict=True))
    assert timesteps.min() >= 300
    assert timesteps.max() < 800
    assert weights.mean() == pytest.approx(1, abs=0.01)
    assert (weights * timesteps).mean() == pytest.approx(549.5, rel=0.01)


@pytest.mark.slow  # compiles the renderer for one scene
def test_classes_are_different_and_images_show_one_of_them():
    examples = list(race_classes.task(20, 3).load(None, None))
    assert len(examples) == 3
    for example in examples:
        assert len(set(example.texts)) == 20
        assert example.images[0].shape == (64, 64, 3)
    # Another scene of the same class has the same caption, whichever of its objects is on the left.
    scenes = list(itertools.islice(race_classes._scenes("evaluation"), 64))
    for text, _ in scenes:
        first, second = text.removeprefix("A ").removesuffix(".").split(" and a ")
        assert first < second


def test_a_schedule_by_hand():
    # The best two of four are kept after one sample, which misses the one that is best on the whole.
    errors = np.array([[1.0, 9, 9], [2, 2, 2], [3, 0, 0], [4, 4, 4]])
    assert race_classes.by_schedule(errors, [(2, 1)]) == (1, 4 * 1 + 2 * 2)
    assert race_classes.by_schedule(errors, [(3, 1)]) == (2, 4 * 1 + 3 * 2)
    # Rounds that would keep all, or take more samples than there are.
    assert race_classes.by_schedule(errors, [(4, 1), (2, 9)]) == (2, 4 * 3)


@pytest.mark.slow
def test_classes_run(tiny_pipeline, single_device, tmp_path, capsys):
    output = tmp_path / "figures.json"
    words = ["--model", str(tiny_pipeline), "--images", "2", "--classes", "6", "--budget", "24"]
    words += ["--workdir", str(tmp_path / "runs")]
    race_classes.main([*words, "--output", str(output)])
    figures = json.loads(output.read_text())
    assert figures["fixed"]["passes"] == 2 * 6 * 24
    table = capsys.readouterr().out
    for name, of in figures["rules"].items():
        assert of["passes"] <= figures["fixed"]["passes"]
        assert of["answers"]["same"] <= of["answers"]["of"] == 2
        assert of.get("computed_passes", 0) == 0
        assert f"| {name} |" in table
    assert set(figures["rules"]) == {
        *(f"race, rare_share {share}" for share in race_classes.SHARES),
        *(f"schedule, {name}" for name in race_classes.SCHEDULES),
    }
