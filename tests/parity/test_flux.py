"""FLUX.1-dev and -schnell against torch diffusers on the same folder: conditions, whole scores, pictures, files."""

import diffusers
import jax
import numpy as np
import pytest
import torch
from diffusers.pipelines.flux.pipeline_flux import FluxPipeline

from tests import tiny_flux
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity.test_scorer import pictures
from tests.parity.torch_copy import relative_error
from winobench import parallel
from winobench.base.errors import InputError
from winobench.diffusion import families
from winobench.diffusion.flux import Flux
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube left of the blue ball", "a photo", ""]
LEVELS = [0.031, 0.5, 0.988]
KINDS = ("dev", "schnell")


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory):
    return tiny_flux.write(tmp_path_factory.mktemp("flux"), dev=kind == "dev")


@pytest.fixture(scope="module")
def theirs(folder):
    return diffusers.FluxPipeline.from_pretrained(folder)


@pytest.fixture(scope="module")
def ours(folder):
    pipeline = families.load_pipeline(folder)
    assert type(pipeline) is Flux
    return pipeline


@torch.inference_mode()
def torch_errors(pipeline, noise, guidance=0.0, levels=LEVELS):
    """Squared errors of the velocity [image, text, sample] by a plain loop over packed latents."""
    images = torch.tensor(np.stack(pictures(SIZE)).transpose(0, 3, 1, 2) / 127.5 - 1, dtype=torch.float32)
    config = pipeline.vae.config
    latents = (pipeline.vae.encode(images).latent_dist.mean - config.shift_factor) * config.scaling_factor
    states, pooled, text_ids = pipeline.encode_prompt(TEXTS, TEXTS, device="cpu")
    image_ids = FluxPipeline._prepare_latent_image_ids(1, 4, 4, "cpu", torch.float32)
    guidance = torch.tensor([guidance]) if pipeline.transformer.config.guidance_embeds else None
    noise = torch.tensor(noise.transpose(0, 3, 1, 2))
    errors = np.zeros((len(latents), len(TEXTS), len(noise)))
    for i, z in enumerate(latents):
        for j in range(len(TEXTS)):
            for s, (eps, level) in enumerate(zip(noise, levels, strict=True)):
                noisy, target = (
                    FluxPipeline._pack_latents(part[None], 1, 16, 8, 8)
                    for part in ((1 - level) * z + level * eps, eps - z)
                )
                prediction = pipeline.transformer(
                    noisy,
                    encoder_hidden_states=states[j : j + 1],
                    pooled_projections=pooled[j : j + 1],
                    timestep=torch.tensor([level]),
                    img_ids=image_ids,
                    txt_ids=text_ids,
                    guidance=guidance,
                ).sample
                errors[i, j, s] = float(((target - prediction).double() ** 2).sum())
    return errors


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(1).standard_normal((len(LEVELS), 8, 8, 16), np.float32)


def one_device(pipeline, **keywords):
    mesh = parallel.make_mesh(jax.devices()[:1])
    return DiffusionITM(pipeline, batch_size=4, mesh=mesh, image_size=SIZE, **keywords)


@pytest.mark.quick(1)
def test_conditions(ours, theirs, kind):
    with torch.inference_mode():
        states, pooled, _ = theirs.encode_prompt(TEXTS, TEXTS, device="cpu")
    got = ours.encode_texts(TEXTS)
    assert relative_error(got["states"], states.numpy()) < 1e-5
    assert relative_error(got["pooled"], pooled.numpy()) < 1e-5
    assert ("guidance" in got) == (kind == "dev")
    short = ours.replace(text_tokens=256)
    assert short.encode_texts(["a photo"])["states"].shape == (1, 256, 24)
    assert short.fingerprint != ours.fingerprint


@pytest.mark.quick(1)
def test_errors(ours, theirs, noise):
    got = one_device(ours).errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)
    np.testing.assert_allclose(got, torch_errors(theirs, noise), rtol=1e-4)


@pytest.mark.quick(1)
def test_a_strength_of_guidance(ours, theirs, noise, kind):
    told = ours.replace(guidance_embedding=3.5)
    assert told.fingerprint != ours.fingerprint
    got = one_device(told).errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)
    expected = torch_errors(theirs, noise, 3.5)
    np.testing.assert_allclose(got, expected, rtol=1e-4)
    # It matters to the one that is told of it.
    assert np.allclose(expected, torch_errors(theirs, noise), rtol=1e-3) == (kind == "schnell")


def test_levels(ours, kind):
    scorer = one_device(ours)
    published = scorer.choose_timesteps(30, timesteps="published")
    np.testing.assert_allclose(published, 1 - (12 + 33 * np.arange(30)[::-1]) / 1000, rtol=1e-6)
    # 4 x 4 positions of 4 to 64: a shift by 0.5 + 0.65 x 12 / 60 of dev's, and none of schnell's.
    drawn = scorer.choose_timesteps(5, timesteps="even")
    u = (np.array([100, 300, 500, 700, 900]) + 1) / 1000
    factor = np.exp(0.63)
    expected = factor / (factor + 1 / u - 1) if kind == "dev" else u
    np.testing.assert_allclose(drawn, expected, rtol=1e-5)


@pytest.mark.slow
def test_generation(ours, theirs):
    texts = ["a red cube", "a photo"]
    seed, shape = 3, (8, 8, 16)
    start = np.stack([jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), shape) for i in range(2)])
    packed = FluxPipeline._pack_latents(torch.tensor(start.transpose(0, 3, 1, 2)), 2, 16, 8, 8)
    with torch.inference_mode():
        expected = theirs(
            texts, height=SIZE, width=SIZE, latents=packed, num_inference_steps=5, guidance_scale=3.5, output_type="np"
        ).images
    got = ours.generate(texts, num_steps=5, guidance_scale=3.5, seed=seed, image_size=SIZE)
    assert np.abs(got / 255 - expected).max() < 2 / 255


@pytest.mark.quick(1)
def test_files_go_both_ways(ours, theirs, noise, tmp_path):
    ours.save_pretrained(tmp_path / "saved", dtype="float32")
    again = families.load_pipeline(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint
    torch_again = diffusers.FluxPipeline.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(torch_errors(torch_again, noise), torch_errors(theirs, noise), rtol=1e-5)


def test_sizes_and_settings_that_cannot_be_are_one_sentence(ours):
    assert ours.image_size == 512
    with pytest.raises(InputError, match=names("image_size", "36", "multiple of 8")):
        ours.check_image_size(36)
    with pytest.raises(InputError, match=names("guidance_embedding", "-1")):
        ours.replace(guidance_embedding=-1)
    with pytest.raises(InputError, match=names("text_tokens", "513")):
        ours.replace(text_tokens=513)
    with pytest.raises(InputError, match=names("Flux", "'zero_t5'", "guidance_embedding")):
        ours.replace(zero_t5=True)
