"""The UNet against torch diffusers: whole networks over the options, and single blocks at full width.

Errors are the largest difference over the largest expected value, in float32 (tolerances: see torch_copy).
"""

import functools

import diffusers
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.transformers.transformer_2d import Transformer2DModel

from tests.parity import published_configs
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
from winobench.models import UNet2DConditionConfig, UNet2DConditionModel, stable_diffusion_blocks, unet_2d_condition

# One level with a transformer, one without; the smallest SD 1.x.
SMALL = {
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "cross_attention_dim": 12,
    "attention_head_dim": 4,
}
BOTH = {
    **SMALL,
    "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
}
CONFIGS = {
    "sd1": {**SMALL, "layers_per_block": 2, "attention_head_dim": 8},
    "sd2": {
        **SMALL,
        "use_linear_projection": True,
        "attention_head_dim": (2, 4),
        "upcast_attention": True,
        "layers_per_block": 2,
    },
    "both levels": BOTH,
    # The layout of the embedded model.
    "coarse level": {
        **SMALL,
        "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
        "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
    },
    "middle alone": {
        **SMALL,
        "down_block_types": ("DownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "UpBlock2D"),
    },
    "one level": {
        **SMALL,
        "down_block_types": ("CrossAttnDownBlock2D",),
        "up_block_types": ("CrossAttnUpBlock2D",),
        "block_out_channels": (16,),
    },
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
        return from_nchw(network(to_torch(sample), torch.from_numpy(timesteps), torch.from_numpy(states)).sample)


@functools.cache
def pair(name):
    """A random torch network and ours with the same parameters, read through its published config."""
    network = randomize(diffusers.UNet2DConditionModel(**CONFIGS[name]))
    config = UNet2DConditionConfig.from_dict(dict(network.config))
    return network, from_torch(UNet2DConditionModel, config, network)


_SLOW_CONFIGS = ("coarse level", "both levels", "three levels")  # whose parts other ones have


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW_CONFIGS)) for name in CONFIGS]
)
def test_network(name):
    network, ours = pair(name)
    arrays = inputs(ours.config)
    assert relative_error(call(ours, *arrays), predict(network, *arrays)) < NETWORK_TOLERANCE


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "coarse level" else pytest.mark.slow) for name in CONFIGS]
)
def test_several_texts_about_one_sample(name):
    """As torch does with each sample repeated; in an order of any kind, and with a sample that no text asks about."""
    network, ours = pair(name)
    sample, timesteps, _ = inputs(ours.config)
    sample, timesteps, rows = np.concatenate([sample, sample + 1]), np.array([3, 871, 5, 40]), np.array([1, 1, 0, 3, 1])
    states = np.random.default_rng(3).normal(size=(5, 5, ours.config.per_level("cross_attention_dim")[0]))
    states = states.astype(np.float32)
    expected = predict(network, sample[rows], timesteps[rows], states)
    assert relative_error(call(ours, sample, timesteps, states, rows), expected) < NETWORK_TOLERANCE


@pytest.mark.parametrize("size", [(7, 10), pytest.param((5, 9), marks=pytest.mark.slow)])
def test_sizes_that_do_not_halve_evenly(size):
    network, ours = pair("three levels")
    arrays = inputs(ours.config, *size)
    assert relative_error(call(ours, *arrays), predict(network, *arrays)) < NETWORK_TOLERANCE


@pytest.mark.parametrize(
    ("option", "default"),
    [
        ("center_input_sample", False),
        ("flip_sin_to_cos", True),
        ("freq_shift", 0),
        ("mid_block_scale_factor", 1),
        ("norm_eps", 1e-5),
        ("attention_head_dim", 1),
    ],
)
def test_options_without_parameters_matter(option, default):
    """Otherwise ``test_network`` would pass for an option that is ignored."""
    options = CONFIGS["other values"]
    network = randomize(diffusers.UNet2DConditionModel(**options))
    other = randomize(diffusers.UNet2DConditionModel(**{**options, option: default}))
    arrays = inputs(UNet2DConditionConfig.from_dict(dict(network.config)))
    assert relative_error(predict(other, *arrays), predict(network, *arrays)) > 10 * NETWORK_TOLERANCE


def test_fractional_timesteps():
    network, ours = pair("both levels")
    sample, _, states = inputs(ours.config)
    timesteps = np.array([0.25, 998.75], np.float32)
    expected = predict(network, sample, timesteps, states)
    assert relative_error(call(ours, sample, timesteps, states), expected) < NETWORK_TOLERANCE
    whole = predict(network, sample, timesteps.round(), states)
    assert relative_error(whole, expected) > 10 * NETWORK_TOLERANCE


def faint(*shape):
    """Values of a variance like the norms' epsilons, so that 1e-5 and 1e-6 give different results."""
    return (2e-3 * np.random.default_rng(1).normal(size=shape)).astype(np.float32)


def resnet_error(epsilon):
    network = randomize(ResnetBlock2D(in_channels=16, out_channels=24, temb_channels=20, groups=8, eps=1e-5))
    time = np.random.default_rng(2).normal(size=(2, 20)).astype(np.float32)
    ours = abstract(
        lambda rngs: stable_diffusion_blocks.ResnetBlock2D(
            16, 24, time_channels=20, groups=8, epsilon=epsilon, dtype=jnp.float32, param_dtype=jnp.float32, rngs=rngs
        )
    )
    x = faint(2, 6, 6, 16)
    expected = from_nchw(network(to_torch(x), torch.from_numpy(time)))
    return relative_error(call(copy_parameters(network, ours), x, time), expected)


def test_resnet_epsilon():
    """The UNet's published epsilon, told apart from the transformer's."""
    assert resnet_error(1e-5) < BLOCK_TOLERANCE
    assert resnet_error(1e-6) > 1e-2


@pytest.mark.parametrize("linear_projection", [False, True])
def test_transformer_epsilon(linear_projection):
    """1e-6 in the entry norm whatever ``norm_eps`` says."""
    network = randomize(
        Transformer2DModel(
            4, 4, in_channels=16, norm_num_groups=8, cross_attention_dim=12, use_linear_projection=linear_projection
        )
    )
    x = faint(2, 6, 6, 16)
    states = np.random.default_rng(2).normal(size=(2, 5, 12)).astype(np.float32)
    expected = from_nchw(network(to_torch(x), encoder_hidden_states=torch.from_numpy(states)).sample)
    ours = abstract(
        lambda rngs: stable_diffusion_blocks.Transformer2DModel(
            16,
            4,
            1,
            12,
            groups=8,
            linear_projection=linear_projection,
            dtype=jnp.float32,
            param_dtype=jnp.float32,
            rngs=rngs,
        )
    )
    ours = copy_parameters(network, ours)
    assert relative_error(call(ours, x, states), expected) < BLOCK_TOLERANCE
    ours.norm.epsilon = 1e-5
    assert relative_error(call(ours, x, states), expected) > 1e-2


def test_epsilons_within_the_network():
    """``norm_eps`` reaches every norm but those of the transformers."""
    network = diffusers.UNet2DConditionModel(**{**BOTH, "norm_eps": 3e-4})
    ours = abstract(lambda rngs: UNet2DConditionModel(UNet2DConditionConfig.from_dict(dict(network.config)), rngs=rngs))
    expected, found = group_norm_epsilons(network, ours)
    assert found == expected
    assert set(found.values()) == {3e-4, 1e-6}


def full_width(name, part):
    """A block of the published network, random, and ours with the same parameters."""
    options = published_configs.UNETS[name]
    config = UNet2DConditionConfig.from_dict(options)
    with torch.device("meta"):
        network = diffusers.UNet2DConditionModel.from_config(options)
    kwargs = {"dtype": jnp.float32, "param_dtype": jnp.float32}
    if part == "down":
        source = network.down_blocks[1]
        target = abstract(lambda rngs: unet_2d_condition.DownBlock(config, 1, rngs=rngs, **kwargs))
    elif part == "mid":
        source = network.mid_block
        target = abstract(lambda rngs: unet_2d_condition.MidBlock(config, rngs=rngs, **kwargs))
    else:
        source = network.up_blocks[2]
        target = abstract(lambda rngs: unet_2d_condition.UpBlock(config, 2, rngs=rngs, **kwargs))
    source = randomize(source.to_empty(device="cpu"))
    return source, copy_parameters(source, target), config


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sd15", "sd21"])
@pytest.mark.parametrize("part", ["down", "mid", "up"])
def test_full_width_block(name, part):
    source, ours, config = full_width(name, part)
    rng = np.random.default_rng(0)
    channels = {"down": 320, "mid": 1280, "up": 1280}[part]
    x = rng.normal(size=(1, 8, 8, channels)).astype(np.float32)
    time = rng.normal(size=(1, 1280)).astype(np.float32)
    states = rng.normal(size=(1, 77, config.cross_attention_dim)).astype(np.float32)
    torch_time, torch_states = torch.from_numpy(time), torch.from_numpy(states)
    with torch.no_grad():
        if part == "down":
            last, results = source(to_torch(x), torch_time, encoder_hidden_states=torch_states)
            y, skips = call(ours, x, time, states)
            assert len(results) == len(skips) == 3
            for ours_skip, theirs_skip in zip(skips, results, strict=True):
                assert relative_error(ours_skip, from_nchw(theirs_skip)) < NETWORK_TOLERANCE
        elif part == "mid":
            last = source(to_torch(x), torch_time, encoder_hidden_states=torch_states)
            y = call(ours, x, time, states)
        else:
            # What entered the level has its finer neighbour's width; the rest its own.
            skips = [rng.normal(size=(1, 8, 8, width)).astype(np.float32) for width in (320, 640, 640)]
            last = source(to_torch(x), tuple(map(to_torch, skips)), torch_time, encoder_hidden_states=torch_states)
            y = call(ours, x, skips, time, states)
    assert relative_error(y, from_nchw(last)) < NETWORK_TOLERANCE
