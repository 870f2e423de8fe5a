"""Images by a pipeline's own loop: the same ones as diffusers' with torch, in parts, on devices, in runs."""

import functools
from unittest import mock

import diffusers
import jax
import numpy as np
import pytest
import torch

import winobench
from tests import launching
from tests.contrib.torch_pipelines import comparison
from tests.contrib.torch_pipelines.comparison import difference
from tests.contrib.torch_pipelines.test_families import TOLERANCE
from tests.contrib.torch_pipelines.tiny.pipelines import pix_art_sigma_pipeline, sana_pipeline
from tests.expectations import raises
from winobench.contrib.torch_pipelines.autoencoders import encoder_of
from winobench.contrib.torch_pipelines.families import family_of
from winobench.contrib.torch_pipelines.pipeline import TorchPipeline
from winobench.diffusion import generation

TEXTS = ["a dog to the left of a cat", "two birds", ""]
STEPS = 3
# Of each way to pack latents, to guide, and to scale what an autoencoder is given.
FAMILIES_TRIED = (
    *("SanaPipeline", "QwenImagePipeline", "ChromaPipeline", "Flux2Pipeline"),
    *("LatentConsistencyModelPipeline", "StableDiffusionXLPipeline"),
)
_TRIED = comparison.cases(FAMILIES_TRIED)
# A number that the network takes, a second prediction, and none of them.
_WITHOUT_GUIDANCE = comparison.cases(
    ("Flux2Pipeline", "LatentConsistencyModelPipeline", "QwenImagePipeline", "SanaPipeline")
)


def _of_diffusers(pipe, maker, noise, guidance, texts):
    """The input of its autoencoder, scaled as in training, and images."""
    family = family_of(type(pipe).__name__)
    none = family.call.get(family.guidance, 1.0)
    keywords = {family.guidance: none, family.embedded or family.guidance: guidance}
    if guidance > none and family.guidance == "true_cfg_scale" and family.embedded is None:
        keywords["negative_prompt"] = [""] * len(texts)
    seeds = np.asarray(jax.random.key_data(generation.image_keys(0, None, len(TEXTS))[1]))[: len(texts)]
    keywords["generator"] = [torch.Generator().manual_seed(int(high) << 32 | int(low)) for high, low in seeds]
    _, decoded, images = comparison.run_of_diffusers(pipe, maker, texts, noise, **keywords)
    vae = getattr(pipe, family.autoencoder)
    return encoder_of(type(vae).__name__, family).scale(vae, decoded).numpy(), images


@pytest.mark.parametrize(
    ("name", "maker", "guidance"),
    [
        *(pytest.param(*case.values, 4.0, id=f"{case.id}-4", marks=case.marks) for case in _TRIED),
        *(pytest.param(*case.values, 1.0, id=f"{case.id}-1", marks=pytest.mark.slow) for case in _WITHOUT_GUIDANCE),
    ],
)
def test_equals_diffusers(name, maker, guidance):
    pipe, size = maker.make(), maker.IMAGE_SIZE
    texts = TEXTS if size < 1024 else TEXTS[:2]
    pipeline = TorchPipeline.from_diffusers(maker.make())
    draw = functools.partial(
        pipeline.generate, texts, num_steps=STEPS, guidance_scale=guidance, image_size=size, batch_size=2
    )
    if not pipeline.family.generates:
        with raises("unsupported-option", type(pipe).__name__):
            draw()
        return
    noise = np.random.default_rng(0).standard_normal((len(texts), *pipeline.latent_shape(size)), np.float32)
    rows = torch.from_numpy(np.moveaxis(noise, -1, 1).copy())
    with torch.no_grad():
        wanted, pictures = _of_diffusers(pipe, maker, rows, guidance, texts)
    latents = draw(latents=noise, return_latents=True)
    assert difference(np.moveaxis(latents, -1, 1), wanted) <= pipeline.family.rounding
    images = draw(latents=noise)
    assert images.dtype == np.uint8
    assert np.abs(images - pictures.reshape(images.shape) * 255).max() <= 1
    if type(pipe).__name__ == "LatentConsistencyModelPipeline":  # whose last step gives more than latents
        with raises("unsupported-option", type(pipe).__name__):
            pipeline.decode_latents(latents)
        return
    assert np.abs(pipeline.decode_latents(latents, batch_size=2).astype(int) - images).max() <= 1


def _random(scheduler="EulerAncestralDiscreteScheduler"):
    pipe = pix_art_sigma_pipeline.make()
    pipe.scheduler = getattr(diffusers, scheduler).from_config(pipe.scheduler.config)
    pipeline = TorchPipeline.from_diffusers(pipe)
    return pipeline, functools.partial(pipeline.generate, num_steps=STEPS, image_size=32, return_latents=True)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["EulerAncestralDiscreteScheduler", "LCMScheduler"])
def test_an_image_depends_on_its_seed_and_number_alone(scheduler):
    _, draw = _random(scheduler)
    together = draw(TEXTS, seed=3, batch_size=2)
    assert difference(draw(TEXTS[1:], seed=[3, 3], numbers=[1, 2], batch_size=1), together[1:]) <= TOLERANCE
    assert difference(draw(TEXTS, seed=3, batch_size=2), together) <= 0
    # Its first noise and that of its steps.
    noise = np.asarray(generation._drawn(generation.image_keys(3, None, 3)[0], together.shape[1:]))
    assert difference(draw(TEXTS, seed=3, batch_size=2, latents=noise), together) <= TOLERANCE
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


def test_latents_of_another_form_are_not_decoded():
    with raises("wrong-shape", "7"):
        TorchPipeline.from_diffusers(sana_pipeline.make()).decode_latents(np.zeros((1, 8, 8, 7), np.float32))


@pytest.mark.slow
def test_a_run_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path / "cache"))
    sana_pipeline.make().save_pretrained(tmp_path / "sana")
    (tmp_path / "prompts.txt").write_text("\n".join(TEXTS[:2]))
    words = ["--model=sana", "--prompts=prompts.txt", "--num_steps=2", "--image_size=32"]
    words += ["--guidance_scale=3", "--batch_size=1"]
    status, _, err = launching.launch("launch.generate", *words, "--workdir=run", cwd=tmp_path)
    assert status == 0, err
    run = winobench.read_images(tmp_path / "run")
    settings = run.models[0].settings
    assert settings["sampler"] == "DPMSolverMultistepScheduler"
    assert settings["scheduler"]["flow_shift"] == 3.0
    pipeline = winobench.load_pipeline(tmp_path / "sana")
    assert pipeline.fingerprint == run.models[0].fingerprint
    wanted = pipeline.generate(TEXTS[:2], num_steps=2, guidance_scale=3.0, image_size=32, batch_size=2)
    for record, image in zip(run.records, wanted, strict=True):
        assert np.abs(run.image(record).astype(int) - image).max() <= 1
    with mock.patch.object(TorchPipeline, "from_pretrained", side_effect=AssertionError):  # before it is loaded
        status, _, err = launching.launch("launch.generate", *words, "--sampler=euler", cwd=tmp_path)
    assert (status, "sampler is 'euler', but this pipeline" in err) == (2, True), err
