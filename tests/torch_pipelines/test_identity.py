"""What tells pipelines apart."""

import shutil

import diffusers

from tests.torch_pipelines.tiny import stable_diffusion_pipeline
from winobench.torch_pipelines.pipeline import TorchPipeline


def test_fingerprint_does_not_depend_on_the_folder(tmp_path):
    stable_diffusion_pipeline.make().save_pretrained(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    first, second = (
        TorchPipeline.from_diffusers(diffusers.DiffusionPipeline.from_pretrained(tmp_path / name)) for name in "ab"
    )
    assert first.fingerprint == second.fingerprint
    assert first.texts.identity == second.texts.identity
    assert first.network.program == second.network.program
