"""The text encoder against torch transformers; errors and tolerances as in test_unet."""

import numpy as np
import pytest
import torch
import transformers

from tests.parity.harness import NETWORK_TOLERANCE, call, check_close, pair
from winobench.models.clip import CLIPTextModel

SMALL = {"vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}
SMALL |= {"num_attention_heads": 4, "max_position_embeddings": 9, "bos_token_id": 48, "eos_token_id": 49}
SMALL |= {"pad_token_id": 49}
CONFIGS = {
    "quick_gelu": SMALL,
    "gelu": {**SMALL, "hidden_act": "gelu", "num_attention_heads": 1, "num_hidden_layers": 3},
    "epsilon": {**SMALL, "layer_norm_eps": 1e-2},
}
# Start, words, end, padding with the end's id; padding with another id; a whole row of words; an end in the middle.
IDS = np.array(
    [
        [48, 3, 7, 49, 49, 49, 49, 49, 49],
        [48, 3, 49, 0, 0, 0, 0, 0, 0],
        [48, 9, 8, 7, 6, 5, 4, 3, 49],
        [48, 2, 1, 2, 49, 5, 6, 7, 8],
    ],
    np.int32,
)


def compare(options, ids=IDS):
    """Compares states and pooled states. Returns ours."""
    network, ours = pair(transformers.CLIPTextModel(transformers.CLIPTextConfig(**options)), CLIPTextModel)
    expected, output = network(torch.from_numpy(ids).long()), call(ours, ids)
    theirs = [expected.last_hidden_state, expected.pooler_output]
    check_close([output.last_hidden_state, output.pooled], theirs, NETWORK_TOLERANCE)
    return output


@pytest.mark.parametrize("name", CONFIGS)
def test_network(name):
    compare(CONFIGS[name])


@pytest.mark.parametrize(("eos_token_id", "positions"), [(2, [3, 2, 8, 4]), (5, [0, 0, 5, 5])])
def test_pooled_position(eos_token_id, positions):
    """First position of the end's id; of the largest id where the config has the legacy 2, whatever 2 stands for."""
    output = compare({**SMALL, "eos_token_id": eos_token_id})
    np.testing.assert_array_equal(output.pooled, output.last_hidden_state[np.arange(4), positions])


def test_short_texts():
    compare(SMALL, IDS[:, :4])
