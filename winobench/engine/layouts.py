"""Memory layouts of parameters, where a device's kernels need another one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.layout import Format, Layout
from jax.sharding import Mesh

from winobench import parallel

# cuDNN reads a convolution's kernel [height, width, inputs, outputs] with its outputs first. In JAX's own order, each
# step of the program would begin with a transposition of all kernels.
_OUTPUTS_FIRST = Layout(major_to_minor=(3, 0, 1, 2))


def parameter_formats(parameters: Any, mesh: Mesh) -> Any:
    """`winobench.parallel.parameter_shardings`, on GPUs with cuDNN's order of axes for convolution kernels."""
    shardings = parallel.parameter_shardings(parameters, mesh)
    if mesh.devices.flat[0].platform != "gpu":
        return shardings
    return jax.tree.map(_format, parameters, shardings)


def place_parameters(parameters: Any, mesh: Mesh) -> Any:
    return jax.tree.map(_put, parameters, parameter_formats(parameters, mesh))


def _format(parameter: Any, sharding: Any) -> Any:
    is_convolution = len(parameter.shape) == 4 and parameter.shape[0] > 1
    return (
        Format(_OUTPUTS_FIRST, sharding)
        if is_convolution and jnp.issubdtype(parameter.dtype, jnp.floating)
        else sharding
    )


def _put(parameter: Any, where: Any) -> jax.Array:
    if not isinstance(where, Format):
        return parallel.put(parameter, where)
    sharding: Any = where.sharding  # that `_format` was given
    return jax.device_put(parallel.put(parameter, sharding), where)
