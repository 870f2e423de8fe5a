"""Folders that a native family reads, run by torch's code: the scorer's errors are those of the native family."""

import functools
import pathlib

import diffusers
import numpy as np
import pytest

from tests import tiny_flux, tiny_sd3, tiny_sdxl
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline
from winobench.diffusion import families
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red ball to the left of a cube", "", "and the photo of a blue ball"]
IMAGES = list(np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3)).astype(np.uint8))
WRITERS = {
    "sdxl": tiny_sdxl.write,
    "sd3": tiny_sd3.write,
    "flux-dev": tiny_flux.write,
    "flux-schnell": functools.partial(tiny_flux.write, dev=False),
}


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))


def compare(folder: pathlib.Path):
    native = families.load_pipeline(str(folder))
    assert not isinstance(native, TorchPipeline)
    by_torch = TorchPipeline.from_diffusers(diffusers.DiffusionPipeline.from_pretrained(folder, local_files_only=True))
    wanted, got = (
        DiffusionITM(pipeline, image_size=32, batch_size=9).errors(IMAGES, TEXTS, num_samples=3)
        for pipeline in (native, by_torch)
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
def test_stable_diffusion_equals_the_native_family(tiny_pipeline):
    compare(tiny_pipeline)


@pytest.mark.slow
@pytest.mark.usefixtures("single_device")
@pytest.mark.parametrize("kind", WRITERS)
def test_equals_the_native_family(kind, tmp_path):
    compare(WRITERS[kind](tmp_path / "model"))


def test_timesteps_of_a_folder_are_read_by_both_routes():
    native, torch = (families.read_description("clevr-tiny", backend=backend) for backend in ("native", "torch"))
    assert native.timestep_range is not None
    assert torch.timestep_range == native.timestep_range
    assert torch.schedule.training == native.schedule.training
