"""The UNet against torch diffusers, over the options.

Errors are the largest difference over the largest expected value, in float32 (tolerances: see harness).
"""

import functools

import diffusers
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.parity import harness, published_configs
from winobench.models import unet_2d_condition
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

# One level with a transformer, one without; the smallest SD 1.x.
SMALL = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
SMALL |= {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "block_out_channels": (16, 32), "layers_per_block": 1}
SMALL |= {"norm_num_groups": 8, "cross_attention_dim": 12, "attention_head_dim": 4}
BOTH = {
    **SMALL,
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
}
CONFIGS = {
    "sd1": {**SMALL, "attention_head_dim": 8},
    "sd2": {**SMALL, "use_linear_projection": True, "attention_head_dim": (2, 4), "upcast_attention": True},
    # The layout of the embedded model.
    "coarse level": {
        **SMALL,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    },
    "middle alone": {**SMALL, "down_block_types": ("DownBlock2D",) * 2, "up_block_types": ("UpBlock2D",) * 2},
    "three levels": {
        **SMALL,
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D", "CrossAttnUpBlock2D"),
        "block_out_channels": (16, 32, 48),
    },
    "per level": {
        **BOTH,
        "layers_per_block": (2, 1),
        "transformer_layers_per_block": (1, 2),
        "cross_attention_dim": (12, 12),
        "attention_head_dim": (1, 8),
    },
    "other values": {
        **SMALL,
        "in_channels": 5,
        "out_channels": 3,
        "center_input_sample": True,
        "flip_sin_to_cos": False,
        "freq_shift": 1,
        "mid_block_scale_factor": 1.7,
        "norm_eps": 1e-2,
        "transformer_layers_per_block": 2,
        "time_embedding_dim": 24,
        "conv_in_kernel": 1,
        "conv_out_kernel": 5,
        "act_fn": "swish",
    },
    "padding below and right": {**SMALL, "downsample_padding": 0},
}


def inputs(config, height=8, width=8):
    rng = np.random.default_rng(0)
    width_of_text = config.per_level("cross_attention_dim")[0]
    sample = rng.normal(size=(2, height, width, config.in_channels)).astype(np.float32)
    states = rng.normal(size=(2, 5, width_of_text)).astype(np.float32)
    return sample, np.array([3, 871]), states


def predict(network, sample, timesteps, states):
    with torch.no_grad():
        return network(harness.to_torch(sample), torch.from_numpy(timesteps), torch.from_numpy(states)).sample


@functools.cache
def both(name):
    return harness.pair(diffusers.UNet2DConditionModel(**CONFIGS[name]), UNet2DConditionModel)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "coarse level"])
def test_network(name):
    network, ours = both(name)
    arrays = inputs(ours.config, *((5, 9) if name == "three levels" else ()))
    harness.check_close(harness.call(ours, *arrays), predict(network, *arrays), harness.NETWORK_TOLERANCE)


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["coarse level", "per level"])
def test_several_texts_about_one_sample(name):
    """As torch does with each sample repeated; in an order of any kind, and with a sample that no text asks about.

    The times are between whole ones, and the sizes do not halve evenly.
    """
    network, ours = both(name)
    sample, _, _ = inputs(ours.config, 7, 10)
    sample, rows = np.concatenate([sample, sample + 1]), np.array([1, 1, 0, 3, 1])
    timesteps = np.array([0.25, 871, 5, 998.75], np.float32)
    states = np.random.default_rng(3).normal(size=(5, 5, ours.config.per_level("cross_attention_dim")[0]))
    states = states.astype(np.float32)
    expected = predict(network, sample[rows], timesteps[rows], states)
    harness.check_close(harness.call(ours, sample, timesteps, states, rows), expected, harness.NETWORK_TOLERANCE)
    whole = predict(network, sample[rows], timesteps[rows].round(), states)
    assert harness.relative_error(whole, expected) > 10 * harness.NETWORK_TOLERANCE


def test_epsilons_within_the_network():
    """``norm_eps`` reaches every norm but those of the transformers."""
    network = diffusers.UNet2DConditionModel(**{**BOTH, "norm_eps": 3e-4})
    ours = harness.abstract(
        lambda rngs: UNet2DConditionModel(UNet2DConditionConfig.from_dict(dict(network.config)), rngs=rngs)
    )
    expected, found = harness.group_norm_epsilons(network, ours)
    assert found == expected
    assert set(found.values()) == {3e-4, 1e-6}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sd15", "sd21"])
def test_full_width_block(name):
    """A block on the way up of the published network: what entered the level has its finer neighbour's width."""
    options = published_configs.UNETS[name]
    config = UNet2DConditionConfig.from_dict(options)
    with torch.device("meta"):
        source = diffusers.UNet2DConditionModel.from_config(options).up_blocks[2]
    source = harness.randomize(source.to_empty(device="cpu"))
    kwargs = {"dtype": jnp.float32, "param_dtype": jnp.float32}
    ours = harness.copy_parameters(
        source, harness.abstract(lambda rngs: unet_2d_condition.UpBlock(config, 2, rngs=rngs, **kwargs))
    )
    rng = np.random.default_rng(0)
    x, *skips = (rng.normal(size=(1, 8, 8, width)).astype(np.float32) for width in (1280, 320, 640, 640))
    time, states = (
        rng.normal(size=shape).astype(np.float32)
        for shape in ((1, 1280), (1, 77, config.per_level("cross_attention_dim")[0]))
    )
    given = {"encoder_hidden_states": torch.from_numpy(states)}
    with torch.no_grad():
        expected = source(harness.to_torch(x), tuple(map(harness.to_torch, skips)), torch.from_numpy(time), **given)
    harness.check_close(harness.call(ours, x, skips, time, states), expected, harness.NETWORK_TOLERANCE)
