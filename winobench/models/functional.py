"""Networks as pure functions: a structure that can be a static argument of `jax.jit`, and a list of arrays."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from winobench import parallel


class Structure:
    """Everything of a network but its arrays. Hashable, and equal to the structures of networks that are built alike.

    The hash of a large network takes milliseconds, and so does taking its nested parameters apart, both at every call
    of a jitted function. Here the one is computed once, and the other is a flat list.
    """

    def __init__(self, graphdef: Any, tree: Any):
        self._parts = (graphdef, tree)
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Structure) and self._hash == other._hash and self._parts == other._parts

    def module(self, arrays: list[jax.Array]) -> Any:
        """The network, with the given arrays as its parameters."""
        graphdef, tree = self._parts
        return nnx.merge(graphdef, jax.tree.unflatten(tree, arrays))


# Equal structures are one object while it is used, so that calls of compiled functions need not compare them.
_known: weakref.WeakKeyDictionary[Structure, weakref.ref[Structure]] = weakref.WeakKeyDictionary()


def split(module: nnx.Module) -> tuple[Structure, list[jax.Array]]:
    """Takes a network apart. Its parameters are not copied."""
    graphdef, state = nnx.split(module)
    arrays, tree = jax.tree.flatten(state)
    structure = Structure(graphdef, tree)
    there = _known.setdefault(structure, weakref.ref(structure))()
    return structure if there is None else there, arrays


def precision(dtype: Any) -> contextlib.AbstractContextManager[Any]:
    """Float32 means float32: without this, GPUs and TPUs round the factors of matrix products to 10 or 7 bits."""
    if jnp.dtype(dtype) == jnp.float32:
        return jax.default_matmul_precision("highest")
    return jax.default_matmul_precision(None)  # the device's own, not the program's setting


def is_rounded_on_tpu(dtype: Any) -> bool:
    """Whether arrays of a dtype are bfloat16, and their function is traced for a TPU: some have a faster form there."""
    return parallel.is_traced_for("tpu") and jnp.dtype(dtype) == jnp.bfloat16
