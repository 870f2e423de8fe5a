"""The exponential function in fewer steps than XLA's, for CPUs. XLA makes vectors of all of them."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

# Of 2^x for x in [-1/2, 1/2], highest power first, by Remez' algorithm: relative error 2e-9 before rounding.
_COEFFICIENTS = (1.5345812e-4, 1.3399931e-3, 9.618489e-3, 5.5503286e-2, 2.4022646e-1, 6.931472e-1, 1.0)
_LEAST = np.float32(-126)
# A sum with this number has the other's integer part in its lowest bits.
_ROUND = np.float32(1.5 * 2**23)
_MANTISSA_BITS = np.int32(23)


@jax.custom_jvp
def exp_of_negative(x: jax.Array) -> jax.Array:
    """e^x of float32 numbers up to 0, with a relative error of 1e-7 + 1e-7 |x|. 0 below -87.3, NaN of NaN."""
    power = jnp.maximum(x * np.float32(math.log2(math.e)), _LEAST)
    whole = jnp.round(power)
    part = power - whole
    result = jnp.full_like(part, _COEFFICIENTS[0])
    for coefficient in _COEFFICIENTS[1:]:
        result = result * part + np.float32(coefficient)
    exponent = jax.lax.shift_left(jax.lax.bitcast_convert_type(whole + _ROUND, jnp.int32), _MANTISSA_BITS)
    result = jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(result, jnp.int32) + exponent, jnp.float32)
    return jnp.where(power > _LEAST, result, 0 * power)


@exp_of_negative.defjvp
def _tangent(primals: tuple[jax.Array], tangents: tuple[jax.Array]) -> tuple[jax.Array, jax.Array]:
    result = exp_of_negative(*primals)
    return result, result * tangents[0]
