"""3 x 3 convolutions on CPUs with 16 products for four results instead of 36 (Lavin and Gray, 2016, F(2 x 2, 3 x 3)).

Only for float32 and for kernels that are transformed once, ahead of all calls.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

# Tiles of 2 x 2 results that are computed at once, so that they stay in a core's cache. Measured: 128 to 512 are alike.
_TILES = 256


def pays(inputs: int, outputs: int) -> bool:
    """Whether a CPU is faster with it. With few outputs the transform of the inputs takes what the products save."""
    return inputs >= 64 and (outputs >= 128 or (outputs >= 64 and inputs <= 2 * outputs))


@jax.jit
def transformed(kernels: Sequence[jax.Array]) -> list[jax.Array]:
    """[3, 3, inputs, outputs] -> [4, 4, inputs, outputs], of each kernel."""
    return [_transformed(kernel) for kernel in kernels]


@jax.jit  # kernels of equal shapes are traced once
def _transformed(kernel: jax.Array) -> jax.Array:
    # As sums: a tenth of the time of products with matrices of 4 x 3.
    return jnp.stack([jnp.stack(_of_kernels(row)) for row in _of_kernels(kernel)])


@jax.jit  # equal layers are traced once
def convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """x [B, h, w, inputs], a transformed kernel -> [B, h, w, outputs]: stride 1, one zero on each side."""
    return _convolution(x, kernel)


@jax.custom_vjp
def _convolution(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return _in_strips(functools.partial(_tiles, kernel=kernel), x)


def _forward(x: jax.Array, kernel: jax.Array) -> tuple[jax.Array, Any]:
    return _convolution(x, kernel), (x, kernel)


def _backward(kept: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    x, kernel = kept
    # The inputs' gradient is a convolution with the kernel turned by 180 degrees, whose transform is this one with the
    # rows 0 and 3, and the columns, exchanged.
    turned = functools.partial(_tiles, kernel=kernel, backward=True)
    _, of_kernel = jax.vjp(functools.partial(_tiles, x), kernel)
    return _in_strips(turned, gradient), *of_kernel(gradient)


_convolution.defvjp(_forward, _backward)


def _in_strips(function: Any, x: jax.Array) -> jax.Array:
    """A function of images [B, h, w, channels], of so many at once as have `_TILES` tiles."""
    batch, height, width, _ = x.shape
    size = max(1, _TILES // max(1, -(-height // 2) * -(-width // 2)))
    if size >= batch:
        return function(x)
    while batch % size:
        size -= 1
    y = jax.lax.map(function, x.reshape(-1, size, *x.shape[1:]))
    return y.reshape(batch, *y.shape[2:])


@functools.partial(jax.jit, static_argnames="backward")  # equal strips of all batches are traced once
def _tiles(x: jax.Array, kernel: jax.Array, backward: bool = False) -> jax.Array:
    batch, height, width, channels = x.shape
    rows, columns = -(-height // 2), -(-width // 2)
    x = jnp.pad(x, ((0, 0), (1, 1 + height % 2), (1, 1 + width % 2), (0, 0)))
    order = [3, 1, 2, 0] if backward else [0, 1, 2, 3]
    of_rows = _of_inputs([x[:, offset : offset + 2 * rows - 1 : 2] for offset in range(4)])
    taken = {}
    for row, part in zip(order, of_rows, strict=True):
        of_columns = _of_inputs([part[:, :, offset : offset + 2 * columns - 1 : 2] for offset in range(4)])
        for column, values in zip(order, of_columns, strict=True):
            taken[4 * row + column] = values.reshape(-1, channels)
    y = _products([taken[offset] for offset in range(16)], kernel.reshape(16, *kernel.shape[2:]), 2 if backward else 1)
    of_rows = [_of_results([y[4 * row + column] for row in order]) for column in order]
    parts = [_of_results([of_rows[column][row] for column in range(4)]) for row in range(2)]
    parts = [[values.reshape(batch, rows, columns, -1) for values in part] for part in parts]
    y = jnp.stack([jnp.stack(part, axis=3) for part in parts], axis=2)
    return y.reshape(batch, 2 * rows, 2 * columns, -1)[:, :height, :width]


def _products(x: Sequence[jax.Array], kernel: jax.Array, axis: int) -> Sequence[jax.Array]:
    """16 arrays [tiles, ...] by a kernel [16, inputs, outputs], summed over its axis."""
    if len(x[0]) > _TILES:
        # One after the other, so that the caches hold what belongs to a product.
        product = functools.partial(
            jax.lax.dot_general, dimension_numbers=(((1,), (axis - 1,)), ((), ())), precision="highest"
        )
        return [product(values, kernel[index]) for index, values in enumerate(x)]
    # Written one after the other: XLA computes the parts of a concatenation without vectors.
    taken = jnp.zeros((16, *x[0].shape), x[0].dtype)
    for index, values in enumerate(x):
        taken = taken.at[index].set(values)
    return jax.lax.dot_general(taken, kernel, (((2,), (axis,)), ((0,), (0,))), precision="highest")


def _of_kernels(k: jax.Array) -> list[jax.Array]:
    return [k[0], 0.5 * (k[0] + k[1] + k[2]), 0.5 * (k[0] - k[1] + k[2]), k[2]]


def _of_inputs(x: Sequence[jax.Array]) -> list[jax.Array]:
    return [x[0] - x[2], x[1] + x[2], x[2] - x[1], x[1] - x[3]]


def _of_results(y: Sequence[jax.Array]) -> list[jax.Array]:
    return [y[0] + y[1] + y[2], y[1] - y[2] - y[3]]
