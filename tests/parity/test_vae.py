"""The autoencoder against torch diffusers; errors and tolerances as in test_unet."""

import functools

import diffusers
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers.models.unets.unet_2d_blocks import UNetMidBlock2D

from tests.parity.torch_copy import (
    BLOCK_TOLERANCE,
    NETWORK_TOLERANCE,
    abstract,
    call,
    copy_parameters,
    from_nchw,
    from_torch,
    group_norm_epsilons,
    randomize,
    relative_error,
    to_torch,
)
from winobench.models import AutoencoderKL, AutoencoderKLConfig, autoencoder_kl


def options(*widths, **others):
    return {
        "block_out_channels": widths,
        "down_block_types": ("DownEncoderBlock2D",) * len(widths),
        "up_block_types": ("UpDecoderBlock2D",) * len(widths),
        "norm_num_groups": 4,
        **others,
    }


CONFIGS = {
    "three levels": options(8, 16, 16, layers_per_block=2, norm_num_groups=8),
    "one level": options(8, latent_channels=3),
    "no quant convolutions": options(8, 12, use_quant_conv=False, use_post_quant_conv=False, latent_channels=16),
    "no attention": options(8, 12, mid_block_add_attention=False, in_channels=1, out_channels=2, act_fn="swish"),
}


@functools.cache
def pair(name):
    network = randomize(diffusers.AutoencoderKL(**CONFIGS[name]))
    config = AutoencoderKLConfig.from_dict(dict(network.config))
    return network, from_torch(AutoencoderKL, config, network)


@pytest.mark.parametrize("name", CONFIGS)
def test_encode(name):
    network, ours = pair(name)
    channels, factor = ours.config.in_channels, ours.config.downsampling
    images = np.random.default_rng(0).uniform(-1, 1, (2, 12, 20, channels)).astype(np.float32)
    mean, logvar = call(ours, images, method="encode")
    with torch.no_grad():
        expected = network.encode(to_torch(images)).latent_dist
    assert mean.shape == (2, 12 // factor, 20 // factor, ours.config.latent_channels)
    assert relative_error(mean, from_nchw(expected.mean)) < NETWORK_TOLERANCE
    assert relative_error(logvar, from_nchw(expected.logvar)) < NETWORK_TOLERANCE


@pytest.mark.parametrize("name", CONFIGS)
def test_decode(name):
    network, ours = pair(name)
    latents = np.random.default_rng(0).normal(size=(2, 3, 5, ours.config.latent_channels)).astype(np.float32)
    with torch.no_grad():
        expected = from_nchw(network.decode(to_torch(latents)).sample)
    assert relative_error(call(ours, latents, method="decode"), expected) < NETWORK_TOLERANCE


def test_log_variance_is_bounded():
    network, ours = pair.__wrapped__("one level")  # changed below
    latents = ours.config.latent_channels
    bias = np.zeros(2 * latents, np.float32)
    bias[latents:] = [100, -100, 0]
    ours.quant_conv.bias[...] = bias
    with torch.no_grad():
        network.quant_conv.bias.copy_(torch.from_numpy(bias))
    images = np.random.default_rng(0).uniform(-1, 1, (1, 4, 4, 3)).astype(np.float32)
    logvar = call(ours, images, method="encode")[1]
    expected = from_nchw(network.encode(to_torch(images)).latent_dist.logvar)
    assert relative_error(logvar, expected) < NETWORK_TOLERANCE
    assert (np.max(logvar), np.min(logvar)) == (20, -30)


def test_middle_epsilon():
    """1e-6 in residual blocks and attention, on values whose variance is like it."""
    network = randomize(
        UNetMidBlock2D(in_channels=16, temb_channels=None, resnet_eps=1e-6, resnet_groups=4, attention_head_dim=16)
    )
    x = (2e-3 * np.random.default_rng(1).normal(size=(2, 6, 6, 16))).astype(np.float32)
    expected = from_nchw(network(to_torch(x)))
    config = AutoencoderKLConfig(**options(16))
    kwargs = {"dtype": jnp.float32, "param_dtype": jnp.float32}
    ours = copy_parameters(network, abstract(lambda rngs: autoencoder_kl.MidBlock(config, rngs=rngs, **kwargs)))
    assert relative_error(call(ours, x), expected) < BLOCK_TOLERANCE
    ours.resnets[0].norm1.epsilon = 1e-5
    assert relative_error(call(ours, x), expected) > 1e-3


def test_epsilons_within_the_network():
    network = diffusers.AutoencoderKL(**CONFIGS["three levels"])
    config = AutoencoderKLConfig.from_dict(dict(network.config))
    ours = abstract(lambda rngs: AutoencoderKL(config, rngs=rngs))
    expected, found = group_norm_epsilons(network, ours)
    assert found == expected
    assert set(found.values()) == {1e-6}
