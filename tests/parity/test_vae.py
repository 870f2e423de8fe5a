"""The autoencoder against torch diffusers; errors and tolerances as in test_unet."""

import functools

import diffusers
import numpy as np
import pytest
import torch

from tests.parity.harness import NETWORK_TOLERANCE, abstract, call, check_close, group_norm_epsilons, pair, to_torch
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig


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
    "other options": options(
        *(8, 12),
        **{"use_quant_conv": False, "use_post_quant_conv": False, "latent_channels": 16, "act_fn": "swish"},
        **{"mid_block_add_attention": False, "in_channels": 1, "out_channels": 2},
    ),
}


@functools.cache
def both(name):
    return pair(diffusers.AutoencoderKL(**CONFIGS[name]), AutoencoderKL)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CONFIGS)
def test_encode(name):
    network, ours = both(name)
    channels, factor = ours.config.in_channels, ours.config.downsampling
    images = np.random.default_rng(0).uniform(-1, 1, (2, 12, 20, channels)).astype(np.float32)
    mean, logvar = call(ours, images, method="encode")
    expected = network.encode(to_torch(images)).latent_dist
    assert mean.shape == (2, 12 // factor, 20 // factor, ours.config.latent_channels)
    check_close([mean, logvar], [expected.mean, expected.logvar], NETWORK_TOLERANCE)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CONFIGS)
def test_decode(name):
    network, ours = both(name)
    latents = np.random.default_rng(0).normal(size=(2, 3, 5, ours.config.latent_channels)).astype(np.float32)
    check_close(call(ours, latents, method="decode"), network.decode(to_torch(latents)).sample, NETWORK_TOLERANCE)


def test_log_variance_is_bounded():
    network, ours = both.__wrapped__("one level")  # changed below
    latents = ours.config.latent_channels
    bias = np.zeros(2 * latents, np.float32)
    bias[latents:] = [100, -100, 0]
    ours.quant_conv.bias[...] = bias
    with torch.no_grad():
        network.quant_conv.bias.copy_(torch.from_numpy(bias))
    images = np.random.default_rng(0).uniform(-1, 1, (1, 4, 4, 3)).astype(np.float32)
    logvar = call(ours, images, method="encode")[1]
    check_close(logvar, network.encode(to_torch(images)).latent_dist.logvar, NETWORK_TOLERANCE)
    assert (np.max(logvar), np.min(logvar)) == (20, -30)


def test_epsilons_within_the_network():
    network = diffusers.AutoencoderKL(**CONFIGS["three levels"])
    config = AutoencoderKLConfig.from_dict(dict(network.config))
    ours = abstract(lambda rngs: AutoencoderKL(config, rngs=rngs))
    expected, found = group_norm_epsilons(network, ours)
    assert found == expected
    assert set(found.values()) == {1e-6}
