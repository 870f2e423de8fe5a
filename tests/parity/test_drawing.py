"""Drawing with a small random Stable Diffusion 1 and 3 against diffusers' pipelines: samplers, and image to image."""

import diffusers
import numpy as np
import pytest
import torch

from tests import tiny_sd3
from winobench.diffusion import families

# What is quick of this, tests/parity/test_samplers.py and tests/diffusion/test_drawing.py have.
pytestmark = pytest.mark.slow

TEXTS = ["a red cube", "a photo of the blue ball"]
NAMED = {
    "ddim": diffusers.DDIMScheduler,
    "euler": diffusers.EulerDiscreteScheduler,
    "dpm_solver": diffusers.DPMSolverMultistepScheduler,
}


def random(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def channels_last(tensor):
    return tensor.numpy().transpose(0, 2, 3, 1)


@pytest.fixture(scope="module")
def stable_diffusion(tiny_pipeline):
    theirs = diffusers.StableDiffusionPipeline.from_pretrained(tiny_pipeline)
    return families.load_pipeline(tiny_pipeline), theirs


@pytest.fixture(scope="module")
def stable_diffusion_3(tmp_path_factory):
    folder = tiny_sd3.write(tmp_path_factory.mktemp("sd3"))
    return families.load_pipeline(folder), diffusers.StableDiffusion3Pipeline.from_pretrained(folder)


def options_of(steps):
    return {"num_inference_steps": steps, "guidance_scale": 3.0, "negative_prompt": [""] * 2, "output_type": "latent"}


def compare(ours, expected, **options):
    found = ours.generate(TEXTS, guidance_scale=3.0, batch_size=2, return_latents=True, **options)
    expected = channels_last(expected)
    # Float32 on both sides; a random network's errors grow from step to step.
    np.testing.assert_allclose(found, expected, atol=2e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMED)
def test_samplers(stable_diffusion, name):
    ours, theirs = stable_diffusion
    given = {"clip_sample": False} if name == "ddim" else {}
    theirs.scheduler = NAMED[name].from_config(theirs.scheduler.config, **given)
    noise = random((2, 4, 8, 8), 0)
    with torch.inference_mode():
        expected = theirs(TEXTS, latents=noise, **options_of(5)).images
    compare(ours, expected, num_steps=5, sampler=name, latents=channels_last(noise))


@pytest.mark.parametrize("name", NAMED)
def test_image_to_image(stable_diffusion, name):
    """Steps 2 to 5 of 5, from the latents of images and given noise."""
    ours, theirs = stable_diffusion
    given = {"clip_sample": False} if name == "ddim" else {}
    parts = {**theirs.components, "scheduler": NAMED[name].from_config(theirs.scheduler.config, **given)}
    theirs = diffusers.StableDiffusionImg2ImgPipeline(**parts, requires_safety_checker=False)
    image = random((2, 4, 8, 8), 1)
    generator = torch.Generator().manual_seed(2)
    with torch.inference_mode():
        expected = theirs(TEXTS, image=image, strength=0.7, generator=generator, **options_of(5)).images
    noise, image = channels_last(random((2, 4, 8, 8), 2)), channels_last(image)
    compare(ours, expected, num_steps=5, sampler=name, image=image, strength=0.7, latents=noise)


def test_image_to_image_of_a_flow(stable_diffusion_3):
    ours, theirs = stable_diffusion_3
    theirs = diffusers.StableDiffusion3Img2ImgPipeline(**theirs.components)
    image = random((2, 16, 8, 8), 1)
    generator = torch.Generator().manual_seed(2)
    size = {"height": tiny_sd3.TINY_IMAGE_SIZE, "width": tiny_sd3.TINY_IMAGE_SIZE}
    with torch.inference_mode():
        expected = theirs(TEXTS, image=image, strength=0.7, generator=generator, **size, **options_of(5)).images
    noise, image = channels_last(random((2, 16, 8, 8), 2)), channels_last(image)
    compare(ours, expected, num_steps=5, image=image, strength=0.7, latents=noise)
