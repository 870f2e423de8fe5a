import contextlib
import functools
import types

import jax
import numpy as np
import pytest

from tests.expectations import raises
from tests.live_arrays import LiveArrays
from winobench import parallel
from winobench.base import memory
from winobench.diffusion import generation, pure_functions
from winobench.diffusion.stable_diffusion import StableDiffusion

TEXTS = ["a red cube", "a blue ball", "", "the cube left of the ball"]
STEPS = {"num_steps": 3, "guidance_scale": 3.0}
SHAPE = (8, 8, 4)
LATENTS = np.zeros((1, *SHAPE), np.float32)


@pytest.fixture(scope="module")
def pipeline(tiny_pipeline):
    return StableDiffusion.from_pretrained(tiny_pipeline)


def drawn(pipeline, texts, **options):
    options = {"sampler": "euler_ancestral", **STEPS, **options}
    return pipeline.generate(texts, return_latents=True, **options)


@pytest.fixture(scope="module")
def whole(pipeline):
    return drawn(pipeline, TEXTS, seed=3)


@pytest.mark.slow
def test_a_picture_depends_on_its_seed_and_number_alone(pipeline, whole):
    """The noise of random steps included; up to rounding, which depends on the place within a batch."""
    assert whole.shape == (4, *SHAPE)
    assert whole.dtype == np.float32
    close = functools.partial(np.testing.assert_allclose, atol=1e-4 * np.abs(whole).max())
    close(drawn(pipeline, TEXTS[1:], seed=3, numbers=[1, 2, 3]), whole[1:])
    shuffled = drawn(pipeline, [TEXTS[3], TEXTS[0], TEXTS[0]], seed=[3, 4, 3], numbers=np.array([3, 0, 0]))
    close(shuffled[[0, 2]], whole[[3, 0]])
    assert np.abs(shuffled[1] - whole[0]).max() > 0.1


@pytest.mark.slow
def test_the_noise_of_steps_is_another_one_in_each(pipeline, whole):
    """From the same noise: pictures of another number differ by what the steps have added."""
    noise = np.zeros((2, *SHAPE), np.float32)
    one, other = drawn(pipeline, TEXTS[:1] * 2, latents=noise)
    assert np.abs(one - other).max() > 0.1
    still = drawn(pipeline, TEXTS[:1] * 2, latents=noise, numbers=[5, 5])
    np.testing.assert_allclose(still[0], still[1], atol=1e-4 * np.abs(still).max())


@pytest.mark.slow
def test_a_pipeline_on_the_host_draws_the_same_with_one_network_there(pipeline, whole, tiny_pipeline, monkeypatch):
    if len(jax.devices()) != 8:
        pytest.skip("needs 8 devices")
    live, first, sizes = LiveArrays(), jax.devices()[0], []
    on_host = StableDiffusion.from_pretrained(tiny_pipeline, on_host=True)
    of_encoders, of_denoiser, of_autoencoder = (
        memory.array_bytes(function()[1])
        for function in (on_host.text_function, on_host.denoiser_function, on_host.image_function)
    )
    assert live.bytes_on(first) == of_autoencoder
    call = pure_functions.call

    def spied(*arguments):
        sizes.append(live.bytes_on(first))
        return call(*arguments)

    monkeypatch.setattr(pure_functions, "call", spied)
    for _ in range(2):
        np.testing.assert_array_equal(drawn(on_host, TEXTS, seed=3), whole)
        assert live.bytes_on(first) >= of_autoencoder + of_denoiser
    # The texts and the empty one, in each call.
    assert len(sizes) == 4
    assert of_autoencoder + of_encoders <= min(sizes)
    assert max(sizes) < of_autoencoder + of_encoders + of_denoiser


@pytest.mark.slow
def test_one_device_and_eight_draw_the_same(pipeline, whole):
    if len(jax.devices()) != 8:
        pytest.skip("needs 8 devices")
    one = drawn(pipeline, TEXTS, seed=3, mesh=parallel.make_mesh(jax.devices()[:1]))
    np.testing.assert_allclose(whole, one, atol=1e-4 * np.abs(one).max())


def test_one_device_is_known():
    """What is drawn there takes the kernels of its kind, which are for programs that know where they run."""
    known = []

    def function(params, rows):
        known.append((parallel.traced_device().platform, parallel.runs_on_one_device()))
        return params * rows

    mesh = parallel.make_mesh(jax.devices()[:1])
    result = pure_functions.call_on_rows(function, mesh, np.float32(2), np.arange(3, dtype=np.float32))
    np.testing.assert_array_equal(result, [0, 2, 4])
    assert known == [(jax.devices()[0].platform, True)]


@pytest.mark.slow
def test_a_run_begins_with_pictures_or_their_latents(pipeline):
    images = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), np.uint8)
    options = {"num_steps": 5, "strength": 0.6}
    result = drawn(pipeline, TEXTS[:2], image=images, **options)
    latents = np.asarray(pipeline.encode_images(images, batch_size=8))
    np.testing.assert_array_equal(drawn(pipeline, TEXTS[:2], image=latents, **options), result)
    # Other noise, no image, and the last 3 of 8 steps: three other pictures.
    changes = ({"latents": 0 * latents}, {"image": None, "strength": None, **STEPS}, {"num_steps": 8, "strength": 0.4})
    for change in changes:
        other = drawn(pipeline, TEXTS[:2], **{"image": latents, **options, **change})
        assert np.abs(other - result).max() > 0.1, change


def test_networks_that_have_changed_are_copied_again(tiny_pipeline):
    pipeline = StableDiffusion.from_pretrained(tiny_pipeline)
    before = drawn(pipeline, TEXTS[:2])
    bias = pipeline.unet.conv_out.bias
    bias[...] = bias[...] + 1
    assert np.abs(drawn(pipeline, TEXTS[:2]) - before).max() > 0.1


@pytest.mark.slow
def test_networks_that_give_nan_are_refused(tiny_pipeline):
    """Which image, and what to do: black ones would pass for drawn."""
    pipeline = StableDiffusion.from_pretrained(tiny_pipeline)
    arguments = {"sampler": "euler_ancestral", **STEPS, "seed": [3, 7]}
    with without_numbers(pipeline, pipeline.vae.decoder.conv_out.bias):
        with raises("not-finite", "image", "'a red cube'", "seed 3", "weights"):
            pipeline.generate(TEXTS[:2], **arguments)
        with raises("not-finite", "latents[0]"):
            pipeline.decode_latents(LATENTS)
        assert drawn(pipeline, TEXTS[:2]).shape == (2, *SHAPE)  # the latents are as good as ever
    with without_numbers(pipeline, pipeline.vae.encoder.conv_out.bias, np.inf), raises("not-finite", "images[0]"):
        pipeline.encode_images(np.zeros((1, 32, 32, 3), np.uint8))
    with (
        without_numbers(pipeline, pipeline.unet.conv_out.bias),
        raises("not-finite", "latent", "'a red cube'", "seed 3"),
    ):
        pipeline.generate(TEXTS[:2], **arguments)
    with raises("not-finite", "'b'", "float16", "bfloat16", "float32"):
        half = types.SimpleNamespace(dtype=np.float16)
        generation.check_finite([True, False], "the image of", ["'a'", "'b'"], [pipeline.unet, half])


@contextlib.contextmanager
def without_numbers(pipeline, parameter, value=np.nan):
    before = parameter[...]
    parameter[...] = before.at[0].set(value)
    yield
    parameter[...] = before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"sampler": "dpm++"},
            ("unknown-name", "dpm++", "ddim", "euler", "euler_ancestral", "dpm_solver", "flow_euler"),
        ),
        ({"sampler": "flow_euler"}, ("wrong-kind-of-sampler", "flow_euler", "ddim", "euler")),
        ({"sampler": "dpm_solver", "num_steps": 1000}, ("out-of-range", "dpm_solver", "1000", "999")),
        ({"strength": 0.5}, ("missing-images", "strength", "0.5")),
        ({"image": LATENTS, "strength": 0.0}, ("bad-value", "strength", "0.0")),
        ({"image": LATENTS, "strength": 0.1}, ("no-steps-left", "strength", "0.1", "3")),
        ({"image": np.zeros((2, 32, 32, 3), np.uint8)}, ("wrong-shape", "image", "[2, 32, 32, 3]", "[1, 32, 32, 3]")),
        ({"image": LATENTS + np.float32(np.inf)}, ("not-finite", "image")),
        ({"latents": LATENTS[..., :3]}, ("wrong-shape", "latents", "[1, 8, 8, 3]", "[1, 8, 8, 4]")),
        ({"numbers": [1, 2]}, ("wrong-shape", "numbers", "[2]", "1")),
        ({"numbers": [-1]}, ("bad-value", "numbers[0]", "-1")),
    ],
)
def test_arguments_that_cannot_be(pipeline, options, message):
    with raises(*message):
        pipeline.generate(["a"], **{"num_steps": 3, **options})


def test_a_mesh_that_does_not_divide_the_batch(pipeline):
    if len(jax.devices()) != 8:
        pytest.skip("needs 8 devices")
    with raises("indivisible-batch", "3", "8"):
        drawn(pipeline, ["a"], batch_size=3, mesh=parallel.make_mesh())
