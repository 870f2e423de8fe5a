"""The shipped weights: torch diffusers loads them unchanged, computes the same errors, and they know their scenes."""

import pathlib

import diffusers
import jax
import numpy as np
import pytest
import safetensors
import torch

import winobench
from tests.parity.test_scorer import squared, torch_loop
from tests.parity.whole_pipelines import errors_of_sd3
from winobench import parallel
from winobench.base import registry
from winobench.clevr import captions
from winobench.tasks import clevr_common

FOLDER, FLOW = (pathlib.Path(registry.resolve(name).source) for name in ("clevr-tiny", "clevr-flow"))
TIMESTEPS = [150, 420, 700, 960]


@pytest.fixture(scope="module")
def scorer():
    return winobench.DiffusionITM.from_pretrained("clevr-tiny", mesh=parallel.make_mesh(jax.devices()[:2]))


@pytest.mark.parametrize(
    ("folder", "size", "parts"),
    [
        (FOLDER, 30e6, ["text_encoder", "unet", "vae"]),
        (FLOW, 16e6, ["text_encoder", "text_encoder_2", "transformer", "vae"]),
    ],
)
def test_is_small_and_in_half_precision(folder, size, parts):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= size
    weights = [path for path in files if path.suffix == ".safetensors"]
    assert sorted(path.parent.name for path in weights) == parts
    for path in weights:
        with safetensors.safe_open(path, "np") as file:
            assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"F16"}  # noqa: SIM118
    assert not [path for path in files if path.suffix in (".bin", ".pt", ".ckpt", ".pkl")]


def test_is_judged_on_the_timesteps_that_it_was_trained_on(scorer):
    first, end = scorer.timestep_range
    assert 100 <= first < end <= 1000
    own = winobench.DiffusionITM.from_pretrained("clevr-tiny", timestep_range=(0, 500))
    assert own.timestep_range == (0, 500)


@pytest.mark.slow
@torch.inference_mode()
def test_torch_diffusers_loads_it_and_computes_the_same_errors(scorer):
    images, (things, *_) = list(clevr_common.evaluation_images(2)), clevr_common.evaluation_things(2)
    texts = [*captions.items(things, "gray" if "gray" not in str(things) else "cyan")["spatial"][0], ""]
    noise, difference, _ = torch_loop(FOLDER, images, texts, TIMESTEPS)
    errors = scorer.errors(images, texts, noise=noise, timesteps=TIMESTEPS)
    np.testing.assert_allclose(errors, squared(difference), rtol=1e-4)
    # The text must matter, or this would hardly test the text encoder.
    assert np.abs(errors[:, :2] - errors[:, 2:]).max() > 1e-3 * errors.mean()


@pytest.fixture(scope="module")
def flow_of_torch():
    pipeline = diffusers.StableDiffusion3Pipeline.from_pretrained(
        FLOW, text_encoder_3=None, tokenizer_3=None, dtype=torch.float32
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.mark.slow
@torch.inference_mode()
def test_torch_diffusers_computes_the_same_errors_of_the_flow_model(flow_of_torch):
    levels = [0.2, 0.5, 0.9]
    images, texts = clevr_common.evaluation_images(2), ["A red cube.", "There are two spheres.", ""]
    noise = np.random.default_rng(0).standard_normal((len(levels), 8, 8, 16), np.float32)
    options = {"text_tokens": 0, "images": images, "texts": texts}
    expected = errors_of_sd3(flow_of_torch, noise, levels, **options)
    scorer = winobench.DiffusionITM.from_pretrained("clevr-flow", mesh=parallel.make_mesh(jax.devices()[:1]))
    errors = scorer.errors(list(images), texts, noise=noise, timesteps=levels)
    np.testing.assert_allclose(errors, expected, rtol=1e-4)
    assert np.abs(errors[:, :2] - errors[:, 2:]).max() > 1e-3 * errors.mean()


def test_torch_diffusers_draws_with_them(flow_of_torch):
    other = diffusers.StableDiffusionPipeline.from_pretrained(FOLDER, safety_checker=None, dtype=torch.float32)
    other.set_progress_bar_config(disable=True)
    asked = {"prompt": "A red cube.", "num_inference_steps": 2, "height": 64, "width": 64, "output_type": "np"}
    for pipeline, options in ((flow_of_torch, {"max_sequence_length": 0}), (other, {})):
        image = pipeline(**asked, **options, generator=torch.Generator().manual_seed(0)).images[0]
        assert image.shape == (64, 64, 3)
        assert image.std() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clevr-tiny", "clevr-flow"])
def test_tells_the_colors_of_scenes_that_it_never_saw(name):
    """Far above chance: a coin would reach 30 of 40 once in 900 tries."""
    scorer = winobench.DiffusionITM.from_pretrained(name, mesh=parallel.make_mesh(jax.devices()[:2]))
    things = clevr_common.evaluation_things(20)
    images = clevr_common.evaluation_images(20)
    pairs = [
        (image, pair)
        for image, items in enumerate(
            captions.items(scene, clevr_common.distractor_color(i, scene)) for i, scene in enumerate(things)
        )
        for pair in items["recognition_color"]
    ]
    assert len(pairs) == 40
    texts = sorted({text for _, pair in pairs for text in pair})
    scores = scorer.score(images, texts, num_samples=8)
    right = sum(scores[image, texts.index(true)] > scores[image, texts.index(false)] for image, (true, false) in pairs)
    assert right >= 30
