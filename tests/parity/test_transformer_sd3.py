"""Stable Diffusion 3's transformer against torch diffusers: what others do not have (see `test_transformers`)."""

import pytest
import torch
from flax import nnx

from tests.expectations import names
from tests.parity.harness import call, check_close, from_torch, relative_error
from tests.parity.transformer_families import FAMILIES, TOLERANCE
from winobench.models.transformer_sd3 import SD3Transformer2DModel

SD3 = FAMILIES["sd3"]
# The small network of the family is like 3.5-medium.
OTHERS = {
    "3-medium": {"dual_attention_layers": (), "qk_norm": None, "in_channels": 16, "out_channels": None},
    "one block": {"dual_attention_layers": (), "num_layers": 1, "patch_size": 1},
}


@pytest.mark.parametrize("name", OTHERS)
def test_network(name):
    theirs, ours = SD3.pair(**OTHERS[name])
    # Odd in positions, too, which are taken from the middle of the table.
    arguments = SD3.inputs(ours.config, height=6, width=8)
    check_close(call(ours, *arguments), SD3.predict(theirs, *arguments), TOLERANCE)


@pytest.mark.slow
def test_the_table_of_positions_is_read_and_made():
    """Files hold it, rounded to their dtype; where a network is new, it is computed: float32's last bits."""
    theirs, ours = SD3.pair(**OTHERS["3-medium"])
    table = theirs.pos_embed.pos_embed
    fresh = SD3Transformer2DModel(ours.config, rngs=nnx.Rngs(0))
    assert relative_error(fresh.pos_embed.pos_embed[...], table) < 1e-6
    with torch.no_grad():
        table += 1
    read = from_torch(SD3Transformer2DModel, ours.config, theirs)
    assert relative_error(read.pos_embed.pos_embed[...], table) == 0


def test_a_sample_of_another_size_is_refused():
    _, ours = SD3.pair(**OTHERS["3-medium"])
    for size in ((20, 8), (7, 8)):
        with pytest.raises(ValueError, match=names(str(size[0]), str(size[1]))):
            ours(*SD3.inputs(ours.config, height=size[0], width=size[1]))
