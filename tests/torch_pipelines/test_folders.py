"""Every class on the list loads from a saved folder, in one process with all others."""

import gc
import random

import pytest

from tests.torch_pipelines.comparison import makers
from winobench.torch_pipelines import loading
from winobench.torch_pipelines.families import FAMILIES
from winobench.torch_pipelines.pipeline import TorchPipeline


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("saved")
    for name, maker in makers():
        maker.make().save_pretrained(place / name)
        gc.collect()
    return place


@pytest.mark.slow
@pytest.mark.parametrize("order", [sorted, lambda names: random.Random(0).sample(names, len(names))])
def test_every_class_loads_from_a_folder(folders, order):
    for name in order(list(FAMILIES)):
        pipeline = TorchPipeline.from_diffusers(loading.load(folders / name, "float32"))
        assert pipeline.diffusers_class == name
        assert TorchPipeline.read_description(folders / name).schedule == pipeline.schedule
        gc.collect()
