"""Softmax attention as matrix products, on any device: all scores at once, or in parts."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from winobench.models import exponential


def attend(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    *,
    is_causal: bool = False,
    lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    scale: float | None = None,
) -> jax.Array:
    """query [..., T, head_size], key and value [..., S, head_size] -> [..., T, head_size] in the dtype of ``query``.

    The softmax is divided by its sum after the product with the values: on CPUs that is 1.2 to 4 times as fast as
    ``jax.nn.dot_product_attention``, forward and backward, as the array of weights is passed over less often. Keys from
    ``lengths`` on are padding: int32 [...], broadcast against the axes before the positions. ``mask`` is broadcast
    against the scores [..., T, S].
    """
    scores = _masked(_products(query, key, scale), mask, 0, lengths, is_causal)
    return _weighted(scores, value)[0].astype(query.dtype)


def _products(query: jax.Array, key: jax.Array, scale: float | None) -> jax.Array:
    scores = jnp.einsum("...th,...sh->...ts", query, key, preferred_element_type=jnp.float32)
    return scores * (query.shape[-1] ** -0.5 if scale is None else scale)


def _masked(
    scores: jax.Array,
    mask: jax.Array | None,
    first: jax.Array | int,
    lengths: jax.Array | None,
    is_causal: bool,
) -> jax.Array:
    if mask is not None:
        lowest = jnp.finfo(jnp.float32).min
        scores = jnp.where(mask, scores, lowest) if mask.dtype == jnp.bool_ else jnp.maximum(scores + mask, lowest)
    positions = jnp.arange(scores.shape[-1])
    if is_causal:
        scores = jnp.where(positions <= first + jnp.arange(scores.shape[-2])[:, None], scores, -jnp.inf)
    if lengths is not None:
        scores = jnp.where(positions < lengths[..., None, None], scores, -jnp.inf)
    return scores


def _weighted(scores: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The softmax's product with the values, float32, and the logarithm of its sum, [..., T, 1]."""
    # The result does not depend on the subtracted maximum, so cutting its gradient is exact.
    highest = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
    weights = jnp.exp(scores - highest)
    total = jnp.sum(weights, axis=-1)[..., None]
    result = jnp.einsum("...ts,...sh->...th", weights.astype(value.dtype), value, preferred_element_type=jnp.float32)
    return result / total, highest + jnp.log(total)


def _by_keys(query: jax.Array, key: jax.Array, value: jax.Array, scale: float | None) -> tuple[jax.Array, jax.Array]:
    """`_weighted` of float32 products with scores [..., S, T], whose columns XLA reduces in vectors on CPUs."""
    query = query * (query.shape[-1] ** -0.5 if scale is None else scale)
    scores = jnp.einsum("...sh,...th->...st", key, query)
    axis = scores.ndim - 2
    # Not jnp.max and jnp.sum: XLA uses a library for these, which takes twice as long. A lost NaN stays in its weight.
    highest = jax.lax.reduce(scores, np.float32(-np.inf), lambda a, b: jnp.where(a > b, a, b), (axis,))
    weights = exponential.exp_of_negative(scores - jnp.expand_dims(highest, axis))
    total = jax.lax.reduce(weights, np.float32(0), lambda a, b: a + b, (axis,))
    result = jnp.einsum("...sh,...st->...ht", value, weights) / jnp.expand_dims(total, axis)
    return result.swapaxes(-1, -2), (highest + jnp.log(total))[..., None]


class _Form(NamedTuple):
    is_causal: bool
    scale: float | None
    by_keys: bool


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attend_and_forget(form, query, key, value, mask, first, lengths):
    """`attend` whose gradient computes the scores again, and neither their maximum, their sum nor the result."""
    return _forward(form, query, key, value, mask, first, lengths)[0]


def _forward(form, query, key, value, mask, first, lengths):
    if form.by_keys:
        result, total = _by_keys(query, key, value, form.scale)
    else:
        scores = _masked(_products(query, key, form.scale), mask, first, lengths, form.is_causal)
        result, total = _weighted(scores, value)
    return result.astype(query.dtype), (query, key, value, mask, first, lengths, result, total)


def _backward(form, kept, gradient):
    is_causal, scale, by_keys = form
    query, key, value, mask, first, lengths, result, total = kept
    if query.ndim == 2:
        # XLA's products for the gradient are faster in batches, also of one.
        *rest, gradient = jax.tree.map(lambda x: x[None], (query, key, value, mask, lengths, result, total, gradient))
        batch = (*rest[:4], first, *rest[4:])
        gradients = _backward(form, batch, gradient)
        return jax.tree.map(lambda x: x[0], gradients)
    scores, unmasked = jax.vjp(
        lambda *arrays: _masked(*arrays, first, lengths, is_causal), _products(query, key, scale), mask
    )
    exp = exponential.exp_of_negative if by_keys else jnp.exp
    weights, gradient = exp(scores - total), gradient.astype(value.dtype)
    product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)
    of_weights = product("...th,...sh->...ts", gradient, value)
    shared = jnp.sum(gradient.astype(jnp.float32) * result, axis=-1, keepdims=True)
    of_products, of_mask = unmasked(weights * (of_weights - shared))
    of_products = (of_products * (query.shape[-1] ** -0.5 if scale is None else scale)).astype(query.dtype)
    of_query = product("...ts,...sh->...th", of_products, key).astype(query.dtype)
    # In this order of axes it is the small factor that CPUs transpose.
    of_key = product("...th,...ts->...hs", query, of_products).swapaxes(-1, -2).astype(key.dtype)
    of_value = product("...th,...ts->...hs", gradient, weights.astype(value.dtype)).swapaxes(-1, -2).astype(value.dtype)
    return of_query, of_key, of_value, of_mask, None, None


_attend_and_forget.defvjp(_forward, _backward)


# Equal layers are traced once.
@functools.partial(jax.jit, static_argnames=("part_bytes", "is_causal", "scale", "by_keys"))
def attend_in_parts(
    query: jax.Array,
    key: jax.Array,
    value: jax.Array,
    part_bytes: int,
    *,
    is_causal: bool = False,
    lengths: jax.Array | None = None,
    mask: jax.Array | None = None,
    scale: float | None = None,
    by_keys: bool = False,
) -> jax.Array:
    """`attend` of [B, heads, positions, head_size], with ``part_bytes`` of float32 scores, or one query's, at a time.

    ``mask`` is [B or 1, heads or 1, T or 1, S]. ``by_keys`` is a form for CPUs, of float32 without any mask.

    On CPUs this is up to 7 times as fast for large score matrices: the cache holds the scores of one part between the
    two products, and the products' scratch memory is used again. Scratch memory for all scores at once would be given
    back to the system after each product, which clears it before the next. On accelerators this is for shapes that no
    fused kernel takes.
    """
    batch, heads, length, width = query.shape
    rows = part_bytes // (4 * key.shape[2])
    # Whole heads where one fits, otherwise a head's queries in parts of equal size. By keys, a large head is faster by
    # itself.
    at_once = _largest_divisor(batch * heads, max(1, rows // length // (2 if by_keys else 1)))
    part = _largest_divisor(length, max(1, rows)) if at_once == 1 else length
    # A batch of one would be slower than a matrix. One of several heads has all queries, as one part.
    several = (at_once,) if at_once > 1 else ()
    query = query.reshape(-1, length // part, *several, part, width)
    key, value = (x.reshape(-1, *several, *x.shape[2:]) for x in (key, value))
    ends = None if lengths is None else jnp.repeat(lengths, heads).reshape(-1, *several)
    starts = part * jnp.arange(length // part)
    numbers = None if mask is None else jnp.arange(batch * heads).reshape(-1, *several)

    def heads_at_once(arrays: tuple[jax.Array, ...]) -> jax.Array:
        parts, key, value, ends, numbers = arrays

        def one_part(part_and_start: tuple[jax.Array, jax.Array]) -> jax.Array:
            query, first = part_and_start
            own = None
            if mask is not None:
                rows = jax.lax.dynamic_slice_in_dim(mask, first, part, axis=2) if mask.shape[2] > 1 else mask
                own = rows[numbers // heads % mask.shape[0], numbers % heads % mask.shape[1]]
            return _attend_and_forget(_Form(is_causal, scale, by_keys), query, key, value, own, first, ends)

        return jax.lax.map(one_part, (parts, starts))

    result = jax.lax.map(heads_at_once, (query, key, value, ends, numbers))
    return result.reshape(batch, heads, length, width)


def _largest_divisor(number: int, limit: int) -> int:
    return next(divisor for divisor in range(min(number, limit), 0, -1) if number % divisor == 0)
