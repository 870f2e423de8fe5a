"""8-bit layers: their arithmetic by hand, which layers have it, and that nothing else changes."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.expectations import names
from tests.models.test_lora import UNET
from tests.models.test_networks import filled
from tests.parity.torch_copy import QUICK_COMPILATION
from winobench import checkpoints, parallel
from winobench.errors import InputError
from winobench.models import UNet2DConditionModel, functional, layers, lora, quantized
from winobench.models.base import linear

KINDS = tuple(quantized.DTYPES)
# Values of 8 bits: 127 steps for int8, 3 bits after the leading one for fp8. Of the largest output.
TOLERANCE = {"int8": 0.02, "fp8": 0.1}
FLOAT32 = {"dtype": jnp.float32, "param_dtype": jnp.float32, "rngs": nnx.Rngs(0)}


def rounded(x, kind, axes):
    """Values and scales of an array by hand, one scale for each index that is not along these axes; float32."""
    largest = np.abs(x).max(axis=axes, keepdims=True)
    if kind == "fp8":
        scale = largest / np.float32(448)
        return (x / scale).astype(jnp.float8_e4m3fn).astype(np.float32), scale
    scale = largest / np.float32(127)
    return np.round(x / scale), scale


def product(x, kernel, kind):
    """x [..., inputs] and kernel [inputs, outputs] by hand."""
    (x, x_scale), (kernel, kernel_scale) = rounded(x, kind, -1), rounded(kernel, kind, 0)
    return (x.astype(np.float64) @ kernel) * x_scale * kernel_scale


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def with_random_bias(layer):
    layer.bias.set_value(jnp.asarray(random(*layer.bias.shape, seed=9)))
    return layer


@pytest.mark.parametrize("kind", KINDS)
def test_dense_layers_are_the_definition(kind):
    base = with_random_bias(linear(24, 10, **FLOAT32))
    layer = quantized.QuantizedLinear(base, kind)
    x = random(3, 5, 24)
    expected = product(x, np.asarray(base.kernel[...]), kind) + np.asarray(base.bias[...])
    # Float32 against float64; a value that was rounded to the other side would be 1e-3 off.
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-5)
    exact = np.asarray(base(jnp.asarray(x)))
    assert 0 < np.abs(expected - exact).max() < TOLERANCE[kind] * np.abs(exact).max()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("size", "options"),
    [
        (1, {}),
        (3, {"padding": 1}),
        (3, {"stride": 2, "padding": ((0, 1), (0, 1))}),
        (2, {"stride": 2}),
        (1, {"stride": 2}),
        (1, {"padding": 1}),
    ],
)
def test_convolutions_are_the_definition(kind, size, options):
    base = with_random_bias(layers.Conv2d(6, 10, size, **options, **FLOAT32))
    layer = quantized.QuantizedConv2d(base, kind)
    x = random(2, 6, 7, 6) * np.array([1, 100], np.float32)[:, None, None, None]
    kernel = np.asarray(base.kernel[...])
    if size == 1 and not options:
        expected = product(x, kernel[0, 0], kind)
    else:
        (x_values, x_scale), (kernel, kernel_scale) = rounded(x, kind, (1, 2, 3)), rounded(kernel, kind, (0, 1, 2))
        # On these values the unquantised layer, which has its own tests, is exact.
        base.kernel.set_value(jnp.asarray(kernel))
        bias, base.bias = base.bias, None
        expected = np.asarray(base(jnp.asarray(x_values)), np.float64) * x_scale * kernel_scale
        base.bias = bias
    expected += np.asarray(base.bias[...])
    np.testing.assert_allclose(layer(jnp.asarray(x)), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layer", ["linear", "Conv2d"])
def test_rows_do_not_change_each_other(kind, layer):
    if layer == "linear":
        computed = quantized.QuantizedLinear(linear(6, 10, **FLOAT32), kind)
    else:
        computed = quantized.QuantizedConv2d(layers.Conv2d(6, 10, 3, padding=1, **FLOAT32), kind)
    x = random(4, 5, 5, 6)
    x[2:] *= 1000
    np.testing.assert_array_equal(computed(jnp.asarray(x))[:2], computed(jnp.asarray(x[:2])))


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_zeros(kind):
    base = linear(6, 10, **FLOAT32)
    np.testing.assert_array_equal(quantized.QuantizedLinear(base, kind)(jnp.zeros((2, 6))), 0)
    base.kernel.set_value(jnp.zeros_like(base.kernel[...]))
    np.testing.assert_array_equal(quantized.QuantizedLinear(base, kind)(jnp.ones((2, 6))), 0)


def outputs(unet):
    """Of a network with a compilation of its own, which may find what functions of JAX keep of earlier ones."""
    structure, arrays = functional.split(unet)
    inputs = random(2, 4, 4, 4), np.array([10, 700]), random(2, 5, 12)
    compute = jax.jit(lambda arrays, *inputs: structure.module(arrays)(*inputs), compiler_options=QUICK_COMPILATION)
    return np.asarray(compute(arrays, *inputs))


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [
        ("int8", jnp.float32),
        pytest.param("int8", jnp.bfloat16, marks=pytest.mark.slow),
        pytest.param("fp8", jnp.float32, marks=pytest.mark.slow),
    ],
)
def test_a_unet(kind, dtype):
    unet = filled(UNet2DConditionModel, UNET, dtype=dtype, param_dtype=dtype)
    before = outputs(unet)
    network = quantized.quantize(unet, kind)
    for name, layer in {".".join(map(str, path)): layer for path, layer in nnx.iter_modules(network)}.items():
        if name in ("conv_in", "conv_out", "time_embedding.linear_1", "time_embedding.linear_2"):
            assert type(layer) in (nnx.Linear, layers.Conv2d)
            assert layer.kernel.dtype == dtype
        elif hasattr(layer, "kernel"):
            assert type(layer) in (quantized.QuantizedLinear, quantized.QuantizedConv2d), name
            assert layer.kernel.dtype == quantized.DTYPES[kind]
            assert layer.kernel_scale.dtype == jnp.float32
    after = outputs(network)
    assert after.dtype == before.dtype == dtype
    exact, off = before.astype(np.float32), np.abs(after.astype(np.float32) - before.astype(np.float32))
    assert 0 < off.max() < 4 * TOLERANCE[kind] * np.abs(exact).max()
    # The network that it was made from is as it was, and what was compiled for one is not what the other runs.
    np.testing.assert_array_equal(outputs(unet), before)


def test_networks_that_are_built_alike_have_one_structure():
    unet = filled(UNet2DConditionModel, UNET)
    structures = [functional.split(network)[0] for network in (unet, *(quantized.quantize(unet, "int8") for _ in "ab"))]
    assert structures[1] == structures[2] != structures[0]


@pytest.mark.parametrize("kind", KINDS)
def test_devices_that_share_the_parameters(kind):
    """Where XLA gathers parts of one layer's result for the next layer, it lays it out in another order."""
    mesh = parallel.make_mesh(jax.devices("cpu")[:2], model_parallel=2)
    first = quantized.QuantizedConv2d(layers.Conv2d(32, 32, 3, padding=1, **FLOAT32), kind)
    second = layers.Conv2d(32, 32, 3, padding=1, **FLOAT32)
    structure, arrays = functional.split(nnx.List([first, second]))

    def compute(arrays, x):
        one, two = structure.module(arrays)
        return two(one(x))

    x = random(2, 8, 8, 32)
    alone = jax.jit(compute)(arrays, x)
    shared = jax.jit(compute)(parallel.place_parameters(arrays, mesh), parallel.put(x, parallel.replicated(mesh)))
    np.testing.assert_allclose(shared, alone, rtol=1e-4, atol=1e-4)


def test_adapters_are_fused_first():
    unet = filled(UNet2DConditionModel, UNET)
    lora.add_lora(unet, lora.LoRAConfig(), rngs=nnx.Rngs(0))
    with pytest.raises(InputError, match="LoRA adapters beside them: fuse the adapters into the weights"):
        quantized.quantize(unet, "int8")
    lora.fuse(unet)
    quantized.quantize(unet, "int8")


def test_files_have_no_place_for_8_bits(tmp_path):
    network = quantized.quantize(filled(UNet2DConditionModel, UNET), "int8")
    with pytest.raises(InputError, match="has weights in 8 bits, which its files have no place for"):
        checkpoints.save_model(network, tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_is_missing_or_unknown_is_told(monkeypatch):
    with pytest.raises(InputError, match=names("'int4'", "int8", "fp8")):
        quantized.check("int4")
    monkeypatch.setitem(sys.modules, "qwix", None)
    quantized.check("none")
    with pytest.raises(InputError, match=r"^quantization needs the package qwix .*pip install 'winobench\[quantiza"):
        quantized.check("int8")
