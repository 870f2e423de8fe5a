"""The decoder by itself: padding, the cache, masks, 8-bit weights, memory, and configs that are refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import AbstractMesh

from tests.expectations import names
from tests.models.test_networks import filled
from tests.parity import harness
from tests.parity.harness import QUICK_COMPILATION
from winobench import parallel
from winobench.base.errors import InputError
from winobench.models import decoder, decoder_cache
from winobench.models.decoder import Decoder
from winobench.models.decoder_cache import make_cache
from winobench.models.decoder_config import DecoderConfig, RopeScaling

SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
CONFIG = DecoderConfig(vocab_size=40, num_hidden_layers=2, max_position_embeddings=32, **SIZES)


LENGTH = 10
IDS = np.random.default_rng(0).integers(0, 40, (2, LENGTH)).astype(np.int32)
POSITIONS = np.broadcast_to(np.arange(LENGTH, dtype=np.int32), IDS.shape)
# Rounding in other orders; a token too many or too few changes logits by a tenth.
CLOSE = {"rtol": 0, "atol": 2e-5}


def abstract(dtype=jnp.float32, **more):
    return nnx.split(harness.abstract(lambda rngs: Decoder(CONFIG, dtype=dtype, param_dtype=dtype, rngs=rngs, **more)))


@pytest.fixture(scope="module")
def network():
    """Weights of such size that attention is far from even and logits differ by about one."""
    return nnx.split(filled(Decoder, CONFIG))


@functools.partial(jax.jit, static_argnums=0, compiler_options=QUICK_COMPILATION)
def _run(graph, state, ids, positions, cache, mask):
    model = nnx.merge(graph, state)
    hidden, cache = model(ids, positions, cache, mask)
    return model.logits(hidden), cache


def run(network, ids, positions, cache=None, mask=None):
    return _run(*network, ids, positions, cache, mask)


@pytest.fixture(scope="module")
def expected(network):
    return np.asarray(run(network, IDS, POSITIONS)[0])


def test_logits_are_causal_and_depend_on_what_came_before(network, expected):
    assert expected.shape == (2, LENGTH, 40)
    changed = IDS.copy()
    changed[:, 5] = (changed[:, 5] + 1) % 40
    result = np.asarray(run(network, changed, POSITIONS)[0])
    np.testing.assert_array_equal(result[:, :5], expected[:, :5])
    assert np.abs(result - expected)[:, 5:].max(axis=-1).min() > 1e-2


@pytest.mark.parametrize("side", ["left", "right", "between"])
def test_padding_changes_nothing(network, expected, side):
    columns = {"left": [0, 0, 0, *range(7)], "right": [*range(7), 9, 9, 9], "between": [0, 1, 8, 2, 3, 8, 8, 4, 5, 6]}
    positions = {
        "left": [-1, -1, -1, *range(7)],
        "right": [*range(7), -1, -1, -1],
        "between": [0, 1, -1, 2, 3, -7, -1, 4, 5, 6],
    }
    positions = np.tile(np.asarray(positions[side], np.int32), (2, 1))
    result = np.asarray(run(network, IDS[:, columns[side]], positions)[0])
    assert np.isfinite(result).all()
    np.testing.assert_allclose(result[positions >= 0], expected[:, :7].reshape(-1, 40), **CLOSE)


def test_step_by_step_is_the_same_as_at_once(network, expected):
    cache = make_cache(CONFIG, 2, LENGTH + 2)
    parts = []
    for position in range(LENGTH):
        logits, cache = run(network, IDS[:, position : position + 1], POSITIONS[:, position : position + 1], cache)
        parts.append(logits)
    np.testing.assert_allclose(np.concatenate(parts, axis=1), expected, **CLOSE)
    np.testing.assert_array_equal(cache.written, np.arange(LENGTH + 2)[None].repeat(2, 0) < LENGTH)
    assert not np.any(cache.keys[-1][..., LENGTH:])
    assert not np.any(cache.values[-1][:, :, LENGTH:])


def test_prompt_is_computed_once_for_several_continuations(network, expected):
    """Padded prompts of two lengths in one cache, each continued twice; the first continuation is written over."""
    lengths = np.array([6, 4])
    prompt = np.where(POSITIONS[:, :6] < lengths[:, None], POSITIONS[:, :6], -1).astype(np.int32)
    first, cache = run(network, IDS[:, :6], prompt, make_cache(CONFIG, 2, 6))
    np.testing.assert_allclose(first[1, :4], expected[1, :4], **CLOSE)
    cache = cache.resize(LENGTH).repeat(2)
    assert [array.shape for array in cache.keys] == [(4, 2, 8, LENGTH)] * 2
    assert [array.shape for array in cache.values] == [(4, 2, LENGTH, 8)] * 2
    rows = np.repeat(np.arange(2), 2)
    positions = (lengths[rows][:, None] + np.arange(4)).astype(np.int32)
    continuation = np.take_along_axis(IDS[rows], positions, axis=1)
    wrong, written = run(network, (continuation + 1) % 40, positions, cache)
    for before in (cache, written):
        result = np.asarray(run(network, continuation, positions, before)[0])
        np.testing.assert_allclose(result, expected[rows[:, None], positions], **CLOSE)
    assert np.abs(wrong - result).max() > 1e-2


def test_shared_prefix_is_as_if_each_row_had_read_it(network, expected):
    """Rows that begin alike, padded prompts of two lengths behind a prefix of padded width, and their continuations."""
    ids = IDS.copy()
    ids[1, :3] = ids[0, :3]
    whole = np.asarray(run(network, ids, POSITIONS)[0])
    columns = np.array([[0, 1, 2, 9, 9]])
    before = np.array([[0, 1, 2, -1, -1]], np.int32)
    _, prefix = run(network, ids[:1, columns[0]], before, make_cache(CONFIG, 1, 5))
    lengths = np.array([4, 2])
    column = np.arange(4)
    prompt = np.where(column < lengths[:, None], 3 + column, -1).astype(np.int32)
    read, cache = run(network, ids[:, 3:7], prompt, make_cache(CONFIG, 2, 7, prefix=prefix))
    np.testing.assert_allclose(read[prompt >= 0], whole[:, 3:7][prompt >= 0], **CLOSE)
    cache = cache.repeat(2)
    rows = np.repeat(np.arange(2), 2)
    for step in range(2):
        positions = (3 + lengths[rows] + step)[:, None].astype(np.int32)
        result, cache = run(network, np.take_along_axis(ids[rows], positions, axis=1), positions, cache)
        np.testing.assert_allclose(result, whole[rows[:, None], positions], **CLOSE)
    np.testing.assert_array_equal(cache.written.sum(axis=1), lengths[rows] + 2)
    assert np.abs(whole - expected)[1, 3:].max() > 1e-2


def test_each_row_may_have_a_prefix_of_its_own(network, expected):
    """As of an image, about which questions of several lengths are asked, each continued twice."""
    _, prefix = run(network, IDS[:, :3], POSITIONS[:, :3], make_cache(CONFIG, 2, 3))
    lengths = np.array([4, 2])
    column = np.arange(4)
    prompt = np.where(column < lengths[:, None], 3 + column, -1).astype(np.int32)
    read, cache = run(network, IDS[:, 3:7], prompt, make_cache(CONFIG, 2, 5, prefix=prefix))
    np.testing.assert_allclose(read[prompt >= 0], expected[:, 3:7][prompt >= 0], **CLOSE)
    rows = np.repeat(np.arange(2), 2)
    positions = (3 + lengths[rows])[:, None].astype(np.int32)
    result, _ = run(network, np.take_along_axis(IDS[rows], positions, axis=1), positions, cache.repeat(2))
    np.testing.assert_allclose(result, expected[rows[:, None], positions], **CLOSE)


def test_nothing_is_seen_beyond_what_is_written(network):
    """Rubbish in slots that are marked empty changes nothing."""
    cache = make_cache(CONFIG, 2, LENGTH)
    keys, values = (tuple(array + 9 for array in arrays) for arrays in (cache.keys, cache.values))
    rubbish = decoder_cache.Cache(keys, values, cache.written)
    positions = POSITIONS[:, 3:6]
    clean, _ = run(network, IDS[:, 3:6], positions, cache)
    dirty, _ = run(network, IDS[:, 3:6], positions, rubbish)
    np.testing.assert_array_equal(clean, dirty)


def test_mask_keeps_texts_in_one_row_apart(network, expected):
    """Two continuations of one prompt side by side, at the same positions."""
    ids = np.concatenate([IDS[:, :4], IDS[:, 4:7], (IDS[:, 4:7] + 1) % 40], axis=1)
    positions = np.tile(np.array([0, 1, 2, 3, 4, 5, 6, 4, 5, 6], np.int32), (2, 1))
    group = np.array([0] * 4 + [1] * 3 + [2] * 3)
    mask = np.broadcast_to((group[None, :] == 0) | (group[:, None] == group[None, :]), (2, 10, 10))
    result = np.asarray(run(network, ids, positions, None, mask)[0])
    np.testing.assert_allclose(result[:, :7], expected[:, :7], **CLOSE)
    alone = np.asarray(run(network, np.delete(ids, [4, 5, 6], 1), np.delete(positions, [4, 5, 6], 1))[0])
    np.testing.assert_allclose(result[:, 7:], alone[:, 4:], **CLOSE)


@pytest.mark.slow
def test_bfloat16_is_close(network, expected):
    graph, _ = abstract(jnp.bfloat16)
    state = jax.tree.map(lambda x: x.astype(jnp.bfloat16), network[1])
    result, cache = run((graph, state), IDS, POSITIONS, make_cache(CONFIG, 2, LENGTH, jnp.bfloat16))
    assert result.dtype == jnp.float32
    assert cache.keys[0].dtype == jnp.bfloat16
    assert np.abs(result - expected).max() < 0.1 * np.abs(expected).max()


def test_quantise_rounds_each_output_channel_by_itself():
    kernel = np.random.default_rng(0).standard_normal((64, 5), np.float32) * np.array([1e-3, 1, 50, 0, 1], np.float32)
    numbers, scale = decoder.quantise(jnp.asarray(kernel))
    assert numbers.dtype == jnp.int8
    assert scale.shape == (5,)
    np.testing.assert_array_equal(np.abs(numbers).max(axis=0), [127, 127, 127, 0, 127])
    error = np.abs(numbers * np.asarray(scale) - kernel)
    assert (error <= np.abs(kernel).max(axis=0) / 127 / 2 * 1.001).all()


def test_texts_beyond_the_range_of_dynamic_scaling_are_refused():
    config = DecoderConfig.from_dict({**CONFIG.to_dict(), "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}})
    make_cache(config, 1, 32)
    with pytest.raises(ValueError, match=names("33")):
        make_cache(config, 1, 33)
    make_cache(CONFIG, 1, 33)


def test_a_row_that_is_computed_for_nothing_changes_nothing(trace_for):
    """On TPUs single rows are two."""
    rows = jnp.asarray(np.random.default_rng(0).standard_normal((3, 1, 8)), jnp.float32)
    matrix = jnp.asarray(np.random.default_rng(1).standard_normal((3, 8, 5)), jnp.float32)
    expected = decoder._matmul(rows, matrix, jnp.float32)
    single = decoder._dense(rows[0], matrix[0], jnp.float32)
    trace_for(parallel.Device("tpu"))
    assert decoder.with_spare_row(rows).shape == (3, 2, 8)
    assert decoder.with_spare_row(rows, axis=0) is rows
    np.testing.assert_allclose(decoder._matmul(rows, matrix, jnp.float32), expected, **CLOSE)
    for shape in ((8,), (1, 8), (1, 1, 8)):
        result = decoder._dense(rows[0].reshape(shape), matrix[0], jnp.float32)
        np.testing.assert_allclose(result, np.reshape(single, (*shape[:-1], 5)), **CLOSE)
    assert decoder._matmul(rows.reshape(1, 3, 8), matrix[0], jnp.float32).shape == (1, 3, 5)


def test_shardings_of_a_layer_leave_two_sums():
    _, state = abstract(int8=True)
    mesh = AbstractMesh((2, 4), ("data", "model"))
    shardings = nnx.to_flat_state(decoder.parameter_shardings(state, mesh))
    specs = {".".join(map(str, path)): tuple(leaf.get_value().spec) for path, leaf in shardings}
    assert specs["layers.0.self_attn.q_proj.kernel"] == (None, "model")
    assert specs["layers.0.self_attn.o_proj.kernel"] == ("model", None)
    assert specs["layers.0.self_attn.o_proj.kernel_scale"] == ()
    assert specs["layers.1.mlp.up_proj.kernel_scale"] == ("model",)
    assert specs["layers.1.mlp.down_proj.kernel"] == ("model", None)
    assert specs["layers.1.input_layernorm.scale"] == ()
    assert specs["embed_tokens.embedding"] == ("model", None)
    assert specs["lm_head.kernel"] == (None, "model")
    cache = decoder_cache.cache_shardings(CONFIG, 4, mesh)
    assert tuple(cache.keys[0].spec) == ("data", None, None, None)
    cache = decoder_cache.cache_shardings(CONFIG, 3, AbstractMesh((2, 2), ("data", "model")))
    assert tuple(cache.keys[1].spec) == (None, "model", None, None)


QWEN3 = {"model_type": "qwen3", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}


def test_published_configs():
    old = DecoderConfig.from_dict(
        {"model_type": "llama", "rope_scaling": {"type": "linear", "factor": 2.0}, "rope_theta": 1e6, "use_cache": True}
    )
    assert (old.head_dim, old.num_key_value_heads, old.rope_theta) == (128, 32, 1e6)
    assert old.rope_scaling == RopeScaling("linear", 2.0)
    new = DecoderConfig.from_dict(
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6}, "model_type": "llama"}
    )
    assert new == old
    assert hash(new) == hash(old)
    qwen = DecoderConfig.from_dict({**QWEN3, "sliding_window": 7, "layer_types": ["full_attention"] * 32})
    assert qwen.query_key_norm
    assert qwen.head_dim == 16
    # As llava-hf/llava-1.5-7b-hf has it, leaving out LLaMA's defaults.
    text = {"model_type": "llama", "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "vocab_size": 32064}
    llava = DecoderConfig.from_dict({"model_type": "llava", "text_config": text, "ignore_index": -100})
    assert (llava.hidden_size, llava.num_hidden_layers, llava.vocab_size) == (4096, 32, 32064)
    several = DecoderConfig.from_dict({"model_type": "llama", "eos_token_id": [5, 6]})
    assert several.eos_token_id == (5, 6)
    assert several.to_dict()["eos_token_id"] == [5, 6]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "qwen3_moe"}, "model type 'qwen3_moe' is not one of llama, qwen2, qwen3 and llava"),
        ({"model_type": "llava"}, "no text_config"),
        ({"model_type": "llama", "sliding_window": 4096}, "sliding_window=4096"),
        ({**QWEN3, "layer_types": ["full_attention", "sliding_attention"]}, "layer_types="),
        ({"num_experts": 8}, "unknown option num_experts=8"),
        ({"quantization_config": {"bits": 4}}, "weights are quantised"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "unsupported rope_type='yarn'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "needs a positive factor below 1,000,000,000, not None"),
        ({"rope_scaling": 4}, "rope_scaling=4 in the config is not an object"),
        ({"partial_rotary_factor": 0.5}, "unknown option partial_rotary_factor"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor other than 1"),
        ({"hidden_act": "gelu"}, "hidden_act='gelu'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads=3"),
        ({"head_dim": 5}, "head_dim=5"),
        ({"tie_word_embeddings": 1}, "tie_word_embeddings=1"),
        ({"model_type": ["llama"]}, "model type ['llama'] is not one of"),
        ({"rope_theta": 0}, "rope_theta=0. Expected a number from"),
        ({"rope_theta": 0, "rope_parameters": {"rope_theta": 1e4}}, "rope_theta=0 in one place and 10000.0"),
        ({"rope_scaling": {"type": "linear", "factor": 10**30}}, "positive factor below 1,000,000,000"),
    ],
)
def test_unsupported_configs_are_refused(options, message):
    with pytest.raises(InputError) as error:
        DecoderConfig.from_dict(options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)

    both = {"rope_theta": 1e6, "rope_scaling": {"type": "linear", "rope_type": "linear", "factor": 2.0}}
    assert DecoderConfig.from_dict({**both, "rope_parameters": {"rope_theta": 1e6}}) == DecoderConfig.from_dict(both)
