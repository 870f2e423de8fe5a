"""A gated dense layer as one kernel on NVIDIA GPUs: both halves of its product stay on the chip.

As separate kernels, the product of GEGLU (Shazeer, 2020), eight times as wide as its input, is written to the device's
memory and read again to be halved: in Stable Diffusion 2.1's pass more bytes than all convolutions move.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp

from winobench import parallel
from winobench.models import exponential
from winobench.models.functional import is_rounded_on_tpu

# Rows and columns of a program's part of the result, and how many inputs it multiplies at once: of two steps under
# way, both factors take 64 KiB of the memory on the chip, which every GPU from Ampere on has. Of 20 such choices these
# are the fastest on an H100 (benchmarks/results/h100-measured.json): 0.64 ms with 320 inputs, with three steps 0.75.
_ROWS, _COLUMNS, _INPUTS = 128, 64, 64
_WARPS, _STAGES = 4, 2
# With more inputs the product takes longer than the bytes that are saved, and is best left to NVIDIA's own kernels: an
# H100 takes 0.47 ms with 1,280, and 0.46 ms with theirs.
_MOST_INPUTS = 640
_AMPERE = (8, 0)
# erf(x) is x P(x^2) / Q(x^2) to the last bits of float32 within [-4, 4], and +-1 beyond: highest powers first, the
# rational approximation that XLA and Eigen use. Triton's form of Pallas has none.
_ERF_P = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_Q = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
# Half of erfc(|x| / sqrt(2)) is t P(t) exp(-x^2 / 2) within 8e-8, with t = 1 / (1 + T |x|): highest powers first
# (Abramowitz and Stegun, 1964, 7.1.26).
_T = 0.3275911 * 2**-0.5
_ERFC = (0.5307027145, -0.7265760135, 0.7107068705, -0.142248368, 0.127414796)


def takes(x: jax.Array, kernel: jax.Array, capability: tuple[int, int] | None) -> bool:
    """Whether there is a kernel for inputs x [..., inputs] and weights [inputs, 2 x outputs] on a GPU of this compute
    capability, and whether it is worth it."""
    if capability is None or capability < _AMPERE or x.dtype not in (jnp.bfloat16, jnp.float16):
        return False
    inputs, both = kernel.shape
    fits = x.size // inputs % _ROWS == 0 and inputs % _INPUTS == 0 and both % (2 * _COLUMNS) == 0
    return fits and inputs <= _MOST_INPUTS


def plain(x: jax.Array, kernel: jax.Array, bias: jax.Array) -> jax.Array:
    """x [..., inputs], kernel [inputs, 2 x outputs], bias [2 x outputs] of one dtype -> [..., outputs]."""
    return gated(x @ kernel + bias)


def gated(product: jax.Array) -> jax.Array:
    """[..., 2 x outputs] -> [..., outputs]: the first half times GELU of the second."""
    values, gate = jnp.split(product, 2, axis=-1)
    if is_rounded_on_tpu(gate.dtype) or (gate.dtype == jnp.float32 and parallel.is_traced_for("cpu")):
        return values * gelu_by_exp(gate.astype(jnp.float32)).astype(gate.dtype)
    return values * jax.nn.gelu(gate, approximate=False)


@jax.custom_jvp
def gelu_by_exp(x: jax.Array) -> jax.Array:
    """GELU of float32 numbers within 4e-7. TPUs and CPUs take half of the time that erf takes them."""
    return _gelu_and_slope(x)[0]


@gelu_by_exp.defjvp
def _gelu_by_exp_jvp(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    # By itself JAX would keep an array for each step of the polynomial.
    result, slope = _gelu_and_slope(*primals)
    return result, slope * tangents[0]


def _gelu_and_slope(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    exp = exponential.exp_of_negative if parallel.is_traced_for("cpu") else jnp.exp
    size = jnp.abs(x)
    t = 1 / (1 + _T * size)
    total = jnp.full_like(t, _ERFC[0])
    for coefficient in _ERFC[1:]:
        total = total * t + coefficient
    bell = exp(-0.5 * x * x)
    beyond = t * total * bell
    share = jnp.where(x > 0, 1 - beyond, beyond)
    return jnp.maximum(x, 0) - size * beyond, share + x * bell * (2 * math.pi) ** -0.5


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def fused(x: jax.Array, kernel: jax.Array, bias: jax.Array, interpret: bool = False) -> jax.Array:
    """Computes `plain`, forward in one kernel where it `takes` the shapes. Sums, GELU and gating are float32."""
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    inputs, outputs = kernel.shape[0], kernel.shape[1] // 2
    rows, columns = x.size // inputs, outputs // _COLUMNS
    # The columns go first, so that programs that run together read the same rows of x.
    result = pl.pallas_call(
        _geglu,
        grid=(columns, rows // _ROWS),
        in_specs=[
            pl.BlockSpec((_ROWS, inputs), lambda column, row: (row, 0)),
            pl.BlockSpec((inputs, _COLUMNS), lambda column, row: (0, column)),
            pl.BlockSpec((inputs, _COLUMNS), lambda column, row: (0, column + columns)),
            pl.BlockSpec((_COLUMNS,), lambda column, row: (column,)),
            pl.BlockSpec((_COLUMNS,), lambda column, row: (column + columns,)),
        ],
        out_specs=pl.BlockSpec((_ROWS, _COLUMNS), lambda column, row: (row, column)),
        out_shape=jax.ShapeDtypeStruct((rows, outputs), x.dtype),
        compiler_params=triton.CompilerParams(num_warps=_WARPS, num_stages=_STAGES),
        interpret=interpret,
        name="geglu",
    )(x.reshape(rows, inputs), kernel, kernel, bias, bias)
    return result.reshape(*x.shape[:-1], outputs)


def _forward(x, kernel, bias, interpret):
    return fused(x, kernel, bias, interpret), (x, kernel, bias)


def _backward(interpret, residuals, gradient):
    return jax.vjp(plain, *residuals)[1](gradient)


fused.defvjp(_forward, _backward)


def _geglu(x_ref, value_ref, gate_ref, value_bias_ref, gate_bias_ref, result_ref):
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    def add(step, sums):
        part = pl.ds(step * _INPUTS, _INPUTS)
        x = x_ref[:, part]
        return tuple(
            total + triton.dot(x, ref[part, :]) for total, ref in zip(sums, (value_ref, gate_ref), strict=True)
        )

    zeros = jnp.zeros((_ROWS, _COLUMNS), jnp.float32)
    values, gate = jax.lax.fori_loop(0, x_ref.shape[1] // _INPUTS, add, (zeros, zeros))
    values += value_bias_ref[:].astype(jnp.float32)
    gate += gate_bias_ref[:].astype(jnp.float32)
    gelu = 0.5 * gate * (1 + _erf(gate * 2**-0.5))
    result_ref[:, :] = (values * gelu).astype(result_ref.dtype)


def _erf(x: jax.Array) -> jax.Array:
    x = jnp.clip(x, -4.0, 4.0)
    square = x * x

    def polynomial(coefficients):
        total = jnp.full_like(square, coefficients[0])
        for coefficient in coefficients[1:]:
            total = total * square + coefficient
        return total

    return x * polynomial(_ERF_P) / polynomial(_ERF_Q)
