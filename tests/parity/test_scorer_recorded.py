"""The scorer against a recorded run of the published code: same small model, images, captions and noise."""

import json

import jax
import numpy as np
import pytest

from winobench import parallel
from winobench.scorers.diffusion_itm import DiffusionITM
from winobench.scorers.samples import choose_timesteps


@pytest.fixture(scope="module")
def run(reference_data):
    folder = reference_data / "reference_runs"
    arrays = dict(np.load(folder / "sd15_pndm.npz")) | dict(np.load(folder / "inputs.npz"))
    arrays["captions"] = json.loads((folder / "captions.json").read_text())
    arrays["images"] = [arrays[f"image{number}"] for number in range(3)]
    for name in ("noise", "noise_30"):
        arrays[name] = arrays[name].transpose(0, 2, 3, 1)
    return arrays


@pytest.fixture(scope="module")
def scorer(reference_data):
    return DiffusionITM.from_pretrained(
        reference_data / "reference_runs" / "sd15_tiny",
        error="l2",
        batch_size=16,
        mesh=parallel.make_mesh(jax.devices()[:1]),
    )


# The tolerances are those of the record's own description: distances of about 36, steps of float32 in two frameworks.
EACH, MEAN = 1e-3, 3e-4


@pytest.mark.slow
def test_distances(run, scorer):
    timesteps = choose_timesteps("published", 10)
    errors = scorer.errors(run["images"], run["captions"], timesteps=timesteps, noise=run["noise"])
    expected = run["dist_cond"]
    np.testing.assert_allclose(errors, expected, rtol=0, atol=EACH)
    np.testing.assert_allclose(errors.mean(axis=-1), expected.mean(axis=-1), rtol=0, atol=MEAN)


@pytest.mark.slow
def test_normalised_scores(run, scorer):
    options = {"timesteps": "published", "num_samples": 10, "noise": run["noise"]}
    scores = scorer.score(run["images"][:1], run["captions"], normalize="unconditional", **options)
    np.testing.assert_allclose(scores, -run["dist_unconditional"][:1].mean(axis=-1), rtol=0, atol=MEAN)


@pytest.mark.slow
@pytest.mark.parametrize(("requested", "name"), [(3, "n3"), (30, "n30")])
def test_other_numbers_of_samples(run, scorer, requested, name):
    times = run[f"timesteps_{name}"]
    np.testing.assert_array_equal(choose_timesteps("published", requested), times)
    # All captions, for which the program of `test_distances` is compiled.
    errors = scorer.errors(run["images"][:1], run["captions"], noise=run["noise_30"][: len(times)], timesteps=times)
    np.testing.assert_allclose(errors[0, 0], run[f"dist_cond_{name}"], rtol=0, atol=EACH)


def test_timesteps(reference_data):
    recorded = json.loads((reference_data / "reference_runs" / "timesteps.json").read_text())
    for requested, run in recorded.items():
        timesteps = choose_timesteps("published", int(requested))
        # The record holds all timesteps of the shorter runs only.
        if run["timesteps"] is not None:
            np.testing.assert_array_equal(timesteps, run["timesteps"])
        assert (len(timesteps), timesteps[0], timesteps[-1]) == (run["count"], run["first"], run["last"])
        np.testing.assert_array_equal(np.diff(timesteps), run["step"])
    assert len(recorded) > 20
