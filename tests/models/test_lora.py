"""Adapters: where they sit, that they start without effect, what trains, and that fusing changes rounding only."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.expectations import names, raises
from tests.models.test_networks import filled
from tests.parity.harness import relative_error
from winobench.base.errors import InputError
from winobench.models import lora
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig, CLIPTextModel
from winobench.models.layers import Conv2d
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

BLOCKS = {"down_block_types": ("CrossAttnDownBlock2D",), "up_block_types": ("UpBlock2D",), "block_out_channels": (8,)}
HEADS = {"layers_per_block": 1, "norm_num_groups": 4, "attention_head_dim": 2, "cross_attention_dim": 12}
UNET = UNet2DConditionConfig(sample_size=8, **BLOCKS, **HEADS)
SIZES = {"hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TEXT = CLIPTextConfig(vocab_size=20, max_position_embeddings=7, eos_token_id=19, **SIZES)


NETWORKS = {"unet": (UNet2DConditionModel, UNET), "text": (CLIPTextModel, TEXT)}

# Float32, relative to the largest output: fusing adds two products before they meet the input instead of after.
FUSED_TOLERANCE = 1e-5


def network(name="unet", dtype=jnp.float32):
    cls, config = NETWORKS[name]
    return filled(cls, config, dtype=dtype, param_dtype=dtype)


def adapted(name="unet", *, targets="all", rank=3, alpha=6.0, dropout=0.0, dtype=jnp.float32, seed=1):
    """A network whose adapters' second factors are random, so that they change the outputs."""
    module = network(name, dtype)
    lora.add_lora(module, lora.LoRAConfig(targets, rank, alpha, dropout), rngs=nnx.Rngs(seed))
    generator = np.random.default_rng(seed)
    for adapter in lora.adapters(module).values():
        values = 0.3 * generator.standard_normal(adapter.up.shape, np.float32)
        adapter.up.set_value(jnp.asarray(values))
    return module


def inputs(name="unet"):
    generator = np.random.default_rng(0)
    if name == "text":
        return (jnp.asarray(generator.integers(0, 20, (2, 7)), jnp.int32),)
    latents, context = (generator.standard_normal(shape, np.float32) for shape in ((2, 8, 8, 4), (2, 5, 12)))
    return jnp.asarray(latents), jnp.asarray([3, 700]), jnp.asarray(context)


@nnx.jit
def run(module, *args):
    result = module(*args)
    return getattr(result, "last_hidden_state", result)


def shapes(module, kind):
    _, chosen, _ = nnx.split(module, kind, ...)
    return {".".join(map(str, path)): leaf.shape for path, leaf in nnx.to_flat_state(chosen)}


def test_where_adapters_sit():
    module = network()
    before = shapes(module, nnx.Param)
    lora.add_lora(module, lora.LoRAConfig("cross", rank=3), rngs=nnx.Rngs(0))
    cross = {
        f"{block}.attentions.0.transformer_blocks.0.attn2.{layer}.lora.{part}": shape
        for block in ("down_blocks.0", "mid_block")
        for layer, width in (("to_q", 8), ("to_k", 12), ("to_v", 12), ("to_out.0", 8))
        for part, shape in (("down", (width, 3)), ("up", (3, 8)))
    }
    assert shapes(module, lora.LoRAParam) == cross
    # The base's own paths are all there, and nothing else.
    assert shapes(module, nnx.Param) == before | cross
    text = network("text")
    lora.add_lora(text, lora.LoRAConfig("all", rank=2), rngs=nnx.Rngs(0))
    layers = {f"text_model.encoder.layers.0.self_attn.{layer}_proj" for layer in ("q", "k", "v", "out")}
    assert lora.adapters(text).keys() == layers


@pytest.mark.slow
@pytest.mark.usefixtures("usual_optimizations")
@pytest.mark.parametrize(("name", "dtype"), [("text", jnp.bfloat16), ("unet", jnp.float32)])
def test_fresh_adapters_change_no_bit(name, dtype):
    module = network(name, dtype)
    expected = run(module, *inputs(name))
    before = jax.tree.leaves(nnx.state(module))
    lora.add_lora(module, lora.LoRAConfig("all", alpha=2.0), rngs=nnx.Rngs(0))
    got = run(module, *inputs(name))
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(got, np.float32), np.asarray(expected, np.float32))
    _, _, frozen = lora.split(module)
    for old, new in zip(before, jax.tree.leaves(frozen), strict=True):
        np.testing.assert_array_equal(np.asarray(new, np.float32), np.asarray(old, np.float32))


def test_first_factors_are_uniform_and_differ():
    """As torch starts a dense layer: uniform within 1 / sqrt(inputs), of variance 1 / (3 inputs)."""
    module = network("text")
    lora.add_lora(module, lora.LoRAConfig("all", rank=200), rngs=nnx.Rngs(0))
    drawn = [adapter.down[...] for adapter in lora.adapters(module).values()]
    assert len({float(values[0, 0]) for values in drawn}) == len(drawn)
    for values in drawn:
        bound = values.shape[0] ** -0.5
        assert 0.95 * bound < float(jnp.abs(values).max()) <= bound
        # 2400 draws: the standard error of the variance is about 2%.
        assert float(jnp.var(values)) == pytest.approx(bound**2 / 3, rel=0.1)
    assert all(not adapter.up[...].any() for adapter in lora.adapters(module).values())
    x = jnp.asarray(np.random.default_rng(0).standard_normal((3, 12), np.float32))
    (layer, *_), (base, *_) = (lora.linear_layers(either).values() for either in (module, network("text")))
    np.testing.assert_array_equal(layer(x), base(x))


def test_one_layer_is_the_formula():
    module = adapted("text", rank=3, alpha=6.0)
    layer_name, adapter = next(iter(lora.adapters(module).items()))
    layer = lora.linear_layers(module)[layer_name]
    x = np.random.default_rng(3).standard_normal((5, layer.in_features), np.float32)
    kernel, down, up = (np.asarray(part[...], np.float64) for part in (layer.kernel, adapter.down, adapter.up))
    bias = 0 if layer.bias is None else np.asarray(layer.bias[...], np.float64)
    expected = x @ kernel + bias + 6.0 / 3 * (x @ down) @ up
    assert relative_error(layer(jnp.asarray(x)), expected) < 1e-5


@pytest.mark.parametrize(
    ("name", "dtype"), [("text", jnp.float32), pytest.param("text", jnp.bfloat16, marks=pytest.mark.slow)]
)
def test_fused_is_unfused(name, dtype):
    """`test_convolutions` fuses a UNet."""
    module, base = adapted(name, dtype=dtype), network(name, dtype)
    _, trained, frozen = lora.split(module)
    assert {leaf.dtype for leaf in jax.tree.leaves(trained)} == {jnp.dtype("float32")}
    assert {leaf.dtype for leaf in jax.tree.leaves(frozen)} == {jnp.dtype(dtype)}
    apart, plain = run(module, *inputs(name)), run(base, *inputs(name))
    assert relative_error(apart, plain) > 0.01
    lora.fuse(module)
    assert not lora.adapters(module)
    # In half precision, 8 bits in a network of a few layers.
    tolerance = FUSED_TOLERANCE if dtype == jnp.float32 else 0.05
    assert relative_error(run(module, *inputs(name)), apart) < tolerance
    # Nothing of the adapters is left: the same structure, so the same compiled programs.
    assert nnx.split(module)[0] == nnx.split(base)[0]
    lora.fuse(module)
    assert relative_error(run(module, *inputs(name)), apart) < tolerance


@pytest.mark.slow
def test_training_reaches_the_adapters_alone():
    module = adapted(dropout=0.0)
    graph, trained, frozen = lora.split(module)
    assert shapes(nnx.merge(graph, trained, frozen), lora.LoRAParam) == shapes(module, lora.LoRAParam)

    @jax.jit
    def gradient(trained, frozen):
        def loss(trained):
            return jnp.mean(jnp.square(nnx.merge(graph, trained, frozen)(*inputs())))

        return jax.grad(loss)(trained)

    gradients = gradient(trained, frozen)
    result = {".".join(map(str, path)): leaf for path, leaf in nnx.to_flat_state(gradients)}
    assert set(result) == set(shapes(module, lora.LoRAParam))
    for name, leaf in result.items():
        assert np.abs(leaf.get_value()).max() > 0, name
    stepped = nnx.merge(graph, jax.tree.map(lambda p, g: p - 0.5 * g, trained, gradients), frozen)
    assert relative_error(run(stepped, *inputs()), run(module, *inputs())) > 1e-3
    lora.set_dropout_key(stepped, None)
    for old, new in zip(jax.tree.leaves(frozen), jax.tree.leaves(lora.split(stepped)[2]), strict=True):
        np.testing.assert_array_equal(old, new)


def test_dropout_is_for_training():
    module = adapted("text", dropout=0.5)
    graph, trained, frozen = lora.split(module)
    without = run(adapted("text", dropout=0.0), *inputs("text"))
    np.testing.assert_array_equal(run(module, *inputs("text")), without)

    @jax.jit
    def step(key):
        merged = nnx.merge(graph, trained, frozen)
        lora.set_dropout_key(merged, key)
        return merged(*inputs("text")).last_hidden_state

    first, again, other = step(jax.random.key(1)), step(jax.random.key(1)), step(jax.random.key(2))
    np.testing.assert_array_equal(first, again)
    assert relative_error(first, without) > 1e-3
    assert relative_error(first, other) > 1e-3
    # The network that is kept has no random state.
    assert len(jax.tree.leaves(nnx.state(module))) == len(jax.tree.leaves((trained, frozen)))
    lora.set_dropout_key(module, jax.random.key(1))
    assert relative_error(run(module, *inputs("text")), without) > 1e-3
    lora.set_dropout_key(module, None)
    np.testing.assert_array_equal(run(module, *inputs("text")), without)
    undropped = adapted("text", dropout=0.0)
    lora.set_dropout_key(undropped, jax.random.key(1))
    assert all(adapter.dropout_key is None for adapter in lora.adapters(undropped).values())


def test_dropout_keeps_the_mean():
    adapter = lora.LoRA(lora.Factors(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32), 1.0), dropout=0.25)
    adapter.dropout_key = lora.DropoutKey(jax.random.key(0))
    dropped = adapter(jnp.ones((4000, 4)), jnp.float32)
    np.testing.assert_allclose(np.unique(dropped), [0, 4 / 3], rtol=1e-6)
    # 16,000 draws: the standard error of the mean is 0.0046.
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"targets": "self"}, ("unknown-name", "targets", "'self'")),
        ({"rank": 0}, ("out-of-range", "rank", "0", "1")),
        ({"rank": True}, ("out-of-range", "rank", "True")),
        ({"alpha": float("nan")}, ("out-of-range", "alpha", "nan")),
        ({"dropout": 1.0}, ("out-of-range", "dropout", "1.0")),
        ({"dropout": "0.1"}, ("out-of-range", "dropout", "'0.1'")),
    ],
)
def test_bad_options(options, words):
    with raises(*words):
        lora.LoRAConfig(**options)


def test_scale_is_alpha_over_rank():
    assert lora.LoRAConfig(rank=8).scale == 1
    assert lora.LoRAConfig(rank=8, alpha=2).scale == 0.25
    assert {adapter.scale for adapter in lora.adapters(adapted("text", rank=4, alpha=6)).values()} == {1.5}


QUERY = "mid_block.attentions.0.transformer_blocks.0.attn2.to_q"


def factors(inputs=8, outputs=8, rank=2, other_rank=None):
    return lora.Factors(np.ones((inputs, rank)), np.ones((other_rank or rank, outputs)), 1.0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mid_block.attn3.to_q": factors()}, ("lora-misfit", "mid_block.attn3.to_q")),
        ({QUERY: factors(inputs=12)}, ("lora-misfit", "[12, 2]", "[2, 8]")),
        ({QUERY: factors(rank=2, other_rank=3)}, ("damaged-file", "2", "3")),
    ],
)
def test_adapters_that_do_not_fit_leave_the_network_as_it_was(values, words):
    module = network()
    values = {QUERY.replace("to_q", "to_out.0"): factors()} | values
    with raises(*words) as error:
        lora.attach(module, values)
    assert str(error.value).count(". ") == 0
    assert not lora.adapters(module)


@pytest.mark.slow
def test_convolutions():
    """Of 3 x 3 and of 1 x 1 pixels, with stride 2: beside the base and within it, they are the same convolution."""
    module, base, generator = network(), network(), np.random.default_rng(0)
    layers = {name: layer for name, layer in lora.adaptable_layers(module).items() if isinstance(layer, Conv2d)}
    assert {layer.kernel.shape[0] for layer in layers.values()} == {1, 3}
    values = {
        name: lora.Factors(
            0.3 * generator.standard_normal((*layer.kernel.shape[:-1], 2), np.float32),
            0.3 * generator.standard_normal((2, layer.kernel.shape[-1]), np.float32),
            0.5,
        )
        for name, layer in layers.items()
    }
    lora.attach(module, values)
    assert set(lora.adapters(module)) == set(layers)
    apart = run(module, *inputs())
    assert relative_error(apart, run(base, *inputs())) > 0.01
    shortcut = "up_blocks.0.resnets.0.conv_shortcut"
    parts = [jnp.asarray(generator.standard_normal((1, 4, 4, 8), np.float32)) for _ in range(2)]
    added = lora.adaptable_layers(module)[shortcut].added_to(jnp.ones((1, 4, 4, 8)), parts)
    lora.fuse(module)
    assert nnx.split(module)[0] == nnx.split(base)[0]
    assert relative_error(run(module, *inputs()), apart) < FUSED_TOLERANCE
    whole = lora.adaptable_layers(module)[shortcut](jnp.concatenate(parts, axis=-1))
    assert relative_error(added, 1 + whole) < FUSED_TOLERANCE


def test_any_dense_layer_can_be_adapted():
    module = network("text")
    expected = run(module, *inputs("text"))
    name = "text_model.encoder.layers.0.mlp.fc1"
    lora.attach(module, {name: factors(12, 16)})
    assert list(lora.adapters(module)) == [name]
    assert relative_error(run(module, *inputs("text")), expected) > 0.01


def test_one_set_of_adapters_at_a_time():
    module = adapted("text")
    with raises("has-lora", "CLIPTextModel", "LoRA"):
        lora.add_lora(module, lora.LoRAConfig(), rngs=nnx.Rngs(0))
    lora.fuse(module)
    lora.add_lora(module, lora.LoRAConfig(), rngs=nnx.Rngs(0))
    assert lora.adapters(module)


def test_other_networks():
    with pytest.raises(InputError, match=names("UNet2DConditionModel", "LoRA", "add_lora")):
        lora.split(network())
    blocks = {"down_block_types": ("DownEncoderBlock2D",), "up_block_types": ("UpDecoderBlock2D",)}
    config = AutoencoderKLConfig(block_out_channels=(4,), norm_num_groups=4, **blocks)
    with pytest.raises(TypeError, match=names("AutoencoderKL", "'cross'")):
        lora.add_lora(filled(AutoencoderKL, config), lora.LoRAConfig(), rngs=nnx.Rngs(0))
