"""What the pipeline, its schedule and the scorer are handed is checked before it becomes a wrong number."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import winobench
from tests.expectations import names, raises
from winobench import metrics, parallel
from winobench.base.errors import InputError


@pytest.fixture(scope="module")
def pipeline(tiny_pipeline):
    return winobench.StableDiffusion.from_pretrained(tiny_pipeline)


@pytest.fixture(scope="module")
def scorer(pipeline):
    return winobench.DiffusionITM(pipeline, mesh=parallel.make_mesh(jax.devices()[:1]))


@pytest.mark.parametrize("pipeline", [5, None, "clevr-tiny", object()])
def test_a_scorer_takes_a_pipeline(pipeline):
    with raises("wrong-type", "pipeline"):
        winobench.DiffusionITM(pipeline)


@pytest.mark.parametrize("mesh", [5, "cpu", [1]])
def test_a_mesh_is_a_mesh(mesh):
    with pytest.raises(InputError, match=names("jax.sharding.Mesh")):
        parallel.as_mesh(mesh)


_IMAGES = np.zeros((1, 32, 32, 3), np.float32)


@pytest.mark.parametrize(
    ("images", "said"),
    [
        (_IMAGES + np.nan, ("out-of-range", "nan")),
        (_IMAGES + 255, ("out-of-range", "uint8")),
        (_IMAGES[:, :0], ("wrong-shape", "images", "[1, 0, 32, 3]")),
        (_IMAGES[0], ("wrong-shape", "images", "[32, 32, 3]")),
        (_IMAGES[:0], ("wrong-shape", "images", "[0, 32, 32, 3]")),
        (_IMAGES[..., :1], ("wrong-shape", "images", "[1, 32, 32, 1]")),
        (_IMAGES[:, :30], ("not-a-multiple", "30", "32", "4")),
        (_IMAGES.astype(np.int32), ("wrong-dtype", "int32")),
    ],
)
def test_images_are_checked_before_they_are_encoded(pipeline, images, said):
    with raises(*said):
        pipeline.encode_images(images)


@pytest.mark.parametrize(
    ("latents", "said"),
    [
        (np.zeros((1, 8, 8, 3), np.float32), ("wrong-shape", "latents", "[1, 8, 8, 3]")),
        (np.zeros((8, 8, 4), np.float32), ("wrong-shape", "latents", "[8, 8, 4]")),
        (np.zeros((1, 8, 8, 4), np.int32), ("wrong-shape", "latents", "int32")),
        (np.array("x"), ("wrong-shape", "latents", "<U1")),
        (np.full((1, 8, 8, 4), np.nan, np.float32), ("not-finite", "NaN")),
        (jnp.full((1, 8, 8, 4), jnp.inf), ("not-finite", "NaN")),
    ],
)
def test_latents_are_checked_before_they_are_decoded(pipeline, latents, said):
    with raises(*said):
        pipeline.decode_latents(latents)


def test_noise_that_is_not_a_number_gives_no_score(scorer):
    noise = np.full((2, *scorer.latent_shape), np.nan, np.float32)
    image = np.zeros((32, 32, 3), np.uint8)
    with raises("not-finite", "images[0]"):
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
    with raises("cannot-write"):
        pipeline.save_pretrained(path)


@pytest.mark.parametrize(
    ("metric", "arguments"),
    [
        (metrics.wilson, (1, float("inf"))),
        (metrics.wilson, (1, float("nan"))),
        (metrics.clustered, ([2, -1], [0, 1])),
        (metrics.clustered, ([0.5], [0])),
        (metrics.recall, ([[1.0, 2.0]], [0.5])),
        (metrics.recall_chance, (0,)),
        (metrics.recall_chance, (5, 0)),
        (metrics.recall_chance, (5, "1")),
        (metrics.recall_chance, (2.5,)),
        (metrics.recall, ([[1.0, 2.0]], [0], 1.5)),
        (metrics.wilson, ("1", 3)),
    ],
)
def test_metrics_refuse_what_has_no_meaning(metric, arguments):
    with pytest.raises(ValueError, match=names(metric.__name__)):
        metric(*arguments)
