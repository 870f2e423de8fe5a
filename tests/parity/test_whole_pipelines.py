"""Whole pipelines against torch diffusers on the same folder: scores, generated images, files."""

import jax
import numpy as np
import pytest
import torch

from tests.conftest import TINY_IMAGE_SIZE as SIZE
from tests.expectations import names
from tests.parity.whole_pipelines import KINDS, to_nchw
from winobench.base.errors import InputError
from winobench.diffusion import families

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
    options = {
        "num_inference_steps": 3,
        "guidance_scale": guidance,
        "output_type": "np",
        "height": size,
        "width": size,
    }

    def theirs(**more):
        return case.theirs(prompt=texts, **options, **case.kind.start(to_nchw(noise)), **more).images

    result = case.ours.generate(texts, num_steps=3, guidance_scale=guidance, latents=noise, image_size=size) / 255
    with torch.inference_mode():
        assert np.abs(result - theirs()).max() < 1.01 / 255
        if kind == "sdxl":
            sizes = dict.fromkeys(("original_size", "target_size"), (SIZE, SIZE))
            assert np.abs(result - theirs(**sizes)).max() > 5 / 255


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
