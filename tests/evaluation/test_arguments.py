"""What `evaluate` is called with: refused in one sentence before anything is planned, and recorded as it is used."""

import json

import numpy as np
import pytest

from tests.evaluation import fakes
from winobench import memory
from winobench.errors import InputError
from winobench.evaluation.evaluate import evaluate

TASKS = (fakes.text_task(),)


class WithRange(fakes.FakeScorer):
    """A scorer that draws its timesteps from a part of the schedule's."""

    def fingerprint(self):
        return {**super().fingerprint(), "timestep_range": [300, 800]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scorer": object()}, "is not a scorer: it has no method score"),
        ({"scorer": None}, "None is not a scorer"),
        ({"tasks": 5}, "tasks is 5, but it must be a list of names or tasks, or 'ready'"),
        ({"tasks": [None]}, r"tasks\[0\] is None, but it must be a task's name or a task"),
        ({"tasks": [5, "clevr"]}, r"tasks\[0\] is 5"),
        ({"tasks": {"clevr": 1}}, "tasks is "),
        ({"tasks": b"clevr"}, "tasks is b'clevr'"),
        ({"limit": "3"}, "limit is '3', but it must be a whole number from 1 to 1,000,000,000, or none"),
        ({"limit": True}, "limit is True"),
        ({"limit": 0}, "limit is 0"),
        ({"limit": 2.5}, "limit is 2.5"),
        ({"num_samples": 10**12}, "num_samples is 1000000000000, but it must be a whole number from 1 to 1,000,000"),
        ({"num_samples": "3"}, "num_samples is '3'"),
        ({"num_bias_samples": float("nan")}, "num_samples is nan"),
        ({"seed": -1}, "the seed is -1"),
        ({"seed": True}, "the seed is True"),
        ({"alpha": float("nan")}, "alpha is nan, but it must be a finite number above 0 and below 0.5"),
        ({"alpha": "0.1"}, "alpha is '0.1'"),
        ({"normalize": None}, "normalize is None, but it must be one of auto, none"),
        ({"timesteps": "sometimes"}, "timesteps is 'sometimes', but it must be one of uniform"),
        ({"timesteps": [1.5]}, "timesteps is .*, but it must be a list of"),
        ({"timesteps": []}, "timesteps is"),
        ({"timesteps": [True]}, "timesteps is"),
        ({"timesteps": 5}, "timesteps is 5"),
        ({"timesteps": [1, 2], "num_samples": 3}, "num_samples is 3"),
        ({"workdir": 5}, "a path is a text"),
    ],
)
def test_what_is_refused(tmp_path, arguments, message):
    scorer = arguments.get("scorer", WithRange()) if "scorer" in arguments else WithRange()
    chosen = {"tasks": TASKS, "workdir": tmp_path / "run", "progress": False, **arguments}
    chosen.pop("scorer", None)
    with pytest.raises(InputError, match=message) as caught:
        evaluate(scorer, **chosen)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("timesteps", "recorded"),
    [("uniform", [300, 800]), ("even", [300, 800]), ("published", None), ([10, 900], None), (np.array([7]), None)],
)
def test_a_range_that_has_no_part_in_the_timesteps_is_not_recorded(tmp_path, timesteps, recorded):
    scorer = WithRange()
    evaluate(scorer, TASKS, tmp_path / "run", timesteps=timesteps, limit=2, progress=False)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["identity"]["scorer"]["timestep_range"] == recorded


def test_a_table_of_errors_that_cannot_fit_is_told_before_it_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "of_host", lambda: 10**8)
    with pytest.raises(InputError, match=r"errors of \d+ pairs x 1,000,000 samples needs about .* GB of memory, but"):
        evaluate(fakes.FakeScorer(), TASKS, tmp_path / "run", num_samples=10**6, progress=False)
    assert not (tmp_path / "run").exists()
