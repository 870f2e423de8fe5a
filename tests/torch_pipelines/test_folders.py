"""Every class on the list loads from a saved folder, in one process with all others."""

import gc
import random

import pytest

from tests.torch_pipelines.comparison import makers
from winobench.torch_pipelines import loading
from winobench.torch_pipelines.pipeline import TorchPipeline


def shuffled(names):
    return random.Random(0).sample(names, len(names))


def save(folder, made):
    for name, maker in made:
        maker.make().save_pretrained(folder / name)
        gc.collect()
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save(tmp_path_factory.mktemp("saved"), makers())


@pytest.mark.slow
@pytest.mark.parametrize("order", [sorted, shuffled])
def test_every_class_loads_from_a_folder(folder, order):
    for name in order([path.name for path in sorted(folder.iterdir())]):
        pipeline = TorchPipeline.from_diffusers(loading.load(folder / name, "float32"))
        assert pipeline.diffusers_class == name
        assert TorchPipeline.read_description(folder / name).schedule == pipeline.schedule
        gc.collect()
