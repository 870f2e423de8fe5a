"""Drawing from images with a small random Stable Diffusion 1 and 3 against diffusers' pipelines."""

import diffusers
import numpy as np
import pytest
import torch

from tests.conftest import TINY_IMAGE_SIZE
from winobench.diffusion import families, flow_schedule

# What is quick of this, tests/parity/test_samplers.py and tests/diffusion/test_generation.py have.
pytestmark = pytest.mark.slow

TEXTS = ["a red cube", "a photo of the blue ball"]


def random(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def channels_last(tensor):
    return tensor.numpy().transpose(0, 2, 3, 1)


def compare(ours, theirs, channels, *, theirs_alone, **options):
    """Steps 2 to 5 of 5, from the latents of images and given noise."""
    image = random((2, channels, 8, 8), 1)
    arguments = {"num_inference_steps": 5, "negative_prompt": [""] * 2, "output_type": "latent", **theirs_alone}
    both = {"guidance_scale": 3.0, "strength": 0.7}
    with torch.inference_mode():
        expected = theirs(TEXTS, image=image, generator=torch.Generator().manual_seed(2), **both, **arguments).images
    noise, image = channels_last(random((2, channels, 8, 8), 2)), channels_last(image)
    options |= {"num_steps": 5, "batch_size": 2, "return_latents": True, "image": image, "latents": noise}
    result = ours.generate(TEXTS, **both, **options)
    expected = channels_last(expected)
    # Float32 on both sides; a random network's errors grow from step to step.
    np.testing.assert_allclose(result, expected, atol=2e-4 * np.abs(expected).max())


def test_image_to_image(tiny_pipeline):
    theirs = diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)
    scheduler = diffusers.DPMSolverMultistepScheduler.from_config(theirs.scheduler.config)
    parts = {**theirs.components, "scheduler": scheduler, "requires_safety_checker": False}
    theirs = diffusers.StableDiffusionImg2ImgPipeline(**parts)
    compare(families.load_pipeline(tiny_pipeline), theirs, 4, theirs_alone={}, sampler="dpm_solver")


def test_a_negative_prompt(tiny_pipeline):
    """Within 1/255 of diffusers' images, which are far from those without one."""
    theirs, ours = (
        diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline),
        families.load_pipeline(tiny_pipeline),
    )
    theirs.scheduler = diffusers.DPMSolverMultistepScheduler.from_config(theirs.scheduler.config)
    noise, both, negative = random((2, 4, 8, 8), 1), {"guidance_scale": 5.0}, "a dog, blurry"
    options = {"num_inference_steps": 4, "negative_prompt": [negative] * 2, "output_type": "np", "latents": noise}
    with torch.inference_mode():
        expected = theirs(TEXTS, **both, **options).images
    options = {"num_steps": 4, "latents": channels_last(noise), "batch_size": 2, "sampler": "dpm_solver", **both}
    assert np.abs(ours.generate(TEXTS, negative_prompt=negative, **options) / 255 - expected).max() < 1.01 / 255
    assert np.abs(ours.generate(TEXTS, **options) / 255 - expected).max() > 2 / 255


def test_image_to_image_of_a_flow(whole):
    case, size = whole("sd3"), {"height": TINY_IMAGE_SIZE, "width": TINY_IMAGE_SIZE}
    compare(case.ours, diffusers.StableDiffusion3Img2ImgPipeline(**case.theirs.components), 16, theirs_alone=size)


@pytest.mark.parametrize(
    "options",
    [
        {"shift_terminal": 0.1},
        {"use_karras_sigmas": True},
        {"use_exponential_sigmas": True},
        {"shift_terminal": 0.02, "use_beta_sigmas": True},
    ],
    ids=str,
)
def test_options_of_a_flow_scheduler(whole, options):
    """Images, of which each value may be rounded to its neighbour."""
    case, size = whole("sd3"), TINY_IMAGE_SIZE
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler.from_config({**case.theirs.scheduler.config, **options})
    theirs = diffusers.StableDiffusion3Pipeline(**{**case.theirs.components, "scheduler": scheduler})
    schedule = flow_schedule.FlowSchedule.from_config(
        {**dict(scheduler.config), "_class_name": "FlowMatchEulerDiscreteScheduler"}
    )
    ours = case.ours.replace(schedule=schedule)
    noise, arguments = random((2, 16, 8, 8), 2), {"guidance_scale": 3.0}
    with torch.inference_mode():
        expected = theirs(
            TEXTS,
            latents=noise,
            num_inference_steps=5,
            height=size,
            width=size,
            output_type="np",
            negative_prompt=[""] * 2,
            **arguments,
        ).images
    drawn = {
        pipeline: pipeline.generate(TEXTS, num_steps=5, latents=channels_last(noise), batch_size=2, **arguments)
        for pipeline in (case.ours, ours)
    }
    assert np.abs(drawn[ours].astype(float) - np.round(255 * expected)).max() <= 1
    assert np.abs(drawn[case.ours].astype(float) - drawn[ours]).max() > 1
