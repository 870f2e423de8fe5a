"""What `evaluate` is called with: refused in one sentence before anything is planned, and recorded as it is used."""

import numpy as np
import pytest

from tests.evaluation import fakes
from tests.expectations import raises
from winobench.base import memory
from winobench.evaluation.evaluate import evaluate

TASKS = (fakes.text_task(),)


class WithoutSamples:
    def score(self, images, texts):
        raise AssertionError


class WithRange(fakes.FakeScorer):
    def fingerprint(self):
        return {**super().fingerprint(), "timestep_range": [300, 800]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scorer": object()}, ("wrong-type", "score")),
        ({"tasks": 5}, ("wrong-type", "tasks", "5", "'ready'")),
        ({"tasks": [5, "clevr"]}, ("wrong-type", "tasks[0]", "5")),
        ({"tasks": b"clevr"}, ("wrong-type", "tasks")),
        ({"limit": True}, ("bad-value", "limit", "True")),
        ({"limit": 2.5}, ("bad-value", "limit", "2.5")),
        ({"num_samples": 10**12}, ("bad-value", "num_samples", "1000000000000", "1,000,000")),
        ({"num_bias_samples": float("nan")}, ("bad-value", "num_bias_samples", "nan")),
        ({"num_sample": 3}, ("unknown-field", "'num_sample'", "num_samples")),
        ({"seed": -1}, ("bad-value", "seed", "-1")),
        ({"alpha": float("nan")}, ("bad-value", "alpha", "nan", "0.5")),
        ({"mode": "race", "rare_share": 0.6}, ("bad-value", "rare_share")),
        ({"mode": "sprint"}, ("unknown-name", "'sprint'")),
        ({"mode": "race", "scorer": WithoutSamples()}, ("option-of-others", "mode='race'")),
        ({"timesteps": "importance"}, ("option-of-others", "timesteps='importance'")),
        ({"timesteps": "sometimes"}, ("bad-value", "timesteps", "'sometimes'")),
        ({"timesteps": [1.5]}, ("bad-value", "timesteps")),
        ({"timesteps": 5}, ("bad-value", "timesteps", "5")),
        ({"timesteps": [1, 2], "num_samples": 3}, ("two-numbers-of-samples", "num_samples", "3")),
        ({"workdir": 5}, ("wrong-type", "path", "5")),
        ({"tasks": []}, ("nothing-named",)),
        ({"tasks": "nonsense"}, ("unknown-name", "nonsense")),
        ({"tasks": [fakes.text_task(ready=lambda data_dir: "on the shelf.")]}, ("data-not-ready", "'words'", "shelf")),
        ({"timestep_weights": "cosmap"}, ("option-of-others", "cosmap", "uniform")),
        ({"timestep_weights": "cosmop"}, ("bad-timestep-weights", "'cosmop'", "cosmap")),
        ({"timestep_weights": {"edges": [], "weights": [1]}, "mode": "race"}, ("option-of-others", "race", "uniform")),
        ({"reduce_dtype": "float16", "mode": "race"}, ("option-of-others", "race", "reduce_dtype", "float32")),
        ({"config": {"a": b"x"}}, ("not-json", "config")),
        ({"model": 5}, ("bad-value", "5")),
        ({"reduce_dtype": "float8"}, ("bad-value", "float8", "reduce_dtype", "bfloat16")),
    ],
)
def test_what_is_refused(tmp_path, arguments, message):
    given = {"scorer": WithRange(), "tasks": TASKS, "workdir": tmp_path / "run", "progress": False, **arguments}
    with raises(*message):
        evaluate(**given)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("timesteps", "kept"), [("uniform", [300, 800]), ("published", None), (np.array([7]), None)])
def test_a_range_that_has_no_part_in_the_timesteps_is_not_recorded(tmp_path, timesteps, kept):
    evaluate(WithRange(), TASKS, tmp_path / "run", timesteps=timesteps, limit=2, progress=False)
    assert fakes.config(tmp_path / "run")["identity"]["scorer"]["timestep_range"] == kept


def test_a_table_of_errors_that_cannot_fit_is_told_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "host_bytes", lambda: 10**8)
    with raises("out-of-memory", "1,000,000", "GB"):
        evaluate(fakes.FakeScorer(), TASKS, tmp_path / "run", num_samples=10**6, progress=False)
    assert not (tmp_path / "run").exists()
