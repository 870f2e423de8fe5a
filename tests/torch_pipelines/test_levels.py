"""The noise levels of families that shift them, next to the times of diffusers' own run."""

import importlib

import diffusers
import numpy as np
import pytest
import torch

from winobench.base.errors import InputError
from winobench.torch_pipelines.pipeline import TorchPipeline

STEPS = 3
DYNAMIC = {"use_dynamic_shifting": True, "base_image_seq_len": 4, "max_image_seq_len": 64}
EULER, LCM = "FlowMatchEulerDiscreteScheduler", "FlowMatchLCMScheduler"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "scheduler", "options", "evenly", "config"),
    [
        # Where the pipeline passes levels of its own, they end with 1 / STEPS.
        ("chroma_pipeline", EULER, DYNAMIC, True, {}),
        ("ernie_image_pipeline", EULER, {"shift": 4.0}, True, {}),
        ("hi_dream_image_pipeline", EULER, DYNAMIC, False, {}),
        ("hi_dream_image_pipeline", LCM, {"shift": 6.0}, False, {}),
        ("hunyuan_image_pipeline", EULER, {"shift": 5.0}, True, {}),
        ("krea2_pipeline", EULER, DYNAMIC, True, {}),
        ("krea2_pipeline", EULER, DYNAMIC, True, {"is_distilled": True}),
        ("lumina2_pipeline", EULER, DYNAMIC, True, {}),
        ("lumina_pipeline", EULER, {"shift": 2.0}, False, {}),
        ("nucleus_mo_e_image_pipeline", EULER, DYNAMIC, True, {}),
        ("ovis_image_pipeline", EULER, DYNAMIC, True, {}),
    ],
)
def test_levels_are_those_of_the_pipeline(name, scheduler, options, evenly, config):
    maker = importlib.import_module(f"tests.torch_pipelines.tiny.{name}")
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


def test_a_mean_over_levels_is_refused():
    maker = importlib.import_module("tests.torch_pipelines.tiny.hunyuan_image_pipeline")
    pipe = maker.make()
    pipe.transformer.register_to_config(use_meanflow=True)
    with pytest.raises(InputError, match="use_meanflow"):
        TorchPipeline.from_diffusers(pipe)
