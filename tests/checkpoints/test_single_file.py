import functools
import types

import numpy as np
import pytest
import safetensors.torch
import torch
from diffusers.loaders import single_file_utils

from tests import original_layouts, tiny_flux, tiny_sd3, tiny_sdxl
from winobench import DiffusionITM, checkpoints


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture(autouse=True)
def _any_width(monkeypatch):
    """diffusers states how wide FLUX.1 is where it takes tensors apart; the tiny one is as wide in proportion."""

    class Torch(types.SimpleNamespace):
        def __getattr__(self, name):
            return getattr(torch, name)

        @staticmethod
        def split(tensor, sizes, dim):
            return torch.split(tensor, [size * len(tensor) // sum(sizes) for size in sizes], dim=dim)

    monkeypatch.setattr(single_file_utils, "torch", Torch())


WRITERS = {
    "sdxl": tiny_sdxl.write,
    "sd3": functools.partial(tiny_sd3.write, as_published=True),
    "flux": tiny_flux.write,
}


@pytest.fixture(scope="module")
def folder_of(tiny_pipeline, tmp_path_factory):
    folders = {"sd15": tiny_pipeline}

    def find(name):
        if name not in folders:
            folders[name] = WRITERS[name](tmp_path_factory.mktemp(name))
        return folders[name]

    return find


def write(path, tensors):
    safetensors.torch.save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()}, path)
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def fingerprint(pipeline):
    return {name: checkpoints.weights_sha256(network) for name, network in pipeline.networks.items()}


@pytest.mark.parametrize("name", ["sd15", "sdxl", "sd3", "flux"])
def test_a_file_is_its_folder(name, folder_of, path):
    folder = folder_of(name)
    write(path, getattr(original_layouts, f"{name}_file")(folder))
    scorers = [DiffusionITM.from_pretrained(source) for source in (str(folder), f"{folder}+{path}")]
    assert fingerprint(scorers[0].pipeline) == fingerprint(scorers[1].pipeline)
    assert scorers[0].fingerprint() == scorers[1].fingerprint()
    image = np.random.default_rng(0).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    one, two = (scorer.score([image], ["a red cube", "a blue ball"], num_samples=2) for scorer in scorers)
    np.testing.assert_array_equal(one, two)
