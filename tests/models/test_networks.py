"""What the networks promise beside their values: dtypes, purity, names, starting values."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.expectations import names
from tests.parity.harness import QUICK_COMPILATION, abstract, relative_error
from winobench.models.autoencoder_kl import AutoencoderKL, AutoencoderKLConfig
from winobench.models.clip import CLIPTextConfig, CLIPTextModel
from winobench.models.layers import Conv2d
from winobench.models.unet_2d_condition import UNet2DConditionModel
from winobench.models.unet_2d_condition_config import UNet2DConditionConfig

FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32}
BLOCKS = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "block_out_channels": (8, 16)}
BLOCKS |= {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"), "layers_per_block": 1, "norm_num_groups": 4}
UNET = UNet2DConditionConfig(**BLOCKS, cross_attention_dim=6, attention_head_dim=2)


VAE = AutoencoderKLConfig(block_out_channels=(4,), norm_num_groups=2)
TEXT = CLIPTextConfig(vocab_size=20, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)

NETWORKS = {"unet": (UNet2DConditionModel, UNET), "vae": (AutoencoderKL, VAE), "text": (CLIPTextModel, TEXT)}


_SHAPES = {}  # of networks without values, which take longer to make than the values


def filled(cls, config, **kwargs):
    """A network with random float32 values, rounded to its parameters' dtype, the same whatever that is.

    Drawn with NumPy: the initialisers would be compiled shape by shape.
    """
    rng = np.random.default_rng(0)
    key = (cls, repr(config), repr(kwargs))
    if key not in _SHAPES:
        _SHAPES[key] = nnx.split(abstract(lambda rngs: cls(config, rngs=rngs, **kwargs)))
    graph, state = _SHAPES[key]
    leaves = {}
    for path, leaf in nnx.to_flat_state(state):
        spread = np.prod(leaf.shape[:-1]) ** -0.5 if path[-1] == "kernel" else 0.3
        values = spread * rng.normal(size=leaf.shape) + (path[-1] == "scale")
        leaves[path] = leaf.replace(jnp.asarray(values.astype(np.float32), jnp.float32).astype(leaf.dtype))
    return nnx.merge(graph, nnx.from_flat_state(leaves))


def results(name, network):
    """Every output of a network, on fixed inputs, through ``nnx.split`` and plain ``jax.jit``."""
    rng = np.random.default_rng(0)
    image = rng.uniform(-1, 1, (2, 8, 8, 3)).astype(np.float32)
    latents = rng.normal(size=(2, 8, 8, 4)).astype(np.float32)
    states = rng.normal(size=(2, 5, 6)).astype(np.float32)
    ids = rng.integers(0, 20, (2, 7)).astype(np.int32)
    graph, state = nnx.split(network)

    @functools.partial(jax.jit, compiler_options=QUICK_COMPILATION)
    def run(state):
        network = nnx.merge(graph, state)
        if name == "unet":
            return network(latents, jnp.array([1, 900]), states)
        if name == "vae":
            return (*network.encode(image), network.decode(latents))
        return network(ids)

    return jax.tree.leaves(run(state))


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if name in ("unet", "vae") else ()) for name in NETWORKS]
)
def test_dtypes_are_separate(name):
    cls, config = NETWORKS[name]
    exact = filled(cls, config)
    mixed = filled(cls, config, dtype=jnp.bfloat16)
    stored = filled(cls, config, dtype="float32", param_dtype=jnp.bfloat16)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.state(mixed))} == {"float32"}
    assert {leaf.dtype.name for leaf in jax.tree.leaves(nnx.state(stored))} == {"bfloat16"}
    for a, b, c in zip(results(name, exact), results(name, mixed), results(name, stored), strict=True):
        assert (a.dtype, b.dtype, c.dtype) == (jnp.float32, jnp.bfloat16, jnp.float32)
        # bfloat16 rounds at 2^-9; a dozen layers add up to a few times that.
        for rounded in (b, c):
            assert 1e-5 < relative_error(rounded, a) < 5e-2


@pytest.mark.parametrize("name", NETWORKS)
def test_state_is_parameters_alone(name):
    """No generators or counters, so that a state is what a file holds."""
    cls, config = NETWORKS[name]
    network = abstract(lambda rngs: cls(config, rngs=rngs))
    assert jax.tree.structure(nnx.state(network)) == jax.tree.structure(nnx.state(network, nnx.Param))
    hash(nnx.graphdef(network))
    again = abstract(lambda rngs: cls(config, rngs=rngs))
    assert nnx.graphdef(again) == nnx.graphdef(network)


def test_start_is_the_published_one():
    """Uniform within 1 / sqrt(fan in), as torch starts; biases 0, norms 1; the same seed, the same values."""
    config = CLIPTextConfig(
        vocab_size=300, hidden_size=64, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
    )
    first, same, other = (CLIPTextModel(config, rngs=nnx.Rngs(seed)).text_model for seed in (0, 0, 1))
    layer = first.encoder.layers[0]
    for kernel in (layer.mlp.fc1.kernel[...], Conv2d(64, 64, 3, **FLOAT32, rngs=nnx.Rngs(0)).kernel[...]):
        bound = np.prod(kernel.shape[:-1]) ** -0.5
        assert 0.95 * bound < np.max(np.abs(kernel)) <= bound
        assert np.std(kernel) == pytest.approx(bound / 3**0.5, rel=0.05)
    assert np.std(first.embeddings.token_embedding.embedding[...]) == pytest.approx(0.02, rel=0.05)
    assert not np.any(layer.mlp.fc1.bias[...])
    assert np.all(np.asarray(layer.layer_norm1.scale[...]) == 1)
    np.testing.assert_array_equal(layer.mlp.fc1.kernel[...], same.encoder.layers[0].mlp.fc1.kernel[...])
    assert np.any(layer.mlp.fc1.kernel[...] != other.encoder.layers[0].mlp.fc1.kernel[...])


def test_text_too_long():
    network = filled(CLIPTextModel, TEXT)
    with pytest.raises(ValueError, match=names("78", "77")):
        network(jnp.zeros((1, 78), jnp.int32))
