"""Errors do not depend, to the bit, on what was recorded before; on the number of devices, in the last bits at most."""

import dataclasses
from unittest import mock

import jax
import numpy as np
import pytest

from tests.evaluation import fakes
from tests.evaluation.fakes import recorded
from winobench import parallel
from winobench.engine import sharing
from winobench.evaluation import evaluate
from winobench.runs import error_parts
from winobench.scorers.diffusion_itm import DiffusionITM


@pytest.fixture(scope="module")
def scorers():
    """Number of devices -> the embedded model, in which texts of one image and sample share work."""
    one, two = (
        DiffusionITM.from_pretrained("clevr-tiny", batch_size=8, mesh=parallel.make_mesh(jax.devices()[:count]))
        for count in (1, 2)
    )
    assert one.pipeline.denoiser.shares_rows
    return {1: one, 2: two}


@pytest.fixture
def tasks(monkeypatch):
    """Images with four texts, with two and with one: work is shared by some of them."""
    monkeypatch.setattr(
        fakes,
        "image",
        lambda number, size=64: np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8),
    )
    return [fakes.text_task(), dataclasses.replace(fakes.image_task(), load=fakes.image_task(count=3).load)]


@mock.patch.object(sharing, "WORTH_A_PROGRAM", 0)
@pytest.mark.slow  # compiles four programs of the embedded model
def test_resumed_runs_are_the_same_bits(scorers, tasks, tmp_path, monkeypatch):
    monkeypatch.setattr(error_parts, "_SECONDS_BETWEEN_PARTS", 0.0)
    monkeypatch.setattr(error_parts, "_SHARE_BETWEEN_PARTS", 0.0)

    def run(devices, workdir):
        return evaluate.evaluate(scorers[devices], tasks, workdir, num_samples=3, limit=3, progress=False, reuse=False)

    workdir, rng = tmp_path / "run", np.random.default_rng(0)
    results = run(1, workdir)
    run(2, tmp_path / "on two")
    whole = {1: recorded(workdir), 2: recorded(tmp_path / "on two")}
    assert len(whole[1]) == results["passes"]
    # A program for two devices is another program: some processors round it otherwise.
    assert whole[2] == pytest.approx(whole[1], rel=1e-6)
    for devices in (1, 1, 2):
        parts = sorted((workdir / "errors").glob("part-*.parquet"))
        for part in rng.permutation(len(parts))[: max(1, 2 * len(parts) // 3)]:
            parts[part].unlink()
        again = run(devices, workdir)
        assert again["computed_passes"] > 0
        assert again["tasks"] == results["tasks"]
        if devices == 1:
            assert recorded(workdir) == whole[1]
        else:
            assert all(error in (whole[1][key], whole[2][key]) for key, error in recorded(workdir).items())
    # Also with single errors gone, as where another run has recorded others.
    images, texts = [fakes.image(number) for number in range(3)], ["a", "b", "c"]
    among = np.array([(image, text, sample) for image in range(3) for text in range(image + 1) for sample in range(4)])
    for devices in (1, 2):
        errors = {}
        for seed in range(3):
            some = rng.permutation(among)[: len(among) // (seed + 1)]
            for rows, values in scorers[devices].iter_errors(images, texts, some, num_samples=4, among=among):
                for triple, value in zip(some[rows].tolist(), values.tolist(), strict=True):
                    assert errors.setdefault(tuple(triple), value) == value
