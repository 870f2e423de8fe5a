"""Classes of diffusers that need changes: the checks of the folder above."""

import pytest

from tests import tiny_z_image
from tests.contrib.torch_pipelines import (
    comparison,
    test_devices,
    test_families,
    test_generation,
    test_lora_strengths,
    test_native,
)
from tests.contrib.torch_pipelines.classes import tiny
from tests.contrib.torch_pipelines.classes.tiny import (
    ernie_image_pipeline,
    hi_dream_image_pipeline,
    hunyuan_image_pipeline,
    ideogram4_pipeline,
    lumina2_pipeline,
    nucleus_mo_e_image_pipeline,
)
from tests.contrib.torch_pipelines.test_families import DYNAMIC, EULER
from winobench.base import extensions
from winobench.base.errors import InputError
from winobench.contrib.torch_pipelines import refusals
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline

pytestmark = pytest.mark.slow


def _each(*names):
    return pytest.mark.parametrize(("name", "maker"), comparison.cases(names or None, tiny))


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))


@_each()
def test_equals_diffusers(name, maker):
    test_families.test_equals_diffusers(name, maker)


@_each()
def test_a_long_text_is_cut_off(name, maker, caplog):
    test_families.test_a_long_text_is_cut_off(name, maker, caplog)


# One of each way to pack latents, to guide, and to scale the input of an autoencoder.
@_each("CogView4Pipeline", "HunyuanDiTPipeline", "Kandinsky3Pipeline", "Kandinsky5T2IPipeline", "Lumina2Pipeline")
def test_images_equal_those_of_diffusers(name, maker):
    test_generation.test_equals_diffusers(name, maker, 4.0)


@_each("CogView4Pipeline", "BriaFiboPipeline", "HunyuanImagePipeline")
def test_text_encoders_on_devices_equal_torch(name, maker):
    test_devices.test_text_encoders_on_devices_equal_torch(name, maker)


@pytest.mark.parametrize("form", test_lora_strengths.FORMS)
@pytest.mark.parametrize(("name", "maker"), test_lora_strengths.with_loader(package=tiny))
def test_every_layer_has_its_strength(name, maker, form, tmp_path):
    test_lora_strengths.test_every_layer_has_its_strength(name, maker, form, tmp_path)


def test_names_of_layers_that_only_diffusers_knows(tmp_path):
    names = "layers.0.attention.o", "layers.0.attention.to_out.0"
    test_lora_strengths.test_names_that_only_diffusers_knows(ideogram4_pipeline, *names, tmp_path)


@pytest.mark.usefixtures("single_device")
def test_z_image_equals_the_native_family(tmp_path):
    test_native.compare(tiny_z_image.write(tmp_path / "model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return test_families.save(tmp_path_factory.mktemp("saved"), [*comparison.makers(), *comparison.makers(tiny)])


def test_every_class_loads_from_a_folder_among_the_others(folder):
    test_families.test_every_class_loads_from_a_folder(folder, test_families.shuffled)


@pytest.mark.parametrize(
    ("maker", "scheduler", "options", "evenly"),
    [
        (ernie_image_pipeline, EULER, {"shift": 4.0}, True),
        (hi_dream_image_pipeline, EULER, DYNAMIC, False),
        (hi_dream_image_pipeline, "FlowMatchLCMScheduler", {"shift": 6.0}, False),
        (hunyuan_image_pipeline, EULER, {"shift": 5.0}, True),
        (lumina2_pipeline, EULER, DYNAMIC, True),
        (nucleus_mo_e_image_pipeline, EULER, DYNAMIC, True),
    ],
)
def test_levels_are_those_of_the_pipeline(maker, scheduler, options, evenly):
    test_families.test_levels_are_those_of_the_pipeline(maker, scheduler, options, evenly, {})


def test_a_mean_over_levels_is_refused():
    pipe = hunyuan_image_pipeline.make()
    pipe.transformer.register_to_config(use_meanflow=True)
    with pytest.raises(InputError, match="use_meanflow"):
        TorchPipeline.from_diffusers(pipe)


def test_every_class_is_tried_and_has_a_reason_without_its_entry_point():
    added = extensions.added(extensions.TORCH_FAMILIES)
    names = {name for name, value in added.items() if ".torch_pipelines.classes." in value}
    assert {name for name, _ in comparison.makers(tiny)} == names
    assert all("only with changes to its code" in refusals.reason(name) for name in names)
