"""The flow with the real scorer on a small pipeline, whose timesteps are numbers of steps or noise levels."""

import functools
import itertools

import jax
import numpy as np
import pytest

from tests.evaluation import fakes
from tests.evaluation.fakes import Counting, config, examples, recorded
from tests.expectations import raises
from tests.scorers import fakes as fake_models
from winobench import parallel
from winobench.data import images
from winobench.diffusion.flow_schedule import FlowSchedule
from winobench.evaluation import evaluate, runner
from winobench.runs import reading
from winobench.scorers import diffusion_itm
from winobench.scorers.diffusion_itm import DiffusionITM


@pytest.fixture
def tasks(monkeypatch):
    """Fake tasks on images whose content matters."""
    monkeypatch.setattr(fakes, "image", lambda number, size=4: fake_models.image(number))
    return [fakes.text_task(), fakes.image_task(), fakes.square_task()]


def scorer_of(**fields):
    return DiffusionITM(fake_models.Pipeline(**fields), batch_size=8, mesh=parallel.make_mesh(jax.devices("cpu")[:1]))


@pytest.fixture(scope="module")
def scorer():
    return scorer_of()


@pytest.fixture(scope="module")
def flow():
    return scorer_of(schedule=FlowSchedule())


def test_parts_of_a_large_plan_encode_an_image_once(scorer, tasks, tmp_path, monkeypatch):
    """Tolerance: 1e-6 of an error, as other parts make other batches."""
    arguments = {"num_samples": 3, "limit": 3, "progress": False, "reuse": False}
    evaluate.evaluate(scorer, tasks, tmp_path / "whole", **arguments)
    loaded, load = [], images.load_image
    monkeypatch.setattr(images, "load_image", lambda image, *size: loaded.append(id(image)) or load(image, *size))
    monkeypatch.setattr(runner, "_TRIPLES_A_CALL", 7)
    evaluate.evaluate(scorer, tasks, tmp_path / "run", **arguments)
    assert len(loaded) == len(set(loaded)) > 3
    assert recorded(tmp_path / "run") == pytest.approx(recorded(tmp_path / "whole"), rel=1e-6)


def test_the_numbers_are_those_of_score(scorer, tasks, tmp_path):
    """Scores of an evaluation against `DiffusionITM.score`, one example at a time. Tolerance: 1e-5 of an error."""
    evaluate.evaluate(scorer, tasks, tmp_path / "run", num_samples=4, limit=2, seed=5, progress=False)
    for task in tasks:
        rows = examples(tmp_path / "run", task.name)
        for example, row in zip(task.load(None, 2), rows, strict=True):
            normalize = "unconditional" if task.images_compete else "none"
            expected = scorer.score([*example.images], [*example.texts], num_samples=4, seed=5, normalize=normalize)
            np.testing.assert_allclose(row["scores"], expected, atol=1e-5 * 50)


def test_another_scoring_version_is_another_run_and_other_devices_are_not(scorer, tasks, tmp_path, monkeypatch):
    arguments = {"num_samples": 2, "limit": 2, "progress": False}
    evaluate.evaluate(Counting(scorer), tasks, tmp_path, **arguments)
    several = Counting(DiffusionITM(fake_models.Pipeline(), batch_size=3))
    assert evaluate.evaluate(several, tasks, tmp_path, **arguments)["computed_passes"] == 0
    monkeypatch.setattr(diffusion_itm, "SCORING_VERSION", diffusion_itm.SCORING_VERSION + 1)
    with raises("another-run", "scorer.scoring_version"):
        evaluate.evaluate(several, tasks, tmp_path, **arguments)


def two_batches(scorer, *arguments, **named):
    yield from itertools.islice(scorer.iter_errors(*arguments, **named), 2)
    raise KeyboardInterrupt


def test_levels_are_recorded_and_a_stopped_run_goes_on(flow, tasks, tmp_path):
    arguments = {"num_samples": 4, "progress": False, "reuse": False}
    whole = evaluate.evaluate(flow, tasks, tmp_path / "whole", **arguments)
    (samples,) = config(tmp_path / "whole")["rounds"]
    assert samples["timesteps"] == flow.choose_timesteps(4).tolist()
    assert all(0 < level <= 1 for level in samples["timesteps"])
    stopping = Counting(flow)
    stopping.iter_errors = functools.partial(two_batches, flow)
    with pytest.raises(KeyboardInterrupt):
        evaluate.evaluate(stopping, tasks, tmp_path / "stopped", **arguments)
    before = len(recorded(tmp_path / "stopped"))
    assert 0 < before < len(recorded(tmp_path / "whole"))
    again = evaluate.evaluate(flow, tasks, tmp_path / "stopped", **arguments)
    assert recorded(tmp_path / "stopped") == recorded(tmp_path / "whole")
    assert again["tasks"] == whole["tasks"]
    assert evaluate.evaluate(Counting(flow), tasks, tmp_path / "whole", **arguments)["computed_passes"] == 0


def test_antithetic_samples_are_errors_of_their_own_and_a_stopped_run_goes_on(scorer, tasks, tmp_path):
    chosen = scorer.choose_timesteps(4, 0, "antithetic").tolist()
    evaluate.evaluate(scorer, tasks, tmp_path / "listed", timesteps=chosen, progress=False)
    arguments = {"timesteps": "antithetic", "progress": False}
    stopping = Counting(scorer)
    stopping.iter_errors = functools.partial(two_batches, scorer)
    with pytest.raises(KeyboardInterrupt):
        evaluate.evaluate(stopping, tasks, tmp_path / "run", num_samples=4, **arguments)
    before = len(recorded(tmp_path / "run"))
    found = evaluate.evaluate(scorer, tasks, tmp_path / "run", num_samples=4, **arguments)
    # None of the others with these timesteps, whose noise is independent.
    assert (before, found["computed_passes"]) == (16, found["passes"] - 16)
    more = evaluate.evaluate(scorer, tasks, tmp_path / "more", num_samples=6, **arguments)
    assert more["computed_passes"] == found["passes"] / 2
    record = next(iter(reading.read_runs([tmp_path / "run"])[0].tasks.values()))
    assert (record.num_samples, record.num_units) == (4, 2)


def test_listed_levels_are_recorded_and_read(flow, tasks, tmp_path):
    listed = [0.07, 0.5, 0.993]
    evaluate.evaluate(Counting(flow), tasks, tmp_path, timesteps=listed, progress=False)
    (samples,) = config(tmp_path)["rounds"]
    np.testing.assert_array_equal(samples["timesteps"], np.float32(listed).tolist())
    (run,) = reading.read_runs([tmp_path])
    np.testing.assert_array_equal(next(iter(run.tasks.values())).timesteps, np.float32(listed))


def test_a_race_learns_levels(flow, tasks, tmp_path):
    evaluate.evaluate(flow, tasks, tmp_path, mode="race", num_samples=64, progress=False)
    for samples in config(tmp_path)["rounds"]:
        assert all(0 < level <= 1 for level in samples["timesteps"])
        assert len(set(samples["timesteps"])) > 16
