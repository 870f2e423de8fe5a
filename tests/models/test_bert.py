"""BERT beside its values: configs, padding, dropout, dtypes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.expectations import names
from tests.models.test_networks import filled
from tests.parity.harness import QUICK_COMPILATION, relative_error
from tests.tiny_encoders import bert_config
from winobench.models.bert import BertConfig, BertForSequenceClassification, BertSelfAttention

IDS = np.random.default_rng(0).integers(0, 20, (3, 9)).astype(np.int32)
LENGTHS = np.array([9, 4, 1], np.int32)


@pytest.fixture(scope="module")
def model():
    return filled(BertForSequenceClassification, bert_config(num_hidden_layers=1))


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILATION)
def _run(graph, state, ids, lengths, kinds, seed):
    return nnx.merge(graph, state)(ids, lengths, kinds, key=None if seed is None else jax.random.key(seed))


def run(model, ids=IDS, lengths=LENGTHS, kinds=None, seed=None):
    return _run(*nnx.split(model), ids, lengths, np.zeros_like(ids) if kinds is None else kinds, seed)


def test_config_there_and_back():
    config = bert_config(classifier_dropout=0.2, hidden_act="gelu_new")
    values = config.to_dict()
    assert values["id2label"] == {"0": "contradiction", "1": "Entailment", "2": "neutral"}
    assert values["label2id"]["neutral"] == 2
    assert BertConfig.from_dict(values) == config
    hash(config)


@pytest.mark.parametrize(
    ("options", "labels"),
    [
        ({}, ("LABEL_0", "LABEL_1")),
        ({"id2label": {1: "b", "0": "a"}}, ("a", "b")),
        ({"label2id": {"b": 1, "a": 0}}, ("a", "b")),
    ],
)
def test_labels(options, labels):
    assert BertConfig.from_dict(options).labels == labels


def test_dropout_depends_on_the_key_alone(model):
    one, again, other = (run(model, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 0.01
    assert np.abs(one - run(model)).max() > 0.01


def test_attention_with_dropout_keeps_its_mean():
    """The mean over many keys is near the attention without dropout."""
    config = bert_config(attention_probs_dropout_prob=0.2)
    kwargs = {"dtype": jnp.float32, "param_dtype": jnp.float32}
    graph, state = nnx.split(BertSelfAttention(config, 16, rngs=nnx.Rngs(0), **kwargs))
    x = jnp.asarray(np.random.default_rng(0).normal(size=(1, 6, 16)), jnp.float32)

    @functools.partial(jax.jit, compiler_options=QUICK_COMPILATION)
    def run(state, keys):
        attention = nnx.merge(graph, state)
        inputs = (x, attention.keys_values(x), jnp.array([5]))
        return jax.vmap(lambda key: attention(*inputs, key))(keys), attention(*inputs)

    draws, wanted = run(state, jax.random.split(jax.random.key(0), 1000))
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - wanted) < 5 * error + 1e-6).all()
    assert error.min() > 0


def test_bfloat16_computes_the_head_in_float32(model):
    rounded = filled(BertForSequenceClassification, model.config, dtype="bfloat16")
    one, two = run(model), run(rounded)
    assert two.dtype == jnp.float32
    assert 1e-5 < relative_error(two, one) < 5e-2


def test_too_long(model):
    with pytest.raises(ValueError, match=names("65", "64")):
        model(np.zeros((1, 65), np.int32), np.array([65]))
