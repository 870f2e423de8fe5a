"""FLUX.2-klein and its base against torch diffusers on the same folder: text states, whole scores, pictures, files."""

import json

import diffusers
import jax
import numpy as np
import pytest
import torch
import transformers
from diffusers import Flux2KleinPipeline
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu

from tests import tiny_flux2
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity.test_scorer import pictures
from tests.parity.torch_copy import relative_error
from tests.tiny_flux2 import CHANNELS, OUT_LAYERS
from winobench import parallel
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.checkpoints import models
from winobench.diffusion import families, flux_2
from winobench.planning import abstract
from winobench.scorers.diffusion_itm import DiffusionITM

TEXTS = ["a red cube left of the blue ball", "a photo", ""]
LEVELS = [0.031, 0.5, 0.988]


@pytest.fixture(scope="module", params=[True, False], ids=["distilled", "base"])
def distilled(request):
    return request.param


@pytest.fixture(scope="module")
def folder(distilled, tmp_path_factory):
    return tiny_flux2.write(tmp_path_factory.mktemp("flux2"), distilled=distilled)


@pytest.fixture(scope="module")
def theirs(folder):
    return Flux2KleinPipeline.from_pretrained(folder)


@pytest.fixture(scope="module")
def ours(folder):
    pipeline = families.load_pipeline(folder)
    assert type(pipeline) is flux_2.Flux2Klein
    return pipeline


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(1).standard_normal((len(LEVELS), 8, 8, CHANNELS), np.float32)


def packed(latents):
    """[n, c, h, w] -> the patches that the pipeline's transformer takes, and their places."""
    patches = Flux2KleinPipeline._patchify_latents(latents)
    return Flux2KleinPipeline._pack_latents(patches), Flux2KleinPipeline._prepare_latent_ids(patches)


@torch.inference_mode()
def torch_errors(pipeline, noise, levels=LEVELS):
    """Squared errors of the velocity [image, text, sample] by a plain loop over packed latents."""
    images = torch.tensor(np.stack(pictures(SIZE)).transpose(0, 3, 1, 2) / 127.5 - 1, dtype=torch.float32)
    latents = Flux2KleinPipeline._pack_latents(pipeline._encode_vae_image(images, generator=None))
    states, text_ids = pipeline.encode_prompt(TEXTS, device="cpu", text_encoder_out_layers=OUT_LAYERS)
    noise, image_ids = packed(torch.tensor(noise.transpose(0, 3, 1, 2).copy()))
    errors = np.zeros((len(latents), len(TEXTS), len(noise)))
    for i, z in enumerate(latents):
        for j in range(len(TEXTS)):
            for s, (eps, level) in enumerate(zip(noise, levels, strict=True)):
                prediction = pipeline.transformer(
                    ((1 - level) * z + level * eps)[None],
                    encoder_hidden_states=states[j : j + 1],
                    timestep=torch.tensor([level]),
                    img_ids=image_ids[:1],
                    txt_ids=text_ids[:1],
                    guidance=None,
                ).sample
                errors[i, j, s] = float(((eps - z - prediction[0]).double() ** 2).sum())
    return errors


def errors(pipeline, noise, **keywords):
    mesh = parallel.make_mesh(jax.devices()[:1])
    scorer = DiffusionITM(pipeline, batch_size=4, mesh=mesh, image_size=SIZE, **keywords)
    return scorer.errors(pictures(SIZE), TEXTS, noise=noise, timesteps=LEVELS)


@pytest.mark.quick(1)
def test_text_states(ours, theirs):
    """Of padding, too; and after other layers, the last of which is followed by the last norm."""
    for layers in (OUT_LAYERS, (4, 0, 2)):
        with torch.inference_mode():
            expected, _ = theirs.encode_prompt(TEXTS, device="cpu", text_encoder_out_layers=layers)
        found = ours.replace(text_encoder_out_layers=layers)
        assert relative_error(found.encode_texts(TEXTS), expected.numpy()) < 1e-5
        assert (found.fingerprint == ours.fingerprint) == (layers == OUT_LAYERS)
    assert ours.text_encoder.config.out_layers == OUT_LAYERS
    short = ours.replace(text_tokens=24)
    with torch.inference_mode():
        expected, _ = theirs.encode_prompt(TEXTS, max_sequence_length=24, text_encoder_out_layers=OUT_LAYERS)
    assert relative_error(short.encode_texts(TEXTS), expected.numpy()) < 1e-5


@pytest.mark.quick(1)
def test_errors(ours, theirs, noise):
    np.testing.assert_allclose(errors(ours, noise), torch_errors(theirs, noise), rtol=1e-4)


@pytest.mark.quick(1)
def test_encoders_that_leave_the_devices(ours, noise, tmp_path, monkeypatch):
    """Other layers' states of the same texts are other files in the store."""
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path))
    for pipeline in (ours, ours.replace(text_encoder_out_layers=(4, 0, 2))):
        np.testing.assert_array_equal(errors(pipeline, noise, encoders="staged"), errors(pipeline, noise))


def test_levels(ours):
    """4 x 4 positions; judged on the scheduler's own shift, drawn with that of the number of steps."""
    schedule = ours.schedule_at(SIZE)
    for steps, positions in ((4, 16), (50, 4096), (1000, 4300), (50, 4301)):
        assert flux_2.empirical_shift(positions, steps) == pytest.approx(compute_empirical_mu(positions, steps))
        sized = schedule.for_positions(positions)
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True)
        scheduler.set_timesteps(
            sigmas=np.linspace(1.0, 1 / steps, steps), mu=compute_empirical_mu(positions, steps), device="cpu"
        )
        np.testing.assert_allclose(sized.sampling_levels(steps, evenly=True), scheduler.sigmas.numpy(), rtol=1e-5)
    own = compute_empirical_mu(16, 200)
    u = (np.arange(1000) + 1) / 1000
    np.testing.assert_allclose(schedule.noise_rates, np.exp(own) / (np.exp(own) + 1 / u - 1), rtol=1e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize("steps", [2, 7])
def test_generation(ours, theirs, distilled, steps):
    texts, seed, shape = ["a red cube", "a photo"], 3, (8, 8, CHANNELS)
    start = np.stack([jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), shape) for i in range(2)])
    patches = Flux2KleinPipeline._patchify_latents(torch.tensor(start.transpose(0, 3, 1, 2).copy()))
    options = {"latents": patches, "num_inference_steps": steps, "output_type": "np"}
    options |= {"height": SIZE, "width": SIZE, "text_encoder_out_layers": OUT_LAYERS}
    expected = theirs(prompt=texts, guidance_scale=4.0, **options).images
    found = ours.generate(texts, num_steps=steps, guidance_scale=4.0, seed=seed, image_size=SIZE) / 255
    assert np.abs(found - expected).max() < 2 / 255
    # Only the base listens to guidance, and listens much.
    without = ours.generate(texts, num_steps=steps, guidance_scale=1.0, seed=seed, image_size=SIZE) / 255
    assert (np.abs(without - expected).max() < 2 / 255) == distilled


@pytest.mark.quick(1)
def test_files_go_both_ways(ours, theirs, noise, distilled, tmp_path):
    ours.save_pretrained(tmp_path / "saved", dtype="float32")
    again = families.load_pipeline(tmp_path / "saved")
    assert again.fingerprint == ours.fingerprint
    assert (again.is_distilled, again.text_encoder_out_layers) == (distilled, OUT_LAYERS)
    torch_again = Flux2KleinPipeline.from_pretrained(tmp_path / "saved")
    assert torch_again.config.is_distilled == distilled
    np.testing.assert_allclose(torch_errors(torch_again, noise), torch_errors(theirs, noise), rtol=1e-5)


def test_sizes_and_settings_that_cannot_be_are_one_sentence(ours):
    assert ours.image_size == 512
    with pytest.raises(InputError, match=names("image_size", "36", "multiple of 8")):
        ours.check_image_size(36)
    with pytest.raises(InputError, match=names("36", "multiples of 8")):
        ours.encode_images(np.zeros((1, 36, 32, 3), np.uint8))
    with pytest.raises(InputError, match=names("[1, 7, 8, 4]", "multiples of 2")):
        ours.decode_latents(np.zeros((1, 7, 8, CHANNELS), np.float32))
    with pytest.raises(InputError, match=names("text_tokens", "513")):
        ours.replace(text_tokens=513)
    with pytest.raises(InputError, match=names("text_encoder_out_layers", "5", "4 layers")):
        ours.replace(text_encoder_out_layers=(1, 2, 5))
    with pytest.raises(InputError, match=names("72", "48", "text_encoder_out_layers")):
        ours.replace(text_encoder_out_layers=(1, 2))
    with pytest.raises(InputError, match=names("Flux2Klein", "'zero_t5'", "text_tokens")):
        ours.replace(zero_t5=True)


@pytest.mark.parametrize(
    ("file", "changes", "named"),
    [
        ("model_index.json", {"is_distilled": "yes"}, ("model_index.json", "is_distilled", "'yes'")),
        ("text_encoder/config.json", {"model_type": "llama"}, ("config.json", "model_type", "'qwen3'")),
        ("text_encoder/config.json", {"hidden_size": 25, "head_dim": 8}, ("72", "25", "same model")),
        ("transformer/config.json", {"guidance_embeds": True}, ("guidance_embeds", "klein")),
        ("transformer/config.json", {"in_channels": 32}, ("8 channels", "4", "same model")),
        ("vae/config.json", {"patch_size": [4, 4]}, ("config.json", "patch_size")),
        ("text_encoder/config.json", {"vocab_size": 99}, ("400", "99", "tokenizer")),
    ],
)
def test_folders_that_cannot_be_are_one_sentence(tmp_path, folder, file, changes, named):
    for path in folder.rglob("*"):
        place = tmp_path / path.relative_to(folder)
        if path.is_dir():
            place.mkdir()
        else:
            place.symlink_to(path)
    content = json.loads((folder / file).read_text()) | changes
    (tmp_path / file).unlink()
    (tmp_path / file).write_text(json.dumps(content))
    with pytest.raises(InputError, match=names(*named)) as caught:
        families.load_pipeline(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_tokenizer_without_a_template_is_one_sentence(ours):
    bare = tiny_flux2.tokenizer()
    bare.chat_template = None
    with pytest.raises(InputError, match=names("chat template", "chat_template.jinja")):
        ours.replace(tokenizer=bare).encode_texts(["a photo"])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "billions"), [("flux2-klein-base-4b", 4.022), ("flux2-klein-9b", 8.191)])
def test_released_sizes(name, billions):
    """The encoder's names and shapes are transformers' own; the parts fit each other."""
    description = families.released(name)
    config = description.configs["text_encoder"]
    with torch.device("meta"):
        network = transformers.Qwen3ForCausalLM(transformers.Qwen3Config.from_dict(config.to_dict()))
    expected = {key: tuple(tensor.shape) for key, tensor in network.named_parameters()}
    pipeline = abstract.make_pipeline(description, "bfloat16")
    assert {key: shape for key, (_, shape) in models.torch_names(pipeline.text_encoder).items()} == expected
    assert sum(np.prod(shape) for shape in expected.values()) / 1e9 == pytest.approx(billions, abs=1e-3)
    function, params = pipeline.text_function()
    states = jax.eval_shape(function, params, pipeline.tokenize(["a photo"]))
    assert (states.shape, states.dtype) == ((1, 512, pipeline.transformer.config.joint_attention_dim), "bfloat16")
    assert pipeline.is_distilled == ("base" not in name)
    assert pipeline.image_size == 1024
    assert pipeline.schedule_at(1024).positions == 4096
    assert {name for name in registry.MODELS if name.startswith("flux2")} == flux_2.Flux2Klein.RELEASED.keys()
