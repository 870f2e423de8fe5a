"""Options are declared once: a new field is on the command line, in the help, the record and the schema."""

import dataclasses
import json
import typing

import numpy as np
import pytest

from launch import configuration
from tests.evaluation import fakes
from tests.expectations import raises
from winobench.base import options
from winobench.evaluation.evaluate import evaluate
from winobench.runs import schema, settings


@dataclasses.dataclass(frozen=True)
class Sampling(settings.Sampling):
    brightness: float = options.option(
        1.0, options.number(0, 2), "how bright", unless_default=True, only_for=(settings.FIXED,)
    )


_CONFIG = """
import dataclasses
from configs import forms_of, gdbench
from tests.evaluation.test_settings import Sampling
from winobench.base import options

LAUNCHER = "eval"

@dataclasses.dataclass(frozen=True)
class SETTINGS(gdbench.Settings):
    sampling: Sampling = options.group(Sampling)

get_config = forms_of("mine", SETTINGS, {"standard": {"sampling.num_samples": 2}})
"""


def _identity(folder, **given):
    given = {"tasks": [fakes.text_task()], "limit": 2, "num_samples": 2, "progress": False, **given}
    evaluate(fakes.FakeScorer(), workdir=folder, **given)
    return json.loads((folder / "config.json").read_text())["identity"]


def test_a_new_option_is_one_field(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(_CONFIG)
    config = configuration.load(str(path), [("sampling.brightness", "0.5")])
    lines = configuration._help(str(path), config, "eval", "usage").splitlines()
    (at,) = [number for number, line in enumerate(lines) if "sampling.brightness" in line]
    assert " ".join(lines[at : at + 2]).split() == ["--sampling.brightness", "0.5", "how", "bright"]
    assert configuration.plain(config)["sampling"]["brightness"] == 0.5
    with raises("bad-value", "--sampling.brightness", "3.0"):
        configuration.load(str(path), [("sampling.brightness", "3")])
    with raises("option-of-others", "--sampling.brightness"):
        configuration.load(str(path), [("sampling.brightness", "0.5"), ("sampling.mode", "race")])

    given = config.sampling
    assert _identity(tmp_path / "new", sampling=given)["sampling"]["brightness"] == 0.5
    assert "brightness" not in _identity(tmp_path / "usual", sampling=Sampling())["sampling"]
    assert _identity(tmp_path / "by_name", sampling=Sampling(), brightness=np.float32(0.5)) == (
        _identity(tmp_path / "again", sampling=given)
    )
    with raises("bad-value", "brightness", "3"):
        _identity(tmp_path / "wrong", sampling=Sampling(brightness=3))
    with raises("option-of-others", "brightness=0.5"):
        _identity(tmp_path / "race", sampling=given, mode="race")

    recorded = typing.TypedDict("Recorded", settings.recorded_types(Sampling))
    described = schema.json_schema(recorded, "a file")["$defs"]["Recorded"]["properties"]
    assert described["brightness"] == {"type": "number"}
    schema.check(settings.described(settings.checked(given)), recorded, "it", strict=True)


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({"num_samples": None, "timesteps": np.array([3, 7]), "seed": np.uint32(5)}, {"seed": 5, "timesteps": [3, 7]}),
        (
            {"mode": "race", "num_bias_samples": 3},
            {"num_bias_samples": 3, "timesteps": "importance", "mode": "race", "alpha": 0.01, "rare_share": 0.04},
        ),
        (
            {"reduce_dtype": "float16", "timestep_weights": {"edges": [500], "weights": [1, 2]}},
            {"timestep_weights": {"edges": [500.0], "weights": [1.0, 2.0]}, "reduce_dtype": "float16"},
        ),
    ],
)
def test_the_recorded_identity_is_that_of_earlier_versions(tmp_path, given, changes):
    usual = {"num_samples": 2, "num_bias_samples": 20, "seed": 0, "timesteps": "uniform"}
    found = _identity(tmp_path / "run", **given)
    assert list(found) == ["limit", "normalize", "sampling", "scorer", "tasks"]
    assert (found["limit"], found["normalize"]) == (2, "auto")
    assert json.dumps(found["sampling"]) == json.dumps(usual | changes)
