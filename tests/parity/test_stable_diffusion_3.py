"""Stable Diffusion 3.5 against torch diffusers on the same folder: conditions, whole scores, pictures, files."""

import json
import shutil

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests import tiny_sd3
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity.test_scorer import pictures
from tests.parity.torch_copy import from_nchw, relative_error
from winobench import parallel
from winobench.base.errors import InputError
from winobench.checkpoints import models
from winobench.diffusion import families
from winobench.diffusion.stable_diffusion_3 import StableDiffusion3
from winobench.models.t5_encoder import T5EncoderConfig, T5EncoderModel
from winobench.scorers import loading
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube left of the blue ball", "a photo", ""]
LEVELS = [0.07, 0.5, 0.993]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_sd3.write(tmp_path_factory.mktemp("sd3"))


@pytest.fixture(scope="module")
def theirs(folder):
    return diffusers.StableDiffusion3Pipeline.from_pretrained(folder)


@pytest.fixture(scope="module")
def ours(folder):
    pipeline = families.load_pipeline(folder)
    assert type(pipeline) is StableDiffusion3
    return pipeline


def encoded(pipeline, texts, text_tokens=256):
    """Torch's states and pooled texts."""
    texts = list(texts)
    states, _, pooled, _ = pipeline.encode_prompt(
        texts, texts, texts, device="cpu", do_classifier_free_guidance=False, max_sequence_length=text_tokens
    )
    return states, pooled


@torch.inference_mode()
def torch_errors(pipeline, noise, levels=LEVELS, text_tokens=256):
    """Squared errors of the velocity [image, text, sample] by a plain loop."""
    images = torch.tensor(np.stack(pictures(SIZE)).transpose(0, 3, 1, 2) / 127.5 - 1, dtype=torch.float32)
    config = pipeline.vae.config
    latents = (pipeline.vae.encode(images).latent_dist.mean - config.shift_factor) * config.scaling_factor
    states, pooled = encoded(pipeline, TEXTS, text_tokens)
    noise = torch.tensor(noise.transpose(0, 3, 1, 2))
    errors = np.zeros((len(latents), len(TEXTS), len(noise)))
    for i, z in enumerate(latents):
        for j in range(len(TEXTS)):
            for s, (eps, level) in enumerate(zip(noise, levels, strict=True)):
                noisy = (1 - level) * z + level * eps
                told = torch.tensor([1000 * level])
                prediction = pipeline.transformer(noisy[None], states[j : j + 1], pooled[j : j + 1], told).sample
                errors[i, j, s] = float(((eps - z - prediction[0]).double() ** 2).sum())
    return errors


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(1).standard_normal((len(LEVELS), 8, 8, 16), np.float32)


def one_device(pipeline, **keywords):
    return DiffusionITM(pipeline, batch_size=4, mesh=parallel.make_mesh(jax.devices()[:1]), **keywords)


def test_conditions(ours, theirs):
    with torch.inference_mode():
        states, pooled = encoded(theirs, TEXTS)
    got = ours.encode_texts(TEXTS)
    assert relative_error(got.states, states.numpy()) < 1e-5
    assert relative_error(got.pooled, pooled.numpy()) < 1e-5


@pytest.fixture(scope="module")
def without_t5(folder):
    return diffusers.StableDiffusion3Pipeline.from_pretrained(folder, text_encoder_3=None, tokenizer_3=None)


@pytest.mark.quick(1)
@pytest.mark.parametrize("text_tokens", [256, 8, 0])
def test_without_the_third_encoder(ours, without_t5, folder, noise, text_tokens):
    pipeline = families.load_pipeline(folder, zero_t5=True, text_tokens=text_tokens)
    assert pipeline.text_encoder_3 is pipeline.tokenizer_3 is None
    assert pipeline.fingerprint != ours.fingerprint
    if text_tokens == 256:
        assert pipeline.fingerprint == ours.replace(zero_t5=True).fingerprint
    got = one_device(pipeline).errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)
    np.testing.assert_allclose(got, torch_errors(without_t5, noise, text_tokens=text_tokens), rtol=1e-4)


def test_folders_without_the_third_encoder(without_t5, folder, noise, tmp_path):
    """Torch's, ours, and one whose third encoder is damaged, which nobody asks for."""
    left_out = {"text_encoder_3": None, "tokenizer_3": None}
    without_t5.save_pretrained(tmp_path / "theirs")
    pipeline = families.load_pipeline(tmp_path / "theirs")
    assert pipeline.zero_t5
    pipeline.replace(text_tokens=4).save_pretrained(tmp_path / "ours", dtype="float32")
    again = families.load_pipeline(tmp_path / "ours")
    assert again.text_tokens == 4
    assert again.fingerprint == pipeline.replace(text_tokens=4).fingerprint
    # diffusers wants to be told of what its own folders leave out, too.
    torch_again = diffusers.StableDiffusion3Pipeline.from_pretrained(tmp_path / "ours", **left_out)
    assert torch_again.text_encoder_3 is None
    np.testing.assert_allclose(torch_errors(torch_again, noise), torch_errors(without_t5, noise), rtol=1e-5)
    shutil.copytree(folder, tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "text_encoder_3").glob("*.safetensors"):
        file.unlink()
    assert families.load_pipeline(tmp_path / "damaged", zero_t5=True).fingerprint == pipeline.fingerprint
    with pytest.raises(InputError, match=names("text_encoder_3")):
        families.load_pipeline(tmp_path / "damaged")


@pytest.mark.slow
@pytest.mark.parametrize("there", ["nothing", "rubbish"])
def test_parts_that_settings_leave_out_are_not_looked_at(folder, there, tmp_path):
    """``model_index.json`` names T5, but its folders are not there, or hold what nobody could read."""
    folder = shutil.copytree(folder, tmp_path / "sd3")
    for part in ("text_encoder_3", "tokenizer_3"):
        if there == "nothing":
            shutil.rmtree(folder / part)
        else:
            for file in (folder / part).iterdir():
                file.write_bytes(b"rubbish")
    with pytest.raises(InputError, match=names("text_encoder_3")):
        families.load_pipeline(folder)
    settings = {"zero_t5": True, "text_tokens": 2}
    assert "text_encoder_3" not in families.read_description(folder, settings=settings).configs
    loading.check_scorer(str(folder), diffusion={"pipeline_options": settings})
    assert loading.load_scorer(str(folder), diffusion={"pipeline_options": settings}).pipeline.text_encoder_3 is None
    # A folder can say so itself, and be overruled.
    path = folder / "scheduler" / "scheduler_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "_winobench": {"settings": settings}}))
    assert families.load_pipeline(folder).text_encoder_3 is None
    with pytest.raises(InputError, match=names("text_encoder_3")):
        families.read_description(folder, settings={"zero_t5": False})


def test_t5_without_tokens_is_refused(ours):
    with pytest.raises(InputError, match=names("text_tokens", "zero_t5")):
        ours.replace(text_tokens=0)


def test_latents_are_shifted_and_come_back(ours, theirs):
    images = np.stack(pictures(SIZE))
    with torch.inference_mode():
        z = theirs.vae.encode(torch.tensor(images.transpose(0, 3, 1, 2) / 127.5 - 1, dtype=torch.float32))
        expected = (z.latent_dist.mean - 0.0609) * 1.5305
        back = theirs.vae.decode(expected / 1.5305 + 0.0609).sample
    latents = ours.encode_images(images)
    assert relative_error(latents, from_nchw(expected)) < 1e-5
    again = np.clip(from_nchw(back) * 127.5 + 127.5, 0, 255)
    assert np.abs(ours.decode_latents(latents) - again).max() < 1


def test_errors(ours, theirs, noise):
    got = one_device(ours).errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)
    np.testing.assert_allclose(got, torch_errors(theirs, noise), rtol=1e-4)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("error", "power"), [("l2", 0.5), ("squared_l2", 1.0)])
def test_self_bench_scores(ours, theirs, error, power):
    """Its levels, and its distance, which is not squared unless asked for."""
    noise = np.random.default_rng(2).standard_normal((4, 8, 8, 16), np.float32)
    scorer = one_device(ours, error=error)
    levels = scorer.choose_timesteps(4, timesteps="published")
    u = 1 - (20 + 250 * np.arange(4)[::-1]) / 1000
    np.testing.assert_allclose(levels, 3 * u / (1 + 2 * u), rtol=1e-6)
    got = scorer.errors(pictures(SIZE), TEXTS, noise=noise, num_samples=4, timesteps="published")
    expected = torch_errors(theirs, noise, levels.tolist()) ** power
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_errors_in_noise(ours, theirs, noise):
    """(1 - s) of the velocity's error: eps = z_s + (1 - s) v."""
    got = one_device(ours, target="epsilon").errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)
    expected = torch_errors(theirs, noise) * (1 - np.array(LEVELS)) ** 2
    np.testing.assert_allclose(got, expected, rtol=1e-3)


@pytest.mark.slow
def test_bfloat16_is_near(ours, theirs, folder, noise):
    rounded = families.load_pipeline(folder, dtype="bfloat16", encoder_dtype="float32")
    # T5 is as large as the transformer, and has its dtype.
    assert rounded.text_encoder_3.dtype == jnp.bfloat16
    assert rounded.text_encoder.dtype == rounded.vae.dtype == jnp.float32
    got = one_device(rounded).errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)
    np.testing.assert_allclose(got, torch_errors(theirs, noise), rtol=0.05)


@pytest.mark.slow
def test_generation(ours, theirs):
    texts = ["a red cube", "a photo"]
    seed, shape = 3, (8, 8, 16)
    start = np.stack([jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), shape) for i in range(2)])
    with torch.inference_mode():
        expected = theirs(
            texts,
            negative_prompt=["", ""],
            height=SIZE,
            width=SIZE,
            latents=torch.tensor(start.transpose(0, 3, 1, 2)),
            num_inference_steps=5,
            guidance_scale=3.0,
            output_type="np",
        ).images
    got = ours.generate(texts, num_steps=5, guidance_scale=3.0, seed=seed)
    assert np.abs(got / 255 - expected).max() < 2 / 255


def test_files_go_both_ways(ours, theirs, noise, tmp_path):
    ours.save_pretrained(tmp_path / "saved", dtype="float32")
    again = families.load_pipeline(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint
    torch_again = diffusers.StableDiffusion3Pipeline.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(torch_errors(torch_again, noise), torch_errors(theirs, noise), rtol=1e-5)


@pytest.mark.slow
def test_sharded_files_are_read(theirs, ours, tmp_path):
    theirs.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert (tmp_path / "sharded" / "transformer" / "diffusion_pytorch_model.safetensors.index.json").is_file()
    assert families.load_pipeline(tmp_path / "sharded").fingerprint == ours.fingerprint


def test_the_released_text_encoder():
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=4096, d_ff=10_240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu"
    )
    with torch.device("meta"):
        theirs = transformers.T5EncoderModel(config)
    found = models.torch_names(models.abstract_model(T5EncoderModel, T5EncoderConfig.t5_xxl()))
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.named_parameters()}
    assert {name: shape for name, (_, shape) in found.items()} == shapes
    assert sum(map(np.prod, shapes.values())) / 1e9 == pytest.approx(4.76, abs=0.01)


def test_parts_that_do_not_fit_are_one_sentence(ours):
    configs = {name: network.config for name, network in ours.networks.items()}
    sizes = {name: 10 for name in ours.TOKENIZERS}
    ours.check_fit(configs, sizes)
    for change, words in (
        ({"text_encoder_3": T5EncoderConfig(d_model=64)}, ("72", "64")),
        ({"text_encoder_2": configs["text_encoder"]}, ("48", "32")),
    ):
        with pytest.raises(InputError, match=names(*words)):
            ours.check_fit({**configs, **change}, sizes)
    with pytest.raises(InputError, match=names("tokenizer_3")):
        ours.check_fit(configs, {**sizes, "tokenizer_3": 10**6})


def test_whole_timesteps_are_refused(ours, noise):
    with pytest.raises(InputError, match=names("timesteps", "above 0 and up to 1")):
        one_device(ours).errors(pictures(SIZE), TEXTS, noise=noise, timesteps=[3, 400, 990])
