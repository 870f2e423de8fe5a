"""Every pipeline of diffusers that takes a text is scored, or refused with a reason."""

import inspect

import diffusers
import pytest
from diffusers.pipelines.auto_pipeline import AUTO_TEXT2IMAGE_PIPELINES_MAPPING

from tests import tiny_flux
from tests.changed_files import edited
from tests.expectations import raises
from winobench.base.errors import InputError
from winobench.contrib.torch_pipelines import refusals
from winobench.contrib.torch_pipelines.families import family_of, names
from winobench.diffusion import families


def _with_texts():
    found = {kind.__name__ for kind in AUTO_TEXT2IMAGE_PIPELINES_MAPPING.values()}
    for name in dir(diffusers):
        kind = getattr(diffusers, name)
        if isinstance(kind, type) and name.endswith(("Pipeline", "PipelineSafe")):
            # Where a package is missing, diffusers has an empty class, whose call is not known.
            is_empty = "dummy" in kind.__module__
            if is_empty or "prompt" in inspect.signature(kind.__call__).parameters:
                found.add(name)
    return found


def test_every_class_is_scored_or_refused():
    unknown = {name for name in _with_texts() if name not in names() and refusals.reason(name) is None}
    assert unknown == set()


def test_scored_and_refused_classes_are_of_diffusers():
    assert {*names()} & refusals.REFUSED.keys() == set()
    assert {name for name in (*names(), *refusals.REFUSED) if not hasattr(diffusers, name)} == set()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("FluxImg2ImgPipeline", "needs an image with the text"),
        ("StableDiffusionXLControlNetInpaintPipeline", "controls the layout"),
        ("WanPipeline", "makes video"),
        ("StableAudioPipeline", "makes sound"),
        ("Flux3ModularPipeline", "modular blocks"),
        ("OnnxStableDiffusionPipeline", "ONNX"),
        ("StableCascadeCombinedPipeline", "embedding of an image"),
        ("StableDiffusionSAGPipeline", "write StableDiffusionPipeline"),
        ("MyPipeline", "not among the classes"),
    ],
)
def test_reasons(name, reason):
    with pytest.raises(InputError, match=reason) as error:
        family_of(name)
    assert name in str(error.value)


def test_a_folder_of_a_refused_class_with_the_parts_of_a_family(tmp_path):
    folder = tiny_flux.write(tmp_path / "model")
    edited("model_index.json", _class_name="FluxControlPipeline")(folder)
    for read in (families.read_description, families.load_pipeline):
        with raises("wrong-kind-of-model", "model_index.json", "FluxControlPipeline", "image"):
            read(folder)
