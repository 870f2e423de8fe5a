"""Images by a pipeline's own loop: the same ones as diffusers' with torch, in parts, on devices, in runs."""

import functools

import jax
import numpy as np
import pytest
import torch

from tests.expectations import raises
from tests.torch_pipelines.test_families import _close, _makers, _unpacked
from winobench import parallel
from winobench.torch_pipelines.families import FAMILIES
from winobench.torch_pipelines.pipeline import TorchPipeline

TEXTS = ["a dog to the left of a cat", "two birds", ""]
STEPS = 3


def _of_diffusers(pipe, maker, noise, guidance):
    family = FAMILIES[type(pipe).__name__]
    keywords = {**family.call, **{name: value for name, value in maker.CALL.items() if name != family.guidance}}
    if guidance > 1:
        keywords |= {family.guidance: guidance}
        keywords |= {"negative_prompt": [""] * len(TEXTS)} if family.guidance == "true_cfg_scale" else {}
    else:
        keywords |= {family.guidance: family.call.get(family.guidance, 1.0)}
    size = maker.IMAGE_SIZE
    latents = noise if family.pack is None else family.pack(pipe, noise)
    keywords |= {"prompt": TEXTS, "latents": latents, "height": size, "width": size, "num_inference_steps": STEPS}
    pipe.set_progress_bar_config(disable=True)
    drawn = pipe(**keywords, output_type="latent", return_dict=False)[0]
    images = pipe(**keywords, output_type="np", return_dict=False)[0]
    return _unpacked(pipe, family, drawn, size), images


@pytest.mark.parametrize("guidance", [1.0, 4.0])
@pytest.mark.parametrize("maker", [*_makers()])
def test_equals_diffusers(maker, guidance):
    pipe, size = maker.make(), maker.IMAGE_SIZE
    pipeline = TorchPipeline.from_diffusers(maker.make())
    shape = pipeline.latent_shape(size)
    noise = np.random.default_rng(0).standard_normal((len(TEXTS), *shape), np.float32)
    wanted, pictures = _of_diffusers(pipe, maker, torch.from_numpy(np.moveaxis(noise, -1, 1).copy()), guidance)
    draw = functools.partial(
        pipeline.generate, num_steps=STEPS, guidance_scale=guidance, image_size=size, batch_size=2, latents=noise
    )
    _close(np.moveaxis(draw(TEXTS, return_latents=True), -1, 1), wanted)
    images = draw(TEXTS)
    assert images.dtype == np.uint8
    assert np.abs(images - pictures * 255).max() <= 0.51
