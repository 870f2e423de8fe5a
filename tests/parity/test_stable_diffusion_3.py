"""Stable Diffusion 3.5 against torch diffusers: what other pipelines do not have (see `test_whole_pipelines`)."""

import json
import shutil

import diffusers
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity.test_scorer import make_images
from tests.parity.whole_pipelines import LEVELS, TEXTS, one_device
from winobench.base.errors import InputError
from winobench.checkpoints import models
from winobench.diffusion import families
from winobench.models.t5_encoder import T5EncoderConfig, T5EncoderModel
from winobench.scorers import loading


@pytest.fixture(scope="module")
def case(whole):
    return whole("sd3")


@pytest.fixture(scope="module")
def without_t5(case):
    return case.kind.theirs.from_pretrained(case.folder, text_encoder_3=None, tokenizer_3=None)


@pytest.mark.slow
@pytest.mark.parametrize("text_tokens", [256, 8, 0])
def test_without_the_third_encoder(case, without_t5, text_tokens):
    pipeline = families.load_pipeline(case.folder, zero_t5=True, text_tokens=text_tokens)
    assert pipeline.text_encoder_3 is pipeline.tokenizer_3 is None
    assert pipeline.fingerprint != case.ours.fingerprint
    if text_tokens == 256:
        assert pipeline.fingerprint == case.ours.replace(zero_t5=True).fingerprint
    expected = case.torch_errors(without_t5, text_tokens=text_tokens)
    np.testing.assert_allclose(case.errors(pipeline), expected, rtol=1e-4)


@pytest.mark.slow
def test_folders_without_the_third_encoder(without_t5, case, tmp_path):
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
    np.testing.assert_allclose(case.torch_errors(torch_again), case.torch_errors(without_t5), rtol=1e-5)
    shutil.copytree(case.folder, tmp_path / "damaged")
    for file in (tmp_path / "damaged" / "text_encoder_3").glob("*.safetensors"):
        file.unlink()
    assert families.load_pipeline(tmp_path / "damaged", zero_t5=True).fingerprint == pipeline.fingerprint
    with pytest.raises(InputError, match=names("text_encoder_3")):
        families.load_pipeline(tmp_path / "damaged")


@pytest.mark.slow
@pytest.mark.parametrize("there", ["nothing", "rubbish"])
def test_parts_that_settings_leave_out_are_not_looked_at(case, there, tmp_path):
    """``model_index.json`` names T5, but its folders are not there, or hold what nobody could read."""
    folder = shutil.copytree(case.folder, tmp_path / "sd3")
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


@pytest.mark.slow
def test_self_bench_scores(case):
    """Its levels, and its distance, which is not squared."""
    noise = np.random.default_rng(2).standard_normal((4, 8, 8, 16), np.float32)
    scorer = one_device(case.ours, error="l2")
    levels = scorer.choose_timesteps(4, timesteps="published")
    u = 1 - (20 + 250 * np.arange(4)[::-1]) / 1000
    np.testing.assert_allclose(levels, 3 * u / (1 + 2 * u), rtol=1e-6)
    got = scorer.errors(make_images(SIZE), TEXTS, noise=noise, num_samples=4, timesteps="published")
    expected = case.kind.torch_errors(case.theirs, noise, levels.tolist()) ** 0.5
    np.testing.assert_allclose(got, expected, rtol=1e-4)


def test_errors_in_noise(case):
    """(1 - s) of the velocity's error: eps = z_s + (1 - s) v."""
    got = case.errors(target="epsilon")
    expected = case.expected * (1 - np.array(LEVELS)) ** 2
    np.testing.assert_allclose(got, expected, rtol=1e-3)


@pytest.mark.slow
def test_bfloat16_is_near(case):
    rounded = families.load_pipeline(case.folder, dtype="bfloat16", encoder_dtype="float32")
    # T5 is as large as the transformer, and has its dtype.
    assert rounded.text_encoder_3.dtype == jnp.bfloat16
    assert rounded.text_encoder.dtype == rounded.vae.dtype == jnp.float32
    np.testing.assert_allclose(case.errors(rounded), case.expected, rtol=0.05)


def test_the_released_text_encoder():
    transformers = pytest.importorskip("transformers")
    config = transformers.T5Config(
        d_model=4096, d_ff=10_240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu"
    )
    with torch.device("meta"):
        theirs = transformers.T5EncoderModel(config)
    result = models.torch_names(models.abstract_model(T5EncoderModel, T5EncoderConfig.t5_xxl()))
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.named_parameters()}
    assert {name: shape for name, (_, shape) in result.items()} == shapes
    assert sum(map(np.prod, shapes.values())) / 1e9 == pytest.approx(4.76, abs=0.01)


def test_parts_that_do_not_fit_are_one_sentence(case):
    ours = case.ours
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
