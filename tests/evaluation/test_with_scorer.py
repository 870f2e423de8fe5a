"""The flow with the real scorer on a small random pipeline."""

import json
import shutil

import jax
import numpy as np
import pytest
import safetensors.numpy

from tests.evaluation import fakes
from tests.evaluation.fakes import Counting, examples, recorded
from tests.expectations import raises
from winobench import parallel
from winobench.data import images
from winobench.evaluation import evaluate, runner
from winobench.scorers import diffusion_itm
from winobench.scorers.diffusion_itm import DiffusionITM

_PATTERN = np.random.default_rng(0).integers(0, 256, (20, 32, 32, 3), dtype=np.uint8)


def _images(number, size=4):
    return _PATTERN[number if number < 10 else number - 90]


@pytest.fixture
def tasks(monkeypatch):
    """Fake tasks on images whose content matters."""
    monkeypatch.setattr(fakes, "image", _images)
    return [fakes.text_task(), fakes.image_task(), fakes.square_task()]


@pytest.fixture(scope="module")
def scorer(tiny_pipeline):
    mesh = parallel.make_mesh(jax.devices("cpu")[:1])
    return DiffusionITM.from_pretrained(tiny_pipeline, batch_size=8, mesh=mesh)


@pytest.mark.slow
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
            expected = scorer.score(
                list(example.images), list(example.texts), num_samples=4, seed=5, normalize=normalize
            )
            np.testing.assert_allclose(row["scores"], expected, atol=1e-5 * 300)


def _other_weights(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (path,) = (copy / "unet").glob("*.safetensors")
    tensors = safetensors.numpy.load_file(path)
    name = sorted(tensors)[0]
    tensors[name] = tensors[name] * np.float32(1.001)
    safetensors.numpy.save_file(tensors, path)
    return copy


def _other_schedule(folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = copy / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "beta_end": 0.013}))
    return copy


def _same(folder, tmp_path):
    return folder


_CHANGES = {
    "weights": (_other_weights, {}),
    "schedule": (_other_schedule, {}),
    "dtype": (_same, {"dtype": "bfloat16"}),
    "error": (_same, {"error": "l2"}),
    "target": (_same, {"target": "epsilon"}),
    "image size": (_same, {"image_size": 64}),
    "range of timesteps": (_same, {"timestep_range": (100, 900)}),
    "scoring version": (_same, {}),
}


_COMPILED_ANEW = {"dtype", "image size", "target", "error"}  # for which a quick test compares fingerprints


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "change", [pytest.param(name, marks=[pytest.mark.slow] * (name in _COMPILED_ANEW)) for name in _CHANGES]
)
def test_what_can_change_an_error_is_another_run(scorer, tiny_pipeline, tasks, tmp_path, monkeypatch, change):
    arguments = {"num_samples": 2, "limit": 2, "progress": False}
    monkeypatch.chdir(tmp_path)
    evaluate.evaluate(Counting(scorer), tasks, "first", **arguments)
    folder, options = _CHANGES[change]
    if change == "scoring version":
        monkeypatch.setattr(diffusion_itm, "SCORING_VERSION", diffusion_itm.SCORING_VERSION + 1)
    other = Counting(DiffusionITM.from_pretrained(folder(tiny_pipeline, tmp_path), **options))
    with raises("another-run"):
        evaluate.evaluate(other, tasks, "first", **arguments)
    assert other.scored == 0
    evaluate.evaluate(other, tasks, "first", overwrite=True, **arguments)
    assert other.scored == (2 * 6 + 2 * 3) * 2


def test_batch_size_and_devices_are_not_part_of_a_run(scorer, tiny_pipeline):
    assert DiffusionITM.from_pretrained(tiny_pipeline, batch_size=3).fingerprint() == scorer.fingerprint()
