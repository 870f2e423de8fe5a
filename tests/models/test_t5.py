"""T5 beside its values: cached decoding, padding, buckets of distances, configs, 8-bit weights."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.test_networks import filled
from tests.parity.harness import QUICK_COMPILATION, abstract, call, relative_error
from winobench import parallel
from winobench.models import t5
from winobench.models.decoder import quantise
from winobench.models.t5 import T5Config, T5ForConditionalGeneration

SMALL = {"vocab_size": 30, "d_model": 12, "d_kv": 5, "d_ff": 16, "num_layers": 1, "num_decoder_layers": 2}
SMALL |= {"num_heads": 2, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12}
RNG = np.random.default_rng(0)
IDS, DECODED = RNG.integers(2, 30, (3, 7)).astype(np.int32), RNG.integers(2, 30, (3, 10)).astype(np.int32)
# Of the outputs, decoded one after the other with a cache.
PARTS = (4, 1, 5)
MASK = np.arange(7) < np.array([7, 3, 1])[:, None]


@functools.partial(jax.jit, static_argnums=(0, 4, 5), compiler_options=QUICK_COMPILATION)
def decoded(graph, state, ids, mask, parts, length, decoder_ids):
    """Logits without a cache, and in parts with one."""
    model = nnx.merge(graph, state)
    states = model.encode(ids, mask)
    whole = model.decode(decoder_ids, states, mask)
    cache = model.make_cache(states, mask, length)
    pieces, start = [], 0
    for count in parts:
        logits, cache = model.decode(decoder_ids[:, start : start + count], cache=cache)
        pieces.append(logits)
        start += count
    return whole, jnp.concatenate(pieces, axis=1), cache.used


@pytest.fixture(scope="module")
def model():
    return filled(T5ForConditionalGeneration, T5Config(**SMALL))


def test_cached_decoding_equals_uncached(model):
    whole, cached, used = decoded(*nnx.split(model), IDS, MASK, PARTS, 13, DECODED)
    assert (whole.dtype, whole.shape, int(used)) == (jnp.float32, (3, 10, 30), 10)
    np.testing.assert_allclose(cached, whole, atol=1e-5 * np.abs(whole).max())
    assert np.std(whole) > 0.01
    # A row that fills up a batch has no text at all.
    empty, _, _ = decoded(*nnx.split(model), IDS, np.zeros_like(MASK), PARTS, 13, DECODED)
    assert np.isfinite(empty).all()


def test_a_row_that_is_computed_for_nothing_changes_nothing(model, trace_for):
    """On TPUs, the attention of a single token is computed with a row beside it."""
    expected, cached, _ = decoded(*nnx.split(model), IDS, MASK, PARTS, 13, DECODED)
    trace_for(parallel.Device("tpu"))
    # Of another length, so that it is traced again.
    _, found, _ = decoded(*nnx.split(model), IDS, MASK, PARTS, 15, DECODED)
    np.testing.assert_allclose(found, cached, atol=1e-5 * np.abs(expected).max())


def test_buckets():
    """Half of a direction's buckets for one distance each, then ranges; nothing ahead for a decoder."""
    both, back = t5._buckets(20, 8, 16, True), t5._buckets(20, 8, 16, False)
    assert both[20:].tolist() == [0, 5, 6, 6, 6, 6, *[7] * 15]
    assert both[:21][::-1].tolist() == [0, 1, 2, 2, 2, 2, *[3] * 15]
    assert back[20:].tolist() == [0] * 21
    assert back[:21][::-1].tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, *[7] * 9]


def test_int8_is_near(model):
    graph = nnx.graphdef(abstract(lambda rngs: T5ForConditionalGeneration(model.config, int8=True, rngs=rngs)))
    rounded = jax.jit(quantise)
    flat = {}
    for path, leaf in nnx.to_flat_state(nnx.state(model)):
        if path[-1] == "kernel":
            kernel, scale = rounded(leaf.get_value())
            flat[path] = leaf.replace(kernel)
            flat[(*path[:-1], "kernel_scale")] = leaf.replace(scale)
        else:
            flat[path] = leaf
    exact, rounded_states = (
        call(nnx.merge(*parts), IDS, MASK, method="encode")
        for parts in (nnx.split(model), (graph, nnx.from_flat_state(flat)))
    )
    assert 1e-5 < relative_error(rounded_states, exact) < 0.1


def test_configs():
    config = T5Config.from_dict({"num_decoder_layers": None, "model_type": "t5", "n_positions": 512})
    assert config == T5Config()
    assert (config.num_decoder_layers, config.scale_decoder_outputs) == (6, True)
    assert not T5Config(tie_word_embeddings=False).scale_decoder_outputs
    assert T5Config.from_dict(config.to_dict()) == config
