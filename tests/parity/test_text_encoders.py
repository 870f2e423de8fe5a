"""BERT and T5 against torch transformers; errors and tolerances as in test_unet.

Float32, relative to the largest expected value. Measured: 1e-7 to 5e-7 for states and logits.
"""

import numpy as np
import pytest
import torch
import transformers
from flax import nnx
from transformers.models.t5 import modeling_t5

from tests.parity.harness import NETWORK_TOLERANCE, call, check_close, file_tensors, pair, randomize
from winobench import checkpoints
from winobench.checkpoints import encoder_layouts
from winobench.models import t5
from winobench.models.bert import BertConfig, BertForSequenceClassification, BertModel
from winobench.models.t5 import T5Config

pytestmark = pytest.mark.usefixtures("no_gradients")
RNG = np.random.default_rng(0)
IDS = RNG.integers(2, 50, (3, 20)).astype(np.int32)
DECODED = RNG.integers(2, 50, (3, 17)).astype(np.int32)
LENGTHS = np.array([20, 13, 1], np.int32)
MASK = np.arange(20) < LENGTHS[:, None]
KINDS = (np.arange(20) > 5).astype(np.int32)[None].repeat(3, axis=0)

# The epsilon is larger than the published one, so that a forgotten one shows.
BERT = {"vocab_size": 50, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
BERT |= {"max_position_embeddings": 20, "layer_norm_eps": 0.03}
T5 = {"vocab_size": 50, "d_model": 16, "d_kv": 5, "d_ff": 24, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 3}
T5 |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "layer_norm_epsilon": 0.02}
T5S = {
    "relu, tied": {"relative_attention_num_buckets": 32, "relative_attention_max_distance": 128},
    "gated, untied": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def bert_inputs():
    return {
        "input_ids": torch.from_numpy(IDS).long(),
        "attention_mask": torch.from_numpy(MASK).long(),
        "token_type_ids": torch.from_numpy(KINDS).long(),
    }


def test_bert_classifier():
    options = {**BERT, "hidden_act": "gelu_new", "num_labels": 3}
    network = randomize(transformers.BertForSequenceClassification(transformers.BertConfig(**options)))
    config = BertConfig.from_dict(network.config.to_dict())
    named = encoder_layouts.from_bert_layouts(file_tensors(network))
    ours = checkpoints.build_model(BertForSequenceClassification, config, named)
    check_close(call(ours, IDS, LENGTHS, KINDS), network(**bert_inputs()).logits, NETWORK_TOLERANCE)


def test_bert_encoder():
    network, ours = pair(transformers.BertModel(transformers.BertConfig(**BERT)), BertModel)
    expected, output = network(**bert_inputs()), call(ours, IDS, LENGTHS, KINDS)
    theirs = [expected.last_hidden_state[MASK], expected.pooler_output]
    check_close([np.asarray(output.last_hidden_state)[MASK], output.pooled], theirs, NETWORK_TOLERANCE)


def t5_pair(options):
    network = randomize(transformers.T5ForConditionalGeneration(transformers.T5Config(**T5 | options)))
    config = T5Config(**T5 | options)
    if not config.tie_word_embeddings:
        # transformers 5 ties whatever the config says, until a file has another head.
        generator = torch.Generator().manual_seed(1)
        network.lm_head.weight = torch.nn.Parameter(torch.randn(50, 16, generator=generator) / 4)
    return network, *encoder_layouts.build_t5(config, file_tensors(network))


@pytest.mark.parametrize("name", T5S)
def test_t5(name):
    network, config, (graph, state), _ = t5_pair(T5S[name])
    assert config.tie_word_embeddings == ("untied" not in name)
    ours = nnx.merge(graph, state)
    expected = network(
        input_ids=torch.from_numpy(IDS).long(),
        attention_mask=torch.from_numpy(MASK).long(),
        decoder_input_ids=torch.from_numpy(DECODED).long(),
    )
    states = call(ours, IDS, MASK, method="encode")
    logits = call(ours, DECODED, states, MASK, method="decode")
    theirs = [expected.encoder_last_hidden_state[MASK], expected.logits]
    check_close([np.asarray(states)[MASK], logits], theirs, NETWORK_TOLERANCE)


@pytest.mark.parametrize(("buckets", "distance"), [(32, 128), (8, 12), (32, 256), (16, 64), (12, 100)])
@pytest.mark.parametrize("both_ways", [True, False])
def test_t5_buckets(buckets, distance, both_ways):
    """All distances up to 600, since a range's end may round either way."""
    distances = torch.arange(-600, 601)
    expected = modeling_t5.T5Attention._relative_position_bucket(distances, both_ways, buckets, distance)
    np.testing.assert_array_equal(t5._buckets(600, buckets, distance, both_ways), expected.numpy())
