"""Z-Image against torch diffusers on the same folder: text states, whole scores, pictures, files."""

import json
import shutil

import diffusers
import jax
import numpy as np
import pytest
import torch
import transformers
from diffusers import ZImagePipeline

from tests import tiny_flux2, tiny_z_image
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity.test_scorer import pictures
from tests.parity.torch_copy import relative_error
from tests.tiny_z_image import CHANNELS
from winobench import parallel
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.checkpoints import models
from winobench.diffusion import families, z_image
from winobench.models import AutoencoderKLConfig
from winobench.planning import abstract
from winobench.scorers.diffusion_itm import DiffusionITM

# Of three numbers of tokens, one of them beyond the first multiple of 32.
TEXTS = ["a red cube left of the blue ball", "a photo", ""]
LEVELS = [0.031, 0.5, 0.988]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_z_image.write(tmp_path_factory.mktemp("z_image"))


@pytest.fixture(scope="module")
def theirs(folder):
    return ZImagePipeline.from_pretrained(folder)


@pytest.fixture(scope="module")
def ours(folder):
    pipeline = families.load_pipeline(folder)
    assert type(pipeline) is z_image.ZImage
    return pipeline


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(1).standard_normal((len(LEVELS), 8, 8, CHANNELS), np.float32)


@torch.inference_mode()
def torch_errors(pipeline, noise, levels=LEVELS):
    """Squared errors of the velocity [image, text, sample] by a plain loop, in the terms of the published pipeline."""
    images = torch.tensor(np.stack(pictures(SIZE)).transpose(0, 3, 1, 2) / 127.5 - 1, dtype=torch.float32)
    config = pipeline.vae.config
    latents = (pipeline.vae.encode(images).latent_dist.mean - config.shift_factor) * config.scaling_factor
    states, _ = pipeline.encode_prompt(list(TEXTS), do_classifier_free_guidance=False)
    noise = torch.tensor(noise.transpose(0, 3, 1, 2).copy())
    errors = np.zeros((len(latents), len(TEXTS), len(noise)))
    for i, z in enumerate(latents):
        for j in range(len(TEXTS)):
            for s, (eps, level) in enumerate(zip(noise, levels, strict=True)):
                time = (1000 - torch.tensor([1000 * level])) / 1000
                noisy = ((1 - level) * z + level * eps)[:, None]
                answer = pipeline.transformer([noisy], time, [states[j]], return_dict=False)[0][0]
                errors[i, j, s] = float(((eps - z + answer[:, 0]).double() ** 2).sum())
    return errors


def errors(pipeline, noise, *, devices=1, **keywords):
    mesh = parallel.make_mesh(jax.devices()[:devices])
    keywords = {"batch_size": 8 // devices, **keywords}
    scorer = DiffusionITM(pipeline, mesh=mesh, image_size=SIZE, **keywords)
    return scorer.errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)


@pytest.fixture(scope="module")
def ours_errors(ours, noise):
    return errors(ours, noise)


def test_text_states(ours, theirs):
    for pipeline, length in ((ours, 512), (ours.replace(text_tokens=24), 24)):
        with torch.inference_mode():
            expected, _ = theirs.encode_prompt(list(TEXTS), max_sequence_length=length)
        found = pipeline.encode_texts(TEXTS)
        assert found["states"].shape == (3, length, 24)
        assert found["lengths"].tolist() == [len(each) for each in expected]
        for states, each in zip(found["states"], expected, strict=True):
            assert relative_error(states[: len(each)], each.numpy()) < 1e-5
    assert (ours.tokenize(TEXTS)["lengths"] > 32).tolist() == [True, False, False]


def test_errors(ours_errors, theirs, noise):
    expected = torch_errors(theirs, noise)
    np.testing.assert_allclose(ours_errors, expected, rtol=1e-4)
    # Texts are told apart far beyond that.
    assert (np.ptp(expected, axis=1) / expected.mean(axis=1)).min() > 1e-2


def test_encoders_that_leave_the_devices(ours, ours_errors, noise, tmp_path, monkeypatch):
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path))
    np.testing.assert_array_equal(errors(ours, noise, encoders="staged"), ours_errors)


@pytest.mark.slow
def test_eight_devices_find_the_same(ours, ours_errors, noise):
    np.testing.assert_allclose(errors(ours, noise, devices=8), ours_errors, rtol=1e-5)


@pytest.mark.parametrize("shift", [3.0, 6.0])
def test_levels(shift):
    schedule = z_image.ZImage.read_schedule({"shift": shift, "use_dynamic_shifting": False})
    for steps in (4, 9, 50):
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=shift)
        sigmas = torch.linspace(1.0, 1 / steps, steps).tolist()
        scheduler.set_timesteps(sigmas=sigmas, mu=0.7, device="cpu")
        np.testing.assert_allclose(schedule.sampling_levels(steps, evenly=True), scheduler.sigmas.numpy(), rtol=1e-5)
    left_out = z_image.ZImage.PUBLISHED_LEFT_OUT
    u = 1 - np.arange(left_out, 1000 - left_out, 33)[::-1] / 1000
    np.testing.assert_allclose(schedule.published_levels(30, left_out), shift * u / (1 + (shift - 1) * u), rtol=1e-6)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("steps", "guidance"), [(2, 4.0), (3, 0.0), (7, 0.5)])
def test_generation(ours, theirs, steps, guidance):
    texts, seed, shape = ["a red cube", "a photo of the suitcase on the left"], 3, (8, 8, CHANNELS)
    start = np.stack([jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), shape) for i in range(2)])
    options = {"latents": torch.tensor(start.transpose(0, 3, 1, 2).copy()), "height": SIZE, "width": SIZE}
    options |= {"num_inference_steps": steps, "output_type": "np"}
    expected = theirs(prompt=list(texts), guidance_scale=guidance, **options).images
    found = ours.generate(texts, num_steps=steps, guidance_scale=guidance, seed=seed) / 255
    assert np.abs(found - expected).max() < 2 / 255
    if guidance == 4.0:
        without = ours.generate(texts, num_steps=steps, guidance_scale=0.0, seed=seed) / 255
        assert np.abs(without - expected).max() > 4 / 255


def test_files_go_both_ways(ours, theirs, noise, tmp_path):
    ours.save_pretrained(tmp_path / "saved", dtype="float32")
    again = families.load_pipeline(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint
    torch_again = ZImagePipeline.from_pretrained(tmp_path / "saved")
    np.testing.assert_allclose(torch_errors(torch_again, noise), torch_errors(theirs, noise), rtol=1e-5)


def test_shards_and_files_with_an_output_matrix(folder, ours, tmp_path):
    """As the released folders are: the encoder's names have a prefix, and files are in parts."""
    tiny_z_image.write(tmp_path / "parts", max_shard_size="60KB")
    encoder = transformers.Qwen3ForCausalLM.from_pretrained(folder / "text_encoder")
    shutil.rmtree(tmp_path / "parts" / "text_encoder")
    encoder.save_pretrained(tmp_path / "parts" / "text_encoder", max_shard_size="20KB")
    indices = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.rglob("*.index.json")}
    assert indices.keys() >= {"transformer", "text_encoder"}
    assert {"lm_head.weight", "model.norm.weight"} <= indices["text_encoder"]["weight_map"].keys()
    assert families.load_pipeline(tmp_path / "parts").fingerprint == ours.fingerprint


def test_sizes_and_settings_that_cannot_be_are_one_sentence(ours):
    assert ours.image_size == SIZE
    with pytest.raises(InputError, match=names("image_size", "36", "multiple of 8")):
        ours.check_image_size(36)
    with pytest.raises(InputError, match=names("image_size", "520", "512 pixels")):
        ours.generate(["a photo"], image_size=520)
    with pytest.raises(InputError, match=names("text_tokens", "513")):
        ours.replace(text_tokens=513)
    with pytest.raises(InputError, match=names("ZImage", "'zero_t5'", "text_tokens")):
        ours.replace(zero_t5=True)
    bare = tiny_flux2.tokenizer()
    bare.chat_template = None
    with pytest.raises(InputError, match=names("chat template", "chat_template.jinja")):
        ours.replace(tokenizer=bare).encode_texts(["a photo"])


@pytest.mark.parametrize(
    ("file", "changes", "named"),
    [
        ("model_index.json", {"text_encoder": None}, ("model_index.json", "text_encoder", "missing", "ZImagePipeline")),
        ("text_encoder/config.json", {"model_type": "llama"}, ("config.json", "model_type", "'qwen3'")),
        ("text_encoder/config.json", {"hidden_size": 25}, ("24", "25", "same model")),
        ("text_encoder/config.json", {"vocab_size": 99}, ("400", "99", "tokenizer")),
        ("transformer/config.json", {"in_channels": 8}, ("8", "4", "channels", "same model")),
        ("transformer/config.json", {"siglip_feat_dim": 1152}, ("config.json", "siglip_feat_dim")),
        ("transformer/config.json", {"axes_lens": [500, 64, 64]}, ("text_tokens", "512", "axes_lens", "480")),
        ("transformer/config.json", {"n_layers": 3}, ("layers.2.attention.norm_k.weight", "missing")),
        ("scheduler/scheduler_config.json", {"shift": 0}, ("scheduler_config.json", "shift")),
        ("vae/diffusion_pytorch_model.safetensors", None, ("vae", "diffusion_pytorch_model.safetensors")),
    ],
)
def test_folders_that_cannot_be_are_one_sentence(tmp_path, folder, file, changes, named):
    for path in folder.rglob("*"):
        place = tmp_path / path.relative_to(folder)
        if path.is_dir():
            place.mkdir()
        else:
            place.symlink_to(path)
    (tmp_path / file).unlink()
    if changes is not None:
        (tmp_path / file).write_text(json.dumps(json.loads((folder / file).read_text()) | changes))
    with pytest.raises(InputError, match=names(*named)) as caught:
        families.load_pipeline(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_released_sizes():
    """The encoder's names and shapes are transformers' own; the parts fit each other."""
    description = families.released("z-image")
    assert (description.schedule.shift, families.released("z-image-turbo").schedule.shift) == (6.0, 3.0)
    assert description.configs == families.released("z-image-turbo").configs
    assert description.configs["vae"] == AutoencoderKLConfig.flux()
    config = description.configs["text_encoder"]
    with torch.device("meta"):
        network = transformers.Qwen3Model(transformers.Qwen3Config.from_dict(config.to_dict()))
    expected = {f"model.{key}": tuple(tensor.shape) for key, tensor in network.named_parameters()}
    pipeline = abstract.make_pipeline(description, "bfloat16")
    assert {key: shape for key, (_, shape) in models.torch_names(pipeline.text_encoder).items()} == expected
    function, params = pipeline.text_function()
    states = jax.eval_shape(function, params, pipeline.tokenize(["a photo"]))["states"]
    assert (states.shape, states.dtype) == ((1, 512, 2560), "bfloat16")
    assert pipeline.text_encoder.config.out_layers == (35,)
    assert (pipeline.image_size, pipeline.check_image_size(2048)) == (1024, 2048)
    assert {name for name in registry.MODELS if name.startswith("z-image")} == z_image.ZImage.RELEASED.keys()
