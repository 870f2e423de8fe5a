"""The flow with a model whose timesteps are noise levels: recorded, resumed, on any number of devices, in a race."""

import jax
import numpy as np
import pytest

from tests import tiny_sd3
from tests.evaluation import fakes
from tests.evaluation.fakes import Counting, Stopping, config, recorded
from tests.evaluation.test_with_scorer import _images
from winobench import parallel
from winobench.evaluation import evaluate
from winobench.runs import reading
from winobench.scorers.diffusion_itm import DiffusionITM


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_sd3.write(tmp_path_factory.mktemp("flow") / "sd3")


@pytest.fixture
def tasks(monkeypatch):
    monkeypatch.setattr(fakes, "image", _images)
    return [fakes.text_task(), fakes.image_task(), fakes.square_task()]


def scorer_on(folder, count):
    mesh = parallel.make_mesh(jax.devices("cpu")[:count])
    return DiffusionITM.from_pretrained(folder, batch_size=8 // count, mesh=mesh)


@pytest.fixture(scope="module")
def scorer(folder):
    return scorer_on(folder, 1)


def timesteps_of(workdir):
    (samples,) = config(workdir)["rounds"]
    return samples["timesteps"]


@pytest.mark.slow
def test_levels_are_recorded_and_a_stopped_run_goes_on(scorer, tasks, tmp_path):
    arguments = {"num_samples": 4, "progress": False, "reuse": False}
    whole = evaluate.evaluate(scorer, tasks, tmp_path / "whole", **arguments)
    levels = timesteps_of(tmp_path / "whole")
    assert levels == scorer.choose_timesteps(4).tolist()
    assert all(0 < level <= 1 for level in levels)
    with pytest.raises(KeyboardInterrupt):
        evaluate.evaluate(Stopping(scorer, 2), tasks, tmp_path / "stopped", **arguments)
    before = len(recorded(tmp_path / "stopped"))
    assert 0 < before < len(recorded(tmp_path / "whole"))
    again = evaluate.evaluate(scorer, tasks, tmp_path / "stopped", **arguments)
    assert recorded(tmp_path / "stopped") == recorded(tmp_path / "whole")
    assert again["tasks"] == whole["tasks"]
    counting = Counting(scorer)
    evaluate.evaluate(counting, tasks, tmp_path / "whole", **arguments)
    assert counting.scored == 0


def test_listed_levels_are_recorded_and_read(scorer, tasks, tmp_path):
    listed = [0.07, 0.5, 0.993]
    evaluate.evaluate(Counting(scorer), tasks, tmp_path, timesteps=listed, progress=False)
    np.testing.assert_array_equal(timesteps_of(tmp_path), np.float32(listed).tolist())
    (run,) = reading.read_runs([tmp_path])
    record = next(iter(run.tasks.values()))
    np.testing.assert_array_equal(record.timesteps, np.float32(listed))


@pytest.mark.slow
def test_eight_devices_find_the_same(folder, scorer, tasks, tmp_path):
    arguments = {"num_samples": 4, "progress": False, "reuse": False}
    evaluate.evaluate(scorer, tasks, tmp_path / "one", **arguments)
    evaluate.evaluate(scorer_on(folder, 8), tasks, tmp_path / "eight", **arguments)
    one, eight = recorded(tmp_path / "one"), recorded(tmp_path / "eight")
    assert one.keys() == eight.keys()
    np.testing.assert_allclose([eight[key] for key in one], list(one.values()), rtol=1e-5)


@pytest.mark.slow
def test_a_race_learns_levels(scorer, tasks, tmp_path):
    evaluate.evaluate(scorer, tasks, tmp_path, mode="race", num_samples=64, progress=False)
    for samples in config(tmp_path)["rounds"]:
        assert all(0 < level <= 1 for level in samples["timesteps"])
        assert len(set(samples["timesteps"])) > 16
