"""Losses, schedules and optimisers against values worked by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.expectations import raises
from winobench.training import losses, optimizers


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


def test_learning_rate_rises_stays_and_falls():
    rate = optimizers.warmup_constant_decay(1.0, warmup_steps=10, total_steps=100, decay_steps=20)
    np.testing.assert_allclose([rate(step) for step in (0, 5, 10, 80, 90, 100)], [0, 0.5, 1, 1, 0.5, 0], atol=1e-6)


@pytest.mark.parametrize("name", ["adamw", pytest.param("muon", marks=pytest.mark.slow)])
def test_optimizers_fit_a_line(name):
    inputs = jax.random.normal(jax.random.key(0), (64, 4))
    targets = inputs @ jnp.arange(12.0).reshape(4, 3) + 1.0
    params = {"layer": {"kernel": jnp.zeros((4, 3)), "bias": jnp.zeros(3)}}
    optimizer = optimizers.make_optimizer(name, 0.1)

    def loss(params):
        return jnp.mean((inputs @ params["layer"]["kernel"] + params["layer"]["bias"] - targets) ** 2)

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return jax.tree.map(jnp.add, params, updates), state

    state = optimizer.init(params)
    before = loss(params)
    for _ in range(400):
        params, state = step(params, state)
    assert loss(params) < 0.5 * before


@pytest.mark.slow
def test_muon_orthogonalises_convolutions_and_leaves_biases_to_adam():
    params = {"conv": {"kernel": jnp.zeros((3, 3, 4, 8)), "bias": jnp.zeros(8)}}
    gradients = {"conv": {"kernel": jax.random.normal(jax.random.key(0), (3, 3, 4, 8)), "bias": jnp.arange(1.0, 9.0)}}
    optimizer = optimizers.make_optimizer("muon", 1.0, clip_norm=1e9)
    updates, _ = optimizer.update(gradients, optimizer.init(params), params)
    singular = jnp.linalg.svd(updates["conv"]["kernel"].reshape(36, 8), compute_uv=False)
    assert singular.max() / singular.min() < 2.0  # all near 1 before the scale: Newton-Schulz ends in [0.7, 1.2]
    # Adam's first step is the same for gradients 1 to 8; with Nesterov's momentum it is longer than the rate.
    np.testing.assert_allclose(updates["conv"]["bias"], -(0.9 * 0.1 / (1 - 0.9**2) + 1.0), rtol=1e-4)


def test_unknown_optimizer_is_named():
    with raises("bad-value", "'sgdd'"):
        optimizers.make_optimizer("sgdd", 0.1)
