"""The noise levels of families that shift them, next to the times of diffusers' own run."""

import diffusers
import numpy as np
import pytest
import torch

from tests.torch_pipelines.tiny.pipelines import chroma_pipeline, krea2_pipeline, lumina_pipeline, ovis_image_pipeline
from winobench.torch_pipelines.pipeline import TorchPipeline

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
