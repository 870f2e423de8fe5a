"""The scorer against a plain loop over the torch networks, from pixels and texts to scores."""

import json
import shutil

import diffusers
import jax
import numpy as np
import pytest
import torch

from tests.parity.harness import relative_error
from winobench import parallel
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube left of the blue ball", "a photo of the right", ""]
TIMESTEPS = [3, 250, 600, 990]


def make_images(size):
    """Smooth random pictures, uint8 [size, size, 3]: noise alone would look the same to the autoencoder."""
    random = np.random.default_rng(0)
    coarse = random.integers(0, 256, (3, 4, 4, 3)).repeat(size // 4, axis=1).repeat(size // 4, axis=2)
    return list((0.8 * coarse + 0.2 * random.integers(0, 256, coarse.shape)).astype(np.uint8))


@pytest.fixture(scope="module", params=["epsilon", "v_prediction"])
def folder(request, tiny_pipeline, tmp_path_factory):
    if request.param == "epsilon":
        return tiny_pipeline
    folder = tmp_path_factory.mktemp("v") / "pipeline"
    shutil.copytree(tiny_pipeline, folder)
    path = folder / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"prediction_type": "v_prediction"}))
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """What the torch loop makes of it: noise [samples, h, w, c] and differences [image, text, sample, c, h, w]."""
    return torch_loop(folder)


@torch.inference_mode()
def torch_loop(folder, images=None, texts=TEXTS, timesteps=TIMESTEPS):
    pipeline = diffusers.StableDiffusionPipeline.from_pretrained(folder, safety_checker=None, dtype=torch.float32)
    scheduler = diffusers.DDPMScheduler.from_config(pipeline.scheduler.config)
    images = np.stack(images or make_images(pipeline.unet.config.sample_size * 4)).transpose(0, 3, 1, 2)
    latents = pipeline.vae.encode(torch.tensor(images / 127.5 - 1, dtype=torch.float32)).latent_dist.mean
    latents = latents * pipeline.vae.config.scaling_factor
    tokens = pipeline.tokenizer(list(texts), padding="max_length", truncation=True, return_tensors="pt")
    states = pipeline.text_encoder(tokens.input_ids)[0]
    noise = torch.tensor(np.random.default_rng(1).standard_normal((len(timesteps), *latents.shape[1:]), np.float32))
    difference = torch.zeros(len(latents), len(states), *noise.shape)
    to_epsilon = torch.zeros_like(difference)
    for i, z in enumerate(latents):
        for j, state in enumerate(states):
            for s, (eps, t) in enumerate(zip(noise, torch.tensor(timesteps), strict=True)):
                noisy = scheduler.add_noise(z[None], eps[None], t[None])
                prediction = pipeline.unet(noisy, t, state[None]).sample
                if scheduler.config.prediction_type == "epsilon":
                    difference[i, j, s] = to_epsilon[i, j, s] = eps - prediction[0]
                else:
                    difference[i, j, s] = (scheduler.get_velocity(z[None], eps[None], t[None]) - prediction)[0]
                    kept = scheduler.alphas_cumprod[t]
                    to_epsilon[i, j, s] = eps - (kept.sqrt() * prediction + (1 - kept).sqrt() * noisy)[0]
    return noise.numpy().transpose(0, 2, 3, 1), difference.double().numpy(), to_epsilon.double().numpy()


def squared(difference):
    return (difference**2).sum(axis=(3, 4, 5))


def one_device(folder, *options, **keywords):
    mesh = parallel.make_mesh(jax.devices()[:1])
    return DiffusionITM.from_pretrained(folder, *options, **keywords, batch_size=4, mesh=mesh)


@pytest.mark.quick(1)
@pytest.mark.parametrize("target", ["own", "epsilon"])
def test_errors_and_scores(folder, expected, target):
    noise, own, epsilon = expected
    wanted = squared(own if target == "own" else epsilon)
    scorer = one_device(folder, error="squared_l2", target=target)
    images = make_images(scorer.image_size)
    errors = scorer.errors(images, TEXTS, noise=noise, timesteps=TIMESTEPS)
    np.testing.assert_allclose(errors, wanted, rtol=1e-4)

    plain = scorer.score(images, TEXTS, noise=noise, timesteps=TIMESTEPS, normalize="none")
    np.testing.assert_allclose(plain, -wanted.mean(axis=-1), rtol=1e-4)
    normalised = scorer.score(images, TEXTS[:2], noise=noise, timesteps=TIMESTEPS, normalize="unconditional")
    difference = -(wanted[:, :2] - wanted[:, 2:]).mean(axis=-1)
    # Relative to the largest score: one score may be as small as the rounding of the errors that it is the difference
    # of. The text must matter, or this would compare nothing with nothing.
    assert np.abs(difference).max() > 1e-3 * wanted.mean()
    assert relative_error(normalised, difference) < 1e-4


@pytest.mark.slow
def test_bfloat16(tiny_pipeline):
    noise, difference, _ = torch_loop(tiny_pipeline)
    scorer = one_device(tiny_pipeline, "bfloat16")
    errors = scorer.errors(make_images(scorer.image_size), TEXTS, noise=noise, timesteps=TIMESTEPS)
    assert errors.dtype == np.float32
    dtypes = [network.dtype for network in (scorer.pipeline.unet, scorer.pipeline.vae, scorer.pipeline.text_encoder)]
    assert dtypes == [np.dtype("bfloat16"), np.float32, np.float32]
    # Activations of 8 bits in every layer; the sum over 256 values evens most of it out.
    np.testing.assert_allclose(errors, squared(difference), rtol=3e-2)
