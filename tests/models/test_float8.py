"""Dense layers whose products have factors of 8 bits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.test_networks import abstract, filled
from tests.parity.harness import call
from winobench.base.errors import InputError
from winobench.models import float8, lora
from winobench.models.base import linear
from winobench.models.transformer_sd3 import SD3Transformer2DModel, SD3TransformerConfig, TextConditions

_SIZES = {"param_dtype": jnp.float32, "rngs": nnx.Rngs(0)}


def _config():
    sizes = {"num_layers": 2, "num_attention_heads": 2, "attention_head_dim": 32, "caption_projection_dim": 64}
    sizes |= {"joint_attention_dim": 48, "pooled_projection_dim": 32, "sample_size": 8, "pos_embed_max_size": 4}
    sizes |= {"dual_attention_layers": (0,), "qk_norm": "rms_norm"}
    return SD3TransformerConfig(**sizes)


def _network():
    return filled(SD3Transformer2DModel, _config(), dtype=jnp.float32)


def _to_8_bits(x):
    """x [..., features] by the definition, as float32 and a scale."""
    scale = np.abs(x).max(axis=-1, keepdims=True) / 448
    return np.asarray(jnp.asarray(x / scale).astype(jnp.float8_e4m3fn).astype(jnp.float32)), scale


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_the_layer_is_the_product_of_its_rounded_factors(dtype, tolerance):
    layer = linear(96, 40, dtype=jnp.dtype(dtype), **_SIZES)
    rng = np.random.default_rng(0)
    layer.bias[...] = jnp.asarray(rng.standard_normal(40), jnp.float32)
    parts = [rng.standard_normal((3, 5, n)).astype(np.float32) * rng.uniform(0.1, 90, (3, 5, 1)) for n in (64, 32)]
    parts = [np.asarray(jnp.asarray(part, dtype).astype(jnp.float32)) for part in parts]
    kernel, kernel_scale = _to_8_bits(np.asarray(layer.kernel[...]).T)
    expected = np.asarray(layer.bias[...])
    for part, its in zip(parts, (kernel[:, :64], kernel[:, 64:]), strict=True):
        values, scale = _to_8_bits(part)
        expected = expected + values @ its.T * scale * kernel_scale[:, 0]
    result = np.asarray(float8.Float8Linear(layer)(*(jnp.asarray(part, dtype) for part in parts)).astype(jnp.float32))
    np.testing.assert_allclose(result, expected, atol=tolerance * np.abs(expected).max())
    exact = np.concatenate(parts, axis=-1) @ np.asarray(layer.kernel[...]) + np.asarray(layer.bias[...])
    assert 0.003 < np.abs(result - exact).mean() / np.abs(exact).mean() < 0.05


def test_a_position_does_not_change_another_and_zeros_stay():
    layer = float8.Float8Linear(linear(32, 16, dtype=jnp.float32, **_SIZES))
    x = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    other = x.copy()
    other[1:] *= 1000
    np.testing.assert_array_equal(layer(jnp.asarray(x))[0], layer(jnp.asarray(other))[0])
    assert not np.any(np.asarray(layer(jnp.zeros((2, 32)))))


def test_attention_and_feed_forward_of_a_network_are_rounded_and_nothing_else():
    network = _network()
    result = float8.rounded(network)
    names = {".".join(map(str, path)) for path, one in nnx.iter_modules(result) if isinstance(one, float8.Float8Linear)}
    assert len(names) == 2 * 12 - 1 + 4 - 2  # the last block ends the text
    assert {"transformer_blocks.0.attn2.to_out.0", "transformer_blocks.1.ff.net.0.proj"} <= names
    assert not any("norm" in name for name in names)
    assert result.pos_embed.proj.kernel[...] is network.pos_embed.proj.kernel[...]
    rng = np.random.default_rng(0)
    arrays = [jnp.asarray(rng.standard_normal(shape), jnp.float32) for shape in ((2, 8, 8, 16), (2, 7, 48), (2, 32))]
    inputs = (arrays[0], jnp.array([100.0, 900.0]), TextConditions(*arrays[1:]))
    exact, rounded = (np.asarray(call(module, *inputs)) for module in (network, result))
    assert 0 < np.abs(rounded - exact).mean() / np.abs(exact).mean() < 0.1
    without_values = abstract(lambda rngs: SD3Transformer2DModel(_config(), dtype=jnp.float32, rngs=rngs))
    shapes = nnx.state(float8.rounded(without_values))
    assert jax.tree.map(lambda a: (a.shape, a.dtype), shapes) == jax.tree.map(
        lambda a: (a.shape, a.dtype), nnx.state(result)
    )


def test_networks_that_have_no_such_layers_are_refused():
    with pytest.raises(InputError, match="layers that are computed in 8 bits") as error:
        float8.rounded(linear(8, 8, dtype=jnp.float32, **_SIZES))
    assert error.value.code == "no-layers"
    network = _network()
    lora.add_lora(network, lora.LoRAConfig(), rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="LoRA adapters") as error:
        float8.rounded(network)
    assert error.value.code == "has-lora"
