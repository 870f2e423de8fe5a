"""Images by a pipeline's own loop: the same ones as diffusers' with torch, in parts, on devices, in runs."""

import functools
from unittest import mock

import diffusers
import numpy as np
import pytest
import torch

from tests.expectations import raises
from tests.generation import fakes
from tests.torch_pipelines import comparison
from tests.torch_pipelines.comparison import assert_close as _close
from tests.torch_pipelines.tiny import pix_art_sigma_pipeline, qwen_image_pipeline, sana_pipeline
from winobench.diffusion import drawing
from winobench.generation.generate import Generator, Settings, draw_pictures
from winobench.torch_pipelines.families import FAMILIES
from winobench.torch_pipelines.pipeline import TorchPipeline

TEXTS = ["a dog to the left of a cat", "two birds", ""]
STEPS = 3
# Of each way to pack latents, to guide, and to scale what an autoencoder is given.
FAMILIES_TRIED = (
    *comparison.QUICK,
    *("ChromaPipeline", "Flux2Pipeline", "HunyuanDiTPipeline", "Kandinsky3Pipeline", "Kandinsky5T2IPipeline"),
    *("LatentConsistencyModelPipeline", "Lumina2Pipeline", "StableDiffusionXLPipeline"),
)


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
    return comparison.unpacked(pipe, family, drawn, size), images


@pytest.mark.parametrize("guidance", [1.0, 4.0])
@pytest.mark.parametrize(("name", "maker"), comparison.cases(FAMILIES_TRIED))
def test_equals_diffusers(name, maker, guidance):
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


def _random(scheduler="EulerAncestralDiscreteScheduler"):
    pipe = pix_art_sigma_pipeline.make()
    pipe.scheduler = getattr(diffusers, scheduler).from_config(pipe.scheduler.config)
    pipeline = TorchPipeline.from_diffusers(pipe)
    return pipeline, functools.partial(pipeline.generate, num_steps=STEPS, image_size=32, return_latents=True)


@pytest.mark.parametrize("scheduler", ["EulerAncestralDiscreteScheduler", "LCMScheduler"])
def test_an_image_depends_on_its_seed_and_number_alone(scheduler):
    _, draw = _random(scheduler)
    together = draw(TEXTS, seed=3, batch_size=2)
    _close(draw(TEXTS[1:], seed=[3, 3], numbers=[1, 2], batch_size=1), together[1:])
    _close(draw(TEXTS, seed=3, batch_size=2), together, 0)
    # Its first noise and that of its steps.
    noise = np.asarray(drawing._drawn(drawing._keys(3, None, 3)[0], together.shape[1:]))
    _close(draw(TEXTS, seed=3, batch_size=2, latents=noise), together)
    assert np.abs(draw(TEXTS, seed=4, batch_size=2, latents=noise) - together).max() > 0.1
    assert np.abs(draw(TEXTS, seed=4, batch_size=2) - together).max() > 0.1
    assert np.abs(draw([TEXTS[0]] * 2, seed=4, batch_size=2, latents=noise[[0, 0]]).std(axis=0)).max() > 0.1


def test_what_a_run_cannot_be():
    pipeline, draw = _random()
    with raises("unsupported-option", "sampler", "'ddim'"):
        draw(TEXTS, sampler="ddim")
    with raises("unsupported-option", "image", "PixArtSigmaPipeline"):
        draw(TEXTS, image=np.zeros((3, 32, 32, 3), np.uint8))
    with raises("missing-images", "strength"):
        draw(TEXTS, strength=0.5)
    kind = type(pipeline.diffusers.scheduler)
    step = kind.step
    with (
        mock.patch.object(kind, "step", lambda *given, generator, **more: step(*given, **more)),
        raises("unsupported-option", "random", "scheduler_config.json"),
    ):
        draw(TEXTS)


@pytest.mark.parametrize("maker", [sana_pipeline, qwen_image_pipeline])
def test_latents_are_decoded(maker):
    pipeline = TorchPipeline.from_diffusers(maker.make())
    draw = functools.partial(pipeline.generate, num_steps=2, image_size=maker.IMAGE_SIZE, guidance_scale=1)
    images = pipeline.decode_latents(draw(TEXTS, return_latents=True), batch_size=2)
    assert images.shape == (3, maker.IMAGE_SIZE, maker.IMAGE_SIZE, 3)
    assert np.abs(images.astype(int) - draw(TEXTS)).max() <= 1
    with raises("wrong-shape", "7"):
        pipeline.decode_latents(np.zeros((1, 8, 8, 7), np.float32))


def test_a_run_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))
    sana_pipeline.make().save_pretrained(tmp_path / "sana")
    load = functools.partial(TorchPipeline.from_pretrained, str(tmp_path / "sana"))
    settings = Settings(num_steps=2, guidance_scale=3.0, image_size=32)
    run = functools.partial(draw_pictures, [Generator("sana", "sana", load)], fakes.PROMPTS, progress=False)
    pictures = run(tmp_path / "run", settings=settings, batch_size=1)
    recorded = pictures.records[0].settings if hasattr(pictures.records[0], "settings") else pictures.models[0].settings
    assert recorded["sampler"] == "FlowMatchEulerDiscreteScheduler"
    assert recorded["scheduler"]["shift"] == 3.0
    wanted = load().generate(
        [prompt.text for prompt in fakes.PROMPTS], num_steps=2, guidance_scale=3.0, image_size=32, batch_size=3
    )
    for record, image in zip(pictures.records, wanted, strict=True):
        assert np.abs(pictures.image(record).astype(int) - image).max() <= 1
    with raises("unsupported-option", "sampler"):
        run(tmp_path / "other", settings=Settings(num_steps=2, sampler="euler", image_size=32))
