"""Winograd's form of 3 x 3 convolutions against XLA's, and where scorers take it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.test_networks import filled
from winobench.models import functional, layers, lora, winograd
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32}


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng(seed).standard_normal(shape, np.float32))


def plain(x, kernel):
    form = jax.lax.conv_dimension_numbers(x.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))
    return jax.lax.conv_general_dilated(x, kernel, (1, 1), ((1, 1), (1, 1)), dimension_numbers=form)


@pytest.mark.parametrize(
    ("shape", "outputs"),
    [
        ((2, 8, 8, 64), 64),
        ((1, 1, 1, 3), 5),
        ((3, 7, 5, 16), 8),
        ((4, 32, 32, 8), 4),  # in strips of one image
        ((6, 16, 16, 8), 4),  # of three
        ((2, 2, 9, 130), 70),
        ((2, 34, 33, 8), 4),  # its products one after the other
    ],
)
def test_values_and_gradients(shape, outputs):
    x, kernel, direction = normal(*shape), normal(3, 3, shape[-1], outputs, seed=1), normal(*shape[:3], outputs, seed=2)

    def both(x, kernel):
        fast = jax.vjp(lambda x, kernel: winograd.convolution(x, winograd.transformed([kernel])[0]), x, kernel)
        return [(y, *gradient(direction)) for y, gradient in (fast, jax.vjp(plain, x, kernel))]

    for ours, theirs in zip(*jax.jit(both)(x, kernel), strict=True):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=3e-6 * np.abs(theirs).max())


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"stride": 2}, False),
        ({"kernel_size": 1, "padding": 0}, False),
        ({"padding": ((0, 1), (0, 1))}, False),
        ({"dtype": jnp.bfloat16}, False),
        ({"inputs": 4}, False),
        ({"outputs": 4}, False),
        ({"inputs": 192}, False),
        ({"inputs": 384, "outputs": 128}, True),
    ],
)
def test_which_layers(options, expected):
    sizes = {"inputs": 64, "outputs": 64, "kernel_size": 3, "padding": 1}
    layer = layers.Conv2d(**{**sizes, **FLOAT32, **options}, rngs=nnx.Rngs(0))
    assert layer.takes_winograd == expected


@pytest.fixture(scope="module")
def unet():
    blocks = {"down_block_types": ["DownBlock2D"] * 2, "block_out_channels": [64, 128]}
    blocks |= {"up_block_types": ["UpBlock2D"] * 2, "layers_per_block": 1, "sample_size": 8}
    config = UNet2DConditionConfig.from_dict({**blocks, "attention_head_dim": 4, "cross_attention_dim": 16})
    return filled(UNet2DConditionModel, config)


def test_a_network(unet):
    structure, given = functional.split(unet)
    made = layers.arrange_for_cpus(structure, given)
    changed = [(one.shape, other.shape) for one, other in zip(given, made, strict=True) if one is not other]
    assert len(changed) >= 10
    assert all((4, 4, *before[2:]) == after for before, after in changed)
    assert [id(array) for array in functional.split(unet)[1]] == [id(array) for array in given]
    inputs = normal(2, 7, 8, 4), jnp.array([3.0, 500.0]), normal(2, 5, 16)
    fast, slow = (jax.jit(lambda arrays: structure.module(arrays)(*inputs))(arrays) for arrays in (made, given))
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-5 * np.abs(slow).max())


def test_an_adapted_layer():
    layer = layers.Conv2d(64, 64, 3, padding=1, **FLOAT32, rngs=nnx.Rngs(0))
    adapter = lora.LoRA(lora.Factors(normal(3, 3, 64, 2), normal(2, 64), 0.1))
    structure, given = functional.split(lora.LoRAConv2d(layer, adapter))
    made, x = layers.arrange_for_cpus(structure, given), normal(1, 4, 4, 64)
    assert sorted(array.shape[0] for array in made if array.ndim == 4) == [3, 4]
    fast, slow = (structure.module(arrays)(x) for arrays in (made, given))
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-5 * np.abs(slow).max())
