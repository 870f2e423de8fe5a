"""Devices that share a language model's parameters: which collectives its programs have, and that nothing changes."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from flax import nnx

from tests.parity import harness
from tests.parity.harness import QUICK_COMPILATION
from winobench import parallel
from winobench.checkpoints import encoder_layouts, language_models
from winobench.contrib.planning import compiling, hlo
from winobench.models import decoder, functional, opt, t5
from winobench.models.decoder_config import DecoderConfig
from winobench.models.opt_config import OPTConfig
from winobench.models.t5 import T5Config
from winobench.responders import decoding

LAYERS = 2
WIDTH = 16
COUNT = 3  # of options


def llama(**options):
    return DecoderConfig(
        **{
            "vocab_size": 64,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
        }
        | options
    )


def flan(**options):
    return T5Config(
        **{"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": LAYERS, "num_heads": 4}
        | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
        | options
    )


def opt_of(**options):
    return OPTConfig(
        **{"vocab_size": 64, "hidden_size": 32, "ffn_dim": 48, "num_hidden_layers": LAYERS, "num_attention_heads": 8}
        | {"max_position_embeddings": 32}
        | options
    )


def abstract_opt(config, dtype, **options):
    return harness.abstract(lambda rngs: opt.OPTForCausalLM(config, dtype=dtype, rngs=rngs, **options))


MAKERS = {
    DecoderConfig: (language_models.abstract_decoder, decoder.parameter_shardings),
    OPTConfig: (abstract_opt, opt.parameter_shardings),
    T5Config: (encoder_layouts.abstract_t5, t5.parameter_shardings),
}


def abstract(config, **options):
    make, shardings = MAKERS[type(config)]
    return nnx.split(make(config, "float32", **options)), shardings


class Case(NamedTuple):
    """What lowers a program, and arrays or shapes that it takes."""

    lower: Any
    arguments: tuple


def programs(config, mesh, values=None, **options):
    """Generation and scoring of four rows, on parameters that are there or on their shapes."""
    (graph, state), shardings = abstract(config, **options)
    places = shardings(state, mesh)
    if values is None:
        state = jax.tree.map(lambda a, place: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=place), state, places)
    else:
        state = jax.tree.map(parallel.put, values, places)
    params, tree = jax.tree.flatten(state)
    start = 0 if isinstance(config, T5Config) else None
    program = decoding.Program(functional.Structure(graph, tree), mesh, "float32", start, (2,))
    rng, split = np.random.default_rng(0), parallel.split_axis(mesh)

    def put(values):
        return parallel.put(np.asarray(values, np.int32), split)

    ids, asked = rng.integers(3, 64, (4, WIDTH)), rng.integers(3, 64, (4, COUNT, 4))
    none = parallel.put(np.int32(0), parallel.replicated(mesh))
    prompts = decoding.Prompts(None, none, put(ids), put([16, 7, 1, 12]))
    texts = params, prompts, put([8] * 4), None
    scored = params, prompts, put(asked), put(np.full((4, COUNT), 3))
    return (
        Case(lambda: quickly(decoding.generate, "width").lower(program, *texts, width=8), texts),
        Case(lambda: quickly(decoding.score_options).lower(program, *scored), scored),
    )


def quickly(function, *static):
    """The function, compiled with few optimizations."""
    return jax.jit(function.__wrapped__, static_argnames=("program", *static), compiler_options=QUICK_COMPILATION)


def random_values(config):
    (_, state), _ = abstract(config)
    rng = np.random.default_rng(1)

    def values(path, leaf):
        noise = rng.standard_normal(leaf.shape, np.float32)
        if path[-1] == "scale":
            return leaf.replace(1 + 0.2 * noise)
        if leaf.ndim == 1:
            return leaf.replace(0.2 * noise)
        return leaf.replace(noise if path[-1] == "embedding" else noise * leaf.shape[-2] ** -0.5)

    return nnx.from_flat_state([(path, values(path, leaf)) for path, leaf in nnx.to_flat_state(state)])


def counted(lowered):
    """Collectives of what runs once, and of a turn of the loop over the tokens."""
    kernels = hlo.kernels(hlo.parse(lowered.compile().as_text()))
    return [compiling.collectives([k for k in kernels if k.in_open_loop == loop]) for loop in (False, True)]


def mesh_of(data, model):
    return parallel.make_mesh(jax.devices()[: data * model], model_parallel=model)


# The largest logit of each row, the first token that has it, and whether any row goes on: one number each.
CHOICE = 3


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("config", "shape", "others", "options"),
    [
        (llama(), (1, 2), 1 + CHOICE, {"int8": True}),
        # Embedding and head are whole on every device, so that only the layers and the end of the loop are left.
        (llama(vocab_size=66), (1, 4), 1, {}),
        # Neither positions nor norms, which have biases, split the states.
        (opt_of(), (1, 4), 1 + CHOICE, {}),
        (llama(model_type="qwen3", attention_bias=True, tie_word_embeddings=True), (1, 4), 1 + CHOICE, {}),
        (llama(), (2, 2), 1 + CHOICE, {}),
    ],
    ids=["int8", "indivisible", "opt", "biases and tied", "rows too"],
)
def test_collectives_of_a_decoder(config, shape, others, options):
    """Of prompts and of each token alike: two for each layer, and one for the embedding."""
    generate, _ = programs(config, mesh_of(*shape), **options)
    assert counted(generate.lower()) == [{"all-reduce": 2 * LAYERS + others}] * 2


def test_collectives_of_a_t5():
    """Layers of the encoder have two, those of the decoder three; both embeddings of the first step are one."""
    generate, _ = programs(flan(), mesh_of(1, 2))
    assert counted(generate.lower()) == [
        {"all-reduce": 2 * LAYERS + 3 * LAYERS + 1 + CHOICE},
        {"all-reduce": 3 * LAYERS + 1 + CHOICE},
    ]


def test_collectives_of_options():
    """Whatever is merged, nothing is gathered or split again."""
    _, score = programs(llama(), mesh_of(1, 4))
    found, in_loop = counted(score.lower())
    # Of the prompt, and of the options; and of each logits the largest one, the sum, and that of the option.
    assert found.keys() == {"all-reduce"}
    assert found["all-reduce"] <= 2 * (2 * LAYERS + 1) + 6
    assert in_loop == {}


@pytest.mark.slow  # the tests of language models that answer ask the same of one that is shared
@pytest.mark.parametrize(
    ("config", "shape"),
    [
        (llama(num_hidden_layers=1), (2, 2)),
        (llama(vocab_size=66, tie_word_embeddings=True), (1, 4)),
        (llama(num_key_value_heads=2), (1, 4)),
        (opt_of(), (1, 4)),
        (flan(), (2, 2)),
    ],
    ids=["llama", "indivisible", "heads", "opt", "t5"],
)
def test_sharing_changes_nothing(config, shape):
    values = random_values(config)
    alone, (texts, scores) = (
        [each.lower().compile()(*each.arguments) for each in programs(config, mesh_of(*mesh), values)]
        for mesh in ((1, 1), shape)
    )
    np.testing.assert_array_equal(texts[0], alone[0][0])
    np.testing.assert_allclose(scores, alone[1], rtol=1e-5)
    # Texts that differ, and scores that are not all alike.
    assert len(np.unique(alone[0][0])) >= 4
    assert np.std(alone[1]) > 0.5
