"""What the pipeline, its schedule and the scorer are handed is checked before it becomes a wrong number."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import winobench
from tests.expectations import names
from winobench import metrics, parallel
from winobench.diffusion.schedules import NoiseSchedule
from winobench.errors import InputError


@pytest.fixture(scope="module")
def pipeline(tiny_pipeline):
    return winobench.StableDiffusion.from_pretrained(tiny_pipeline)


@pytest.fixture(scope="module")
def scorer(pipeline):
    return winobench.DiffusionITM(pipeline, mesh=parallel.make_mesh(jax.devices()[:1]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"beta_start": -1}, "beta_start is -1"),
        ({"beta_start": "x"}, "beta_start is 'x'"),
        ({"beta_end": float("nan")}, "beta_end is nan"),
        ({"beta_end": True}, "beta_end is True"),
        ({"rescale_betas_zero_snr": "x"}, "rescale_betas_zero_snr is 'x'"),
        ({"prediction_type": ["epsilon"]}, "prediction_type is"),
        ({"trained_betas": "abc"}, "trained_betas are 'abc'"),
        ({"trained_betas": [["a"]]}, "trained_betas are"),
        ({"trained_betas": 5}, "trained_betas are 5"),
        ({"_class_name": []}, r"the scheduler \[\]"),
        ({"_class_name": 5}, "the scheduler 5"),
    ],
)
def test_a_schedule_of_wrong_values_is_refused(options, said):
    with pytest.raises(InputError, match=said):
        NoiseSchedule.from_config(options)


@pytest.mark.parametrize("config", [5, [], None, "x", {5: 1}])
def test_a_schedule_is_read_from_an_object(config):
    with pytest.raises(InputError, match="must hold an object"):
        NoiseSchedule.from_config(config)


@pytest.mark.parametrize("pipeline", [5, None, "clevr-tiny", object()])
def test_a_scorer_takes_a_pipeline(pipeline):
    with pytest.raises(InputError, match="is not a pipeline"):
        winobench.DiffusionITM(pipeline)


@pytest.mark.parametrize("mesh", [5, "cpu", [1]])
def test_a_mesh_is_a_mesh(mesh):
    with pytest.raises(InputError, match=names("jax.sharding.Mesh")):
        parallel.as_mesh(mesh)


_IMAGES = np.zeros((1, 32, 32, 3), np.float32)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (_IMAGES + np.nan, "values from nan"),
        (_IMAGES + 255, "pass uint8"),
        (_IMAGES[:, :0], "shape"),
        (_IMAGES[0], "shape"),
        (_IMAGES.astype(np.int32), "int32"),
    ],
)
def test_images_are_checked_before_they_are_encoded(pipeline, images, said):
    with pytest.raises(InputError, match=said):
        pipeline.encode_images(images)


@pytest.mark.parametrize(
    ("latents", "said"),
    [
        (np.zeros((1, 8, 8, 3), np.float32), "floats"),
        (np.zeros((8, 8, 4), np.float32), "floats"),
        (np.zeros((1, 8, 8, 4), np.int32), "floats"),
        (np.array("x"), "floats"),
        (np.full((1, 8, 8, 4), np.nan, np.float32), "NaN or infinite"),
        (jnp.full((1, 8, 8, 4), jnp.inf), "NaN or infinite"),
    ],
)
def test_latents_are_checked_before_they_are_decoded(pipeline, latents, said):
    with pytest.raises(InputError, match=said):
        pipeline.decode_latents(latents)


def test_noise_that_is_not_a_number_gives_no_score(scorer):
    noise = np.full((2, *scorer.latent_shape), np.nan, np.float32)
    image = np.zeros((32, 32, 3), np.uint8)
    with pytest.raises(InputError, match=r"not a number|finite"):
        scorer.score([image], ["a ball"], noise=noise, timesteps=[5, 500])


@pytest.mark.slow
def test_weights_that_are_not_numbers_give_no_score(pipeline):
    unet = nnx.clone(pipeline.unet)
    unet.conv_in.kernel[...] = jnp.full_like(unet.conv_in.kernel[...], jnp.inf)
    broken = dataclasses.replace(pipeline, unet=unet)
    scorer = winobench.DiffusionITM(broken, mesh=parallel.make_mesh(jax.devices()[:1]))
    with pytest.raises(InputError, match=names("0", "'a ball'")):
        scorer.score([np.zeros((32, 32, 3), np.uint8)], ["a ball"], num_samples=2)


def test_a_folder_that_cannot_be_written_is_named(pipeline, tmp_path):
    path = tmp_path / "file"
    path.write_text("")
    with pytest.raises(InputError, match="file cannot be written"):
        pipeline.save_pretrained(path)


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.wilson(1, float("inf")),
        lambda: metrics.wilson(1, float("nan")),
        lambda: metrics.clustered([2, -1], [0, 1]),
        lambda: metrics.clustered([0.5], [0]),
        lambda: metrics.recall([[1.0, 2.0]], [0.5]),
        lambda: metrics.recall_chance(0),
        lambda: metrics.recall_chance(5, 0),
        lambda: metrics.recall_chance(5, "1"),
        lambda: metrics.recall_chance(2.5),
        lambda: metrics.recall([[1.0, 2.0]], [0], 1.5),
        lambda: metrics.wilson("1", 3),
    ],
)
def test_metrics_refuse_what_has_no_meaning(call):
    with pytest.raises(ValueError, match="needs"):
        call()
