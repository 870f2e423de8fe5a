import jax.numpy as jnp
import numpy as np

from winobench.training import losses


def test_kl_of_a_shifted_normal():
    mean, logvar = jnp.full((2, 3), 2.0), jnp.full((2, 3), jnp.log(4.0))
    # 0.5 (mu^2 + sigma^2 - 1 - ln sigma^2) = 0.5 (4 + 4 - 1 - 1.3863), three values an example
    np.testing.assert_allclose(losses.kl_to_standard_normal(mean, logvar), 3 * 0.5 * (7 - np.log(4.0)), rtol=1e-6)
    np.testing.assert_allclose(losses.kl_to_standard_normal(jnp.zeros((1, 5)), jnp.zeros((1, 5))), 0.0)


def test_autoencoder_loss_weighs_the_kl_by_the_pixel_noise():
    images = jnp.full((1, 2, 2, 3), 0.4)
    mean, logvar = jnp.ones((1, 1, 1, 1)), jnp.zeros((1, 1, 1, 1))
    loss, parts = losses.autoencoder_loss(images, images + 0.13, mean, logvar, pixel_noise=0.3)
    np.testing.assert_allclose(parts["mse"], 0.0169, rtol=1e-5)
    np.testing.assert_allclose(parts["kl"], 0.5, rtol=1e-6)
    np.testing.assert_allclose(loss, 0.0169 + 2 * 0.09 / 12 * 0.5, rtol=1e-5)
    np.testing.assert_allclose(parts["psnr"], 10 * np.log10(4 / 0.0169), rtol=1e-5)  # from -1 to 1: a peak of 2


def test_denoising_loss_is_a_mean_an_example_in_float32():
    prediction = jnp.asarray([[[[1.0, 2.0]]], [[[0.0, 4.0]]]], jnp.bfloat16)
    result = losses.denoising_loss(prediction, jnp.zeros_like(prediction))
    np.testing.assert_allclose(result, [2.5, 8.0])
    np.testing.assert_allclose(losses.denoising_loss(prediction, jnp.ones_like(prediction)), [0.5, 5.0])
    assert result.dtype == jnp.float32
