"""OPT by itself: a text piece by piece, 8-bit weights, published sizes, and configs that are refused.

Parity with torch is tested in a BLIP-2 (tests/parity/test_vision_language.py).
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.test_networks import filled
from tests.parity import harness
from tests.parity.harness import QUICK_COMPILATION
from winobench.models import decoder, decoder_cache
from winobench.models.opt import OPTForCausalLM
from winobench.models.opt_config import OPTConfig

CONFIG = OPTConfig(
    vocab_size=40, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=16
)
IDS = np.random.default_rng(0).integers(0, 40, (2, 9)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(9, dtype=np.int32), IDS.shape)


def abstract(config=CONFIG, **options):
    return harness.abstract(lambda rngs: OPTForCausalLM(config, rngs=rngs, **options))


@pytest.fixture(scope="module")
def network():
    return nnx.split(filled(OPTForCausalLM, CONFIG))


def test_piece_by_piece(network):
    """With padding, behind a text that all share, and after all layers: what a text at once gives."""

    def run(state):
        model = nnx.merge(network[0], state)
        whole, _ = model(IDS, POSITIONS)
        (after,) = model.states_after([2], IDS, POSITIONS)
        ids = np.concatenate([IDS[:, :1], IDS[:, :3], IDS[:, 3:]], axis=1)
        padded = np.concatenate([np.full((2, 1), -1, np.int32), POSITIONS], axis=1)
        first, cache = model(ids[:, :5], padded[:, :5], decoder_cache.make_cache(CONFIG, 2, 9))
        second, _ = model(ids[:, 5:], padded[:, 5:], cache)
        _, shared = model(IDS[:1, :4], POSITIONS[:1, :4], decoder_cache.make_cache(CONFIG, 1, 4))
        behind, _ = model(IDS[:1, 4:], POSITIONS[:1, 4:], decoder_cache.make_cache(CONFIG, 1, 5, prefix=shared))
        return whole, after, jnp.concatenate([first[:, 1:], second], axis=1), behind

    whole, after, pieces, behind = jax.jit(run, compiler_options=QUICK_COMPILATION)(network[1])
    for result, expected in ((after, whole), (pieces, whole), (behind, whole[:1, 4:])):
        np.testing.assert_allclose(result, expected, atol=2e-5)
    assert np.ptp(np.asarray(whole), axis=1).min() > 0.1


@pytest.mark.slow
def test_8_bit_weights(network):
    graph, state = nnx.split(abstract(int8=True))
    flat = dict(nnx.to_flat_state(network[1]))

    def values(path, leaf):
        if path[-1] not in ("kernel", "kernel_scale"):
            return flat[path]
        return leaf.replace(decoder.quantise(flat[(*path[:-1], "kernel")][...])[path[-1] == "kernel_scale"])

    rounded = nnx.from_flat_state([(path, values(path, leaf)) for path, leaf in nnx.to_flat_state(state)])
    int8 = [path for path, leaf in nnx.to_flat_state(rounded) if leaf.dtype == jnp.int8]
    assert len(int8) == 6 * CONFIG.num_hidden_layers

    def logits(graph, state):
        model = nnx.merge(graph, state)
        return model.logits(model(IDS, POSITIONS)[0])

    run = jax.jit(logits, static_argnums=0, compiler_options=QUICK_COMPILATION)
    exact, result = (np.asarray(run(*parts)) for parts in (network, (graph, rounded)))
    assert 1e-4 < np.std(result - exact) / np.std(exact) < 0.04


def test_configs_survive_their_files():
    assert OPTConfig.from_dict(CONFIG.to_dict()) == CONFIG


def test_texts_that_are_too_long(network):
    with pytest.raises(ValueError, match=r"17 tokens, but .* 16"):
        nnx.merge(*network)(np.zeros((1, 17), np.int32), np.arange(17)[None])
