"""Each checked pipeline class: equal to its own run in torch, with its levels, long texts cut off, and loaded."""

import random

import diffusers
import numpy as np
import pytest
import torch

from tests.contrib.torch_pipelines import comparison
from tests.contrib.torch_pipelines.comparison import cases, makers
from tests.contrib.torch_pipelines.tiny.pipelines import (
    chroma_pipeline,
    krea2_pipeline,
    lumina_pipeline,
    ovis_image_pipeline,
)
from winobench.contrib.torch_pipelines import loading
from winobench.contrib.torch_pipelines.families import FAMILIES, family_of
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline

# Of the root mean square of what diffusers computes. Timesteps are float32 numbers up to 1,000.
TOLERANCE, STEP_TOLERANCE = 1e-4, 2e-3


@pytest.mark.parametrize(("name", "maker"), cases())
def test_equals_diffusers(name, maker):
    found = comparison.compare(maker)
    allowed = {"prediction": family_of(name).rounding, "step": STEP_TOLERANCE, "latents": TOLERANCE}
    for what, most in {**allowed, "decoder": TOLERANCE}.items():
        assert found[what] <= most, what


def test_every_class_on_the_list_is_tried():
    assert {name for name, _ in makers()} == set(FAMILIES)


def shuffled(names):
    return random.Random(0).sample(names, len(names))


def save(folder, made):
    for name, maker in made:
        maker.make().save_pretrained(folder / name)
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


LONG = " ".join(["a dog to the left of a cat"] * 700)
# Their tokenizers state no overflow, or they cut states instead of tokens.
SILENT = ("KolorsPAGPipeline", "KolorsPipeline", "LongCatImagePipeline")


@pytest.mark.parametrize(("name", "maker"), cases())
def test_a_long_text_is_cut_off(name, maker, caplog):
    texts = TorchPipeline.from_diffusers(maker.make()).texts
    short, long, longer = (texts.encode_all([text]) for text in ("two birds", LONG, f"{LONG} and two birds"))
    for place, values in long.items():
        assert values.shape == short[place].shape
        torch.testing.assert_close(torch.tensor(values), torch.tensor(longer[place]))
    if name not in SILENT:
        assert [record for record in caplog.records if "truncated" in record.getMessage()]


STEPS = 3
DYNAMIC = {"use_dynamic_shifting": True, "base_image_seq_len": 4, "max_image_seq_len": 64}
EULER = "FlowMatchEulerDiscreteScheduler"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("maker", "scheduler", "options", "evenly", "config"),
    [
        # Where the pipeline passes levels of its own, they end with 1 / STEPS.
        (chroma_pipeline, EULER, DYNAMIC, True, {}),
        (krea2_pipeline, EULER, DYNAMIC, True, {}),
        (krea2_pipeline, EULER, DYNAMIC, True, {"is_distilled": True}),
        (lumina_pipeline, EULER, {"shift": 2.0}, False, {}),
        (ovis_image_pipeline, EULER, DYNAMIC, True, {}),
    ],
)
def test_levels_are_those_of_the_pipeline(maker, scheduler, options, evenly, config):
    pipe = maker.make()
    pipe.set_progress_bar_config(disable=True)
    pipe.scheduler = getattr(diffusers, scheduler)(**options)
    pipe.register_to_config(**config)
    size = {"height": maker.IMAGE_SIZE, "width": maker.IMAGE_SIZE}
    torch.manual_seed(0)
    pipe(prompt="a dog", num_inference_steps=STEPS, output_type="latent", **size, **maker.CALL)
    times = pipe.scheduler.timesteps
    schedule = TorchPipeline.from_diffusers(pipe).schedule_at(maker.IMAGE_SIZE)
    # A scheduler's own levels end with its lowest, which it has shifted before if its shift is always the same.
    lowest = 1 / 1000 if schedule.use_dynamic_shifting else schedule.noise_rates[0]
    levels = schedule.shifted(np.linspace(1, 1 / STEPS if evenly else lowest, STEPS))
    np.testing.assert_allclose(1000 * levels, times, rtol=1e-4)
