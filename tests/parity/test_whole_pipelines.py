"""Whole pipelines against torch diffusers on the same folder: scores, generated images, files."""

import json
import shutil

import diffusers
import jax
import numpy as np
import pytest
import torch
import transformers
from diffusers.pipelines.flux2.pipeline_flux2_klein import compute_empirical_mu

from tests import tiny_flux2, tiny_z_image
from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names, raises
from tests.parity.harness import relative_error
from tests.parity.whole_pipelines import KINDS, TEXTS, one_device, to_nchw
from tests.tiny_flux2 import CHANNELS, OUT_LAYERS
from winobench.base.errors import InputError
from winobench.diffusion import families, flux_2, z_image

# The same networks but for guidance and ties; the others' own files have errors with other options.
_OF_OTHERS = ("schnell", "klein", "klein-base", "sdxl", "sd3", "flux")
EACH = pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in _OF_OTHERS)) for kind in KINDS]
)


@EACH
def test_errors(kind, whole):
    case = whole(kind)
    assert type(case.ours).__name__ == case.kind.ours
    np.testing.assert_allclose(case.found, case.expected, rtol=1e-4)
    # Texts are told apart far beyond that.
    assert (np.ptp(case.expected, axis=1) / case.expected.mean(axis=1)).min() > 1e-3


@EACH
def test_files_go_both_ways(kind, whole, tmp_path):
    case = whole(kind)
    case.ours.save_pretrained(tmp_path / "saved", dtype="float32")
    again = families.load_pipeline(tmp_path / "saved")
    assert again.fingerprint == case.ours.fingerprint
    settings = {"sdxl": ("force_zeros_for_empty_prompt", True), "klein": ("is_distilled", True)}
    option, value = settings.get(kind, ("is_distilled", False if kind == "klein-base" else None))
    torch_again = case.kind.theirs.from_pretrained(tmp_path / "saved")
    assert getattr(again, option, None) == torch_again.config.get(option) == value
    np.testing.assert_allclose(case.torch_errors(torch_again), case.expected, rtol=1e-5)


@pytest.mark.parametrize("kind", ["z_image", pytest.param("klein-base", marks=pytest.mark.slow)])
def test_encoders_that_leave_the_devices(kind, whole, tmp_path, monkeypatch):
    """Other layers' states of the same texts are other files in the store."""
    case = whole(kind)
    monkeypatch.setenv("WINOBENCH_CACHE", str(tmp_path))
    np.testing.assert_array_equal(case.errors(encoders="staged"), case.found)
    if kind == "klein-base":
        other = case.ours.replace(text_encoder_out_layers=(4, 0, 2))
        np.testing.assert_array_equal(case.errors(other, encoders="staged"), case.errors(other))


@pytest.mark.slow
def test_eight_devices_find_the_same(whole):
    case = whole("z_image")
    np.testing.assert_allclose(case.errors(devices=8), case.found, rtol=1e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("kind", "steps", "guidance", "heeds"),
    [
        pytest.param("z_image", 2, 4.0, None, marks=pytest.mark.slow),
        ("klein", 3, 4.0, False),
        ("klein-base", 3, 4.0, True),
        ("z_image", 3, 4.0, True),
        ("z_image", 3, 0.0, None),
        ("z_image", 3, 0.5, None),
        ("sd3", 5, 3.0, None),
        ("flux", 5, 3.5, None),
        ("schnell", 5, 3.5, None),
    ],
)
@pytest.mark.usefixtures("single_device")
def test_generation(kind, steps, guidance, heeds, whole):
    case, texts, seed = whole(kind), ["a red cube", "a photo of the suitcase on the left"], 3
    shape = (8, 8, case.kind.channels)
    start = np.stack([jax.random.normal(jax.random.fold_in(jax.random.key(seed), i), shape) for i in range(2)])
    options = {"num_inference_steps": steps, "output_type": "np", "height": SIZE, "width": SIZE}
    with torch.inference_mode():
        options |= case.kind.start(to_nchw(start))
        expected = case.theirs(prompt=list(texts), guidance_scale=guidance, **options).images

    def difference(guidance):
        found = case.ours.generate(texts, num_steps=steps, guidance_scale=guidance, seed=seed, image_size=SIZE)
        return np.abs(found / 255 - expected).max()

    assert difference(guidance) < 2 / 255
    if heeds is not None:
        assert (difference(0.0 if kind == "z_image" else 1.0) > 2 / 255) == heeds


@pytest.mark.slow
@pytest.mark.parametrize("size", [24, 48])
@pytest.mark.parametrize("kind", ["sdxl", "sd3", "flux", "klein", "z_image"])
@pytest.mark.usefixtures("single_device")
def test_generation_at_another_size(kind, size, whole):
    """Images are square. All values within 1 of 255, and SDXL's UNet heeds the size that it is told."""
    case, texts, guidance = whole(kind), ["a red cube", "a photo"], 3.0
    noise = np.random.default_rng(5).standard_normal((2, *case.ours.latent_shape(size)), np.float32)
    options = {"num_inference_steps": 3, "guidance_scale": guidance, "output_type": "np", "height": size}
    options |= {"width": size}

    def theirs(**more):
        return case.theirs(prompt=texts, **options, **case.kind.start(to_nchw(noise)), **more).images

    result = case.ours.generate(texts, num_steps=3, guidance_scale=guidance, latents=noise, image_size=size) / 255
    with torch.inference_mode():
        assert np.abs(result - theirs()).max() < 1.01 / 255
        if kind == "sdxl":
            sizes = dict.fromkeys(("original_size", "target_size"), (SIZE, SIZE))
            assert np.abs(result - theirs(**sizes)).max() > 5 / 255


def _negative(theirs, kind, text):
    """Keywords of diffusers' call. FLUX.2's has no name for the text, but takes what its encoder makes of it."""
    if kind != "klein-base":
        return {"negative_prompt": [text] * 2}
    states, _ = theirs.encode_prompt([text] * 2, text_encoder_out_layers=OUT_LAYERS)
    return {"negative_prompt_embeds": states}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sdxl", "sd3", "z_image", "klein-base"])
@pytest.mark.usefixtures("single_device")
def test_a_negative_prompt(kind, whole):
    """All values within 1 of 255. Without one, the images are far from these."""
    case, texts, text = whole(kind), ["a red cube", "a photo of the suitcase on the left"], "a blue ball, blurry"
    noise = np.random.default_rng(5).standard_normal((2, *case.ours.latent_shape(SIZE)), np.float32)
    options = {"num_inference_steps": 3, "guidance_scale": 5.0, "output_type": "np", "height": SIZE, "width": SIZE}
    with torch.inference_mode():
        options |= case.kind.start(to_nchw(noise)) | _negative(case.theirs, kind, text)
        expected = case.theirs(prompt=list(texts), **options).images

    def difference(**negative):
        found = case.ours.generate(texts, num_steps=3, guidance_scale=5.0, latents=noise, image_size=SIZE, **negative)
        return np.abs(found / 255 - expected).max()

    assert difference(negative_prompt=text) < 1.01 / 255
    assert difference() > 2 / 255


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "scale"), [("flux", 3.5), ("schnell", 3.5), ("klein", 4.0), ("z_image", 0.0), ("sd3", 1.0)]
)
def test_a_negative_prompt_without_guidance(kind, scale, whole):
    with raises("no-effect", "negative_prompt", "'blurry'", f"{scale:g}"):
        whole(kind).ours.generate(["a red cube"], guidance_scale=scale, negative_prompt="blurry", image_size=SIZE)


WRONG_SETTINGS = {
    "klein": [
        ({"text_encoder_out_layers": (1, 2, 5)}, ("text_encoder_out_layers", "5", "4 layers")),
        ({"text_encoder_out_layers": (1, 2)}, ("72", "48", "text_encoder_out_layers")),
        ({"zero_t5": True}, ("Flux2Klein", "'zero_t5'", "text_tokens")),
    ],
    "z_image": [({"text_tokens": 513}, ("text_tokens", "513"))],
    "flux": [
        ({"guidance_embedding": -1}, ("guidance_embedding", "-1")),
        ({"zero_t5": True}, ("Flux", "'zero_t5'", "guidance_embedding")),
    ],
    "sd3": [({"text_tokens": 0}, ("text_tokens", "zero_t5"))],
    "sdxl": [({"zero_empty_text": "yes"}, ("zero_empty_text",)), ({"guidance": 1.0}, ("'guidance'",))],
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", WRONG_SETTINGS)
def test_sizes_and_settings_that_cannot_be_are_one_sentence(kind, whole):
    ours = whole(kind).ours
    for settings, named in WRONG_SETTINGS[kind]:
        with pytest.raises(InputError, match=names(*named)):
            ours.replace(**settings)
    if kind not in ("sd3", "sdxl"):
        assert ours.image_size == (SIZE if kind == "z_image" else 512)
        with pytest.raises(InputError, match=names("image_size", "36", "multiple of 8")):
            ours.check_image_size(36)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flux", "schnell"])
def test_a_strength_of_guidance(kind, whole):
    case = whole(kind)
    guided, short = case.ours.replace(guidance_embedding=3.5), case.ours.replace(text_tokens=256)
    assert short.fingerprint != case.ours.fingerprint
    assert guided.fingerprint != case.ours.fingerprint
    expected = case.torch_errors(guidance=3.5)
    np.testing.assert_allclose(case.errors(guided), expected, rtol=1e-4)
    # It matters where it is embedded.
    assert np.allclose(expected, case.expected, rtol=1e-3) == (kind == "schnell")


@pytest.mark.parametrize("kind", ["flux", "schnell"])
def test_levels_of_flux(kind, whole):
    scorer = one_device(whole(kind).ours)
    published = scorer.choose_timesteps(30, timesteps="published")
    np.testing.assert_allclose(published, 1 - (12 + 33 * np.arange(30)[::-1]) / 1000, rtol=1e-6)
    # 4 x 4 positions of 4 to 64: a shift by 0.5 + 0.65 x 12 / 60 of dev's, and none of schnell's.
    drawn = scorer.choose_timesteps(5, timesteps="even")
    u = (np.array([100, 300, 500, 700, 900]) + 1) / 1000
    factor = np.exp(0.63)
    expected = factor / (factor + 1 / u - 1) if kind == "flux" else u
    np.testing.assert_allclose(drawn, expected, rtol=1e-5)


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["klein", "klein-base"])
def test_text_states_of_klein(kind, whole):
    """Of padding, too; and after other layers, the last of which is followed by the last norm."""
    ours, theirs, layers = whole(kind).ours, whole(kind).theirs, (4, 0, 2)
    other = ours.replace(text_encoder_out_layers=layers)
    assert ours.replace(text_encoder_out_layers=OUT_LAYERS).fingerprint == ours.fingerprint != other.fingerprint
    assert ours.text_encoder.config.out_layers == OUT_LAYERS
    short = other.replace(text_tokens=24)
    with torch.inference_mode():
        expected, _ = theirs.encode_prompt(TEXTS, max_sequence_length=24, text_encoder_out_layers=layers)
    assert relative_error(short.encode_texts(TEXTS), expected.numpy()) < 1e-5


def test_levels_of_klein(whole):
    """4 x 4 positions; judged on the scheduler's own shift, drawn with that of the number of steps."""
    schedule = whole("klein").ours.schedule_at(SIZE)
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


def test_sizes_of_images_and_latents(whole):
    ours = whole("klein").ours
    with pytest.raises(InputError, match=names("36", "multiples of 8")):
        ours.encode_images(np.zeros((1, 36, 32, 3), np.uint8))
    with pytest.raises(InputError, match=names("[1, 7, 8, 4]", "multiples of 2")):
        ours.decode_latents(np.zeros((1, 7, 8, CHANNELS), np.float32))


def test_a_tokenizer_without_a_template_is_one_sentence(whole):
    bare = tiny_flux2.tokenizer()
    bare.chat_template = None
    with pytest.raises(InputError, match=names("chat template", "chat_template.jinja")):
        whole("klein").ours.replace(tokenizer=bare).encode_texts(["a photo"])


def test_text_states_of_z_image(whole):
    ours, theirs = whole("z_image").ours, whole("z_image").theirs
    for pipeline, length in ((ours, 512), (ours.replace(text_tokens=24), 24)):
        with torch.inference_mode():
            expected, _ = theirs.encode_prompt(list(TEXTS), max_sequence_length=length)
        result = pipeline.encode_texts(TEXTS)
        assert result["states"].shape == (3, length, 24)
        assert result["lengths"].tolist() == [len(theirs_of_text) for theirs_of_text in expected]
        for states, theirs_of_text in zip(result["states"], expected, strict=True):
            assert relative_error(states[: len(theirs_of_text)], theirs_of_text.numpy()) < 1e-5
    assert (ours.tokenize(TEXTS)["lengths"] > 32).tolist() == [True, False, False]


@pytest.mark.parametrize("shift", [3.0, 6.0])
def test_levels_of_z_image(shift):
    schedule = z_image.ZImage.read_schedule({"shift": shift, "use_dynamic_shifting": False})
    for steps in (4, 9, 50):
        scheduler = diffusers.FlowMatchEulerDiscreteScheduler(shift=shift)
        sigmas = torch.linspace(1.0, 1 / steps, steps).tolist()
        scheduler.set_timesteps(sigmas=sigmas, mu=0.7, device="cpu")
        np.testing.assert_allclose(schedule.sampling_levels(steps, evenly=True), scheduler.sigmas.numpy(), rtol=1e-5)
    left_out = z_image.ZImage.PUBLISHED_LEFT_OUT
    u = 1 - np.arange(left_out, 1000 - left_out, 33)[::-1] / 1000
    np.testing.assert_allclose(schedule.published_levels(30, left_out), shift * u / (1 + (shift - 1) * u), rtol=1e-6)


def test_shards_and_files_with_an_output_matrix(whole, tmp_path):
    """As the released folders are: the encoder's names have a prefix, and files are in parts."""
    tiny_z_image.write(tmp_path / "parts", max_shard_size="60KB")
    encoder = transformers.Qwen3ForCausalLM.from_pretrained(whole("z_image").folder / "text_encoder")
    shutil.rmtree(tmp_path / "parts" / "text_encoder")
    encoder.save_pretrained(tmp_path / "parts" / "text_encoder", max_shard_size="20KB")
    indices = {path.parent.name: json.loads(path.read_text()) for path in tmp_path.rglob("*.index.json")}
    assert indices.keys() >= {"transformer", "text_encoder"}
    assert {"lm_head.weight", "model.norm.weight"} <= indices["text_encoder"]["weight_map"].keys()
    assert families.load_pipeline(tmp_path / "parts").fingerprint == whole("z_image").ours.fingerprint


def test_images_that_are_too_large(whole):
    with pytest.raises(InputError, match=names("image_size", "520", "512 pixels")):
        whole("z_image").ours.generate(["a photo"], image_size=520)
