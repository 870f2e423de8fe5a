"""The transformer of Stable Diffusion 3 and 3.5 against torch diffusers; errors and tolerances as in test_unet."""

import diffusers
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.expectations import names
from tests.parity.torch_copy import NETWORK_TOLERANCE, call, from_nchw, from_torch, randomize, relative_error, to_torch
from winobench.base.errors import InputError
from winobench.checkpoints import models
from winobench.models.transformer_sd3 import SD3Transformer2DModel, SD3TransformerConfig, TextConditions

SMALL = {
    "sample_size": 8,
    "num_layers": 3,
    "in_channels": 4,
    "out_channels": 4,
    "num_attention_heads": 3,
    "attention_head_dim": 8,
    "caption_projection_dim": 24,
    "joint_attention_dim": 20,
    "pooled_projection_dim": 12,
    "pos_embed_max_size": 9,
}
CONFIGS = {
    "3-medium": SMALL,
    "3.5-medium": {**SMALL, "dual_attention_layers": (0, 1), "qk_norm": "rms_norm"},
    "3.5-large": {**SMALL, "qk_norm": "rms_norm", "in_channels": 16, "out_channels": None},
    "one block": {**SMALL, "num_layers": 1, "patch_size": 1},
}


def pair(name, **options):
    theirs = randomize(diffusers.SD3Transformer2DModel(**{**CONFIGS[name], **options}))
    config = SD3TransformerConfig.from_dict(dict(theirs.config))
    return theirs, from_torch(SD3Transformer2DModel, config, theirs)


def inputs(config, size=(8, 12)):
    random = np.random.default_rng(0)
    sample = random.standard_normal((2, *size, config.in_channels), np.float32)
    states = random.standard_normal((2, 7, config.joint_attention_dim), np.float32)
    pooled = random.standard_normal((2, config.pooled_projection_dim), np.float32)
    return sample, np.array([3.5, 961.0], np.float32), TextConditions(states, pooled)


@torch.inference_mode()
def expected_of(theirs, sample, times, conditions):
    states, pooled = map(torch.tensor, conditions)
    return from_nchw(theirs(to_torch(sample), states, pooled, torch.tensor(times)).sample)


@pytest.mark.parametrize("name", CONFIGS)
def test_network(name):
    theirs, ours = pair(name)
    # Odd in positions, too, which are taken from the middle of the table.
    arguments = inputs(ours.config, (6, 8))
    assert relative_error(call(ours, *arguments), expected_of(theirs, *arguments)) < NETWORK_TOLERANCE


def test_the_table_of_positions_is_read_and_made():
    """Files hold it, rounded to their dtype; where a network is new, it is computed: float32's last bits."""
    theirs, ours = pair("3-medium")
    table = theirs.pos_embed.pos_embed
    fresh = SD3Transformer2DModel(ours.config, rngs=__import__("flax").nnx.Rngs(0))
    assert relative_error(fresh.pos_embed.pos_embed[...], table) < 1e-6
    with torch.no_grad():
        table += 1
    read = from_torch(SD3Transformer2DModel, ours.config, theirs)
    assert relative_error(read.pos_embed.pos_embed[...], table) == 0


def test_bfloat16_is_near():
    theirs, ours = pair("3.5-medium")
    arguments = inputs(ours.config)
    rounded = from_torch(SD3Transformer2DModel, ours.config, theirs, dtype=jnp.bfloat16)
    got = call(rounded, *arguments)
    assert got.dtype == jnp.bfloat16
    # 8 bits in three blocks.
    assert relative_error(got, expected_of(theirs, *arguments)) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("name", ["3-medium", "3.5-medium"])
def test_gradients_and_remat(name):
    theirs, ours = pair(name)
    sample, times, conditions = inputs(ours.config)

    def ours_of(sample, states, remat):
        return jnp.sum(jnp.sin(ours(sample, times, TextConditions(states, conditions.pooled), remat=remat)))

    gradients = {remat: jax.grad(ours_of, (0, 1))(sample, conditions.states, remat) for remat in (False, True)}
    x, states = to_torch(sample).requires_grad_(), torch.tensor(conditions.states).requires_grad_()
    theirs(x, states, torch.tensor(conditions.pooled), torch.tensor(times)).sample.sin().sum().backward()
    for found in gradients.values():
        assert relative_error(found[0], from_nchw(x.grad)) < 1e-4
        assert relative_error(found[1], states.grad) < 1e-4


@pytest.mark.parametrize(
    ("config", "options", "billions"),
    [
        (
            SD3TransformerConfig.sd3_medium(),
            {"num_layers": 24, "num_attention_heads": 24, "caption_projection_dim": 1536, "pos_embed_max_size": 192},
            2.08,
        ),
        (
            SD3TransformerConfig.sd35_medium(),
            {
                "num_layers": 24,
                "num_attention_heads": 24,
                "caption_projection_dim": 1536,
                "pos_embed_max_size": 384,
                "dual_attention_layers": tuple(range(13)),
                "qk_norm": "rms_norm",
            },
            2.47,
        ),
        (
            SD3TransformerConfig.sd35_large(),
            {
                "num_layers": 38,
                "num_attention_heads": 38,
                "caption_projection_dim": 2432,
                "pos_embed_max_size": 192,
                "qk_norm": "rms_norm",
            },
            8.15,
        ),
    ],
    ids=["3-medium", "3.5-medium", "3.5-large"],
)
def test_released_sizes(config, options, billions):
    """Parameter by parameter; the numbers of published model cards and the table of positions."""
    with torch.device("meta"):
        theirs = diffusers.SD3Transformer2DModel(**options)
    ours = models.torch_names(models.abstract_model(SD3Transformer2DModel, config))
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}
    assert {name: shape for name, (_, shape) in ours.items()} == shapes
    assert sum(map(np.prod, shapes.values())) / 1e9 == pytest.approx(billions, abs=0.01)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"caption_projection_dim": 16}, ("caption_projection_dim=16", "24")),
        ({"qk_norm": "layer_norm"}, ("qk_norm='layer_norm'", "rms_norm")),
        ({"dual_attention_layers": (3,)}, ("dual_attention_layers", "num_layers=3")),
        ({"sample_size": 40}, ("sample_size=40", "pos_embed_max_size=9")),
        ({"num_layers": 0}, ("num_layers=0",)),
        ({"out_channels": 0}, ("out_channels=0",)),
        ({"guidance_embeds": True}, ("guidance_embeds=True",)),
    ],
)
def test_configs_that_cannot_be_are_one_sentence(options, words):
    with pytest.raises(InputError, match=names("SD3TransformerConfig", *words)):
        SD3TransformerConfig.from_dict({**SMALL, **options})


def test_a_sample_of_another_size_is_refused():
    _, ours = pair("3-medium")
    for size in ((20, 8), (7, 8)):
        with pytest.raises(ValueError, match=names(str(size[0]), str(size[1]))):
            ours(*inputs(ours.config, size))
