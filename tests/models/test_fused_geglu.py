"""The kernel of GEGLU in Pallas' interpreter, against GELU by its definition and against the plain layer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special
from flax import nnx

from winobench import parallel
from winobench.models import fused_geglu, lora
from winobench.models.stable_diffusion_blocks import GEGLU

HOPPER = (9, 0)


def arrays(rows, inputs, outputs, dtype, seed=0):
    random = np.random.default_rng(seed)
    x = random.normal(size=(*rows, inputs))
    kernel = 3 * random.normal(size=(inputs, 2 * outputs)) / np.sqrt(inputs)
    return tuple(jnp.asarray(a, dtype) for a in (x, kernel, random.normal(size=(2 * outputs,))))


def by_definition(x, kernel, bias):
    """In float64."""
    values, gate = np.split(np.float64(x) @ np.float64(kernel) + np.float64(bias), 2, axis=-1)
    return values * gate * 0.5 * (1 + scipy.special.erf(gate / np.sqrt(2)))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    # Float32 to rounding; bfloat16 to the single rounding of the result, 2^-8 of it.
    [(jnp.float32, 2e-6), (jnp.bfloat16, 2.0**-8)],
)
def test_values(dtype, tolerance):
    """Several blocks of rows, columns and inputs, and gates from -15 to 15."""
    inputs = arrays((2, 128), 128, 192, dtype)
    result = fused_geglu.fused(*inputs, True)
    assert result.dtype == dtype
    assert result.shape == (2, 128, 192)
    np.testing.assert_allclose(np.float64(result), by_definition(*inputs), rtol=tolerance, atol=2e-5)


def test_gradients_are_those_of_the_plain_layer():
    inputs = arrays((128,), 64, 64, jnp.float32)

    def total(function):
        return jax.grad(lambda *a: jnp.sum(jnp.sin(function(*a))), (0, 1, 2))(*inputs)

    for ours, theirs in zip(total(lambda *a: fused_geglu.fused(*a, True)), total(fused_geglu.plain), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("platform", ["tpu", "cpu"])
def test_gelu_by_exp(trace_for, platform):
    """To rounding in float32, by the definition in float64, and so is its gradient."""
    trace_for(parallel.Device(platform))
    x = jnp.linspace(-15, 15, 30_001)
    exact = np.float64(x) * scipy.special.ndtr(np.float64(x))
    np.testing.assert_allclose(fused_geglu.gelu_by_exp(x), exact, rtol=2e-7, atol=3e-7)
    slope = jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, approximate=False)))(x)
    np.testing.assert_allclose(jax.vmap(jax.grad(fused_geglu.gelu_by_exp))(x), slope, atol=2e-6)


@pytest.mark.parametrize(("dtype", "expected"), [(jnp.bfloat16, True), (jnp.float32, False)])
def test_tpus_have_their_own_gelu(trace_for, dtype, expected):
    """In bfloat16, and to its rounding of GELU and of the result."""
    product = 3 * jnp.asarray(np.random.default_rng(0).normal(size=(4, 64)), dtype)
    values, gate = np.split(np.float64(product), 2, axis=-1)
    trace_for(parallel.Device("tpu", "TPU v5 lite"))
    text = str(jax.make_jaxpr(lambda x: fused_geglu.gated(x))(product))
    assert (" exp " in text and " erf" not in text) is expected
    exact = values * gate * scipy.special.ndtr(gate)
    np.testing.assert_allclose(np.float64(fused_geglu.gated(product)), exact, rtol=2.0**-7, atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "dtype", "capability", "expected"),
    [
        ((32, 4096), 320, 1280, jnp.bfloat16, HOPPER, True),
        ((32, 1024), 640, 2560, jnp.bfloat16, (8, 0), True),
        ((32, 256), 1280, 5120, jnp.bfloat16, HOPPER, False),  # the product is what takes time
        ((1, 100), 320, 1280, jnp.bfloat16, HOPPER, False),  # no whole number of blocks
        ((32, 4096), 96, 384, jnp.bfloat16, HOPPER, False),
        ((32, 4096), 320, 1280, jnp.float32, HOPPER, False),
        ((32, 4096), 320, 1280, jnp.bfloat16, None, False),
    ],
)
def test_what_it_takes(rows, inputs, outputs, dtype, capability, expected):
    x, kernel = jax.ShapeDtypeStruct((*rows, inputs), dtype), jax.ShapeDtypeStruct((inputs, 2 * outputs), dtype)
    assert fused_geglu.takes(x, kernel, capability) is expected


@pytest.mark.parametrize(
    ("device", "alone", "adapted", "expected"),
    [
        (parallel.Device("gpu", "NVIDIA H100 80GB HBM3"), True, False, 1),
        (parallel.Device("gpu", "NVIDIA H100 80GB HBM3"), False, False, 0),  # XLA cannot divide it
        (parallel.Device("gpu", "NVIDIA H100 80GB HBM3"), True, True, 0),
        (parallel.Device("tpu", "TPU v5 lite"), True, False, 0),
        (None, True, False, 0),
    ],
)
def test_where_it_is_taken(monkeypatch, trace_for, device, alone, adapted, expected):
    """The layer gives the same with the kernel, and does without it on all but single NVIDIA GPUs."""
    called = []
    kernel = fused_geglu.fused
    trace_for(device)
    monkeypatch.setattr(parallel, "runs_on_one_device", lambda: alone)
    monkeypatch.setattr(fused_geglu, "fused", lambda *a: called.append(1) or kernel(*a, True))
    layer = GEGLU(64, 64, dtype=jnp.bfloat16, param_dtype=jnp.float32, rngs=nnx.Rngs(0))
    x, *_ = arrays((128,), 64, 64, jnp.bfloat16)
    plain = fused_geglu.plain(x, layer.proj.kernel[...].astype(x.dtype), layer.proj.bias[...].astype(x.dtype))
    if adapted:
        factors = lora.Factors(np.zeros((64, 4)), np.zeros((4, 128)), 1.0)
        layer.proj = lora.LoRALinear(layer.proj, lora.LoRA(factors))
    np.testing.assert_allclose(np.float32(layer(x)), np.float32(plain), rtol=0.02, atol=0.02)
    assert len(called) == expected
