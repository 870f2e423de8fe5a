"""Copies a torch network's parameters into ours by the naming contract, and compares results."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

_LEAVES = {"kernel": "weight", "scale": "weight", "embedding": "weight", "bias": "bias"}


def torch_layout(module: nnx.Module) -> dict[str, tuple[tuple, tuple[int, ...]]]:
    """Torch key -> (our path, torch shape) for every parameter of a module, concrete or abstract."""
    table = {}
    for path, variable in nnx.to_flat_state(nnx.state(module, nnx.Param)):
        shape = variable.shape
        if path[-1] == "kernel":
            shape = shape[::-1] if len(shape) == 2 else (shape[3], shape[2], shape[0], shape[1])
        table[".".join(str(part) for part in (*path[:-1], _LEAVES[path[-1]]))] = (path, tuple(shape))
    return table


def copy_parameters(source: Any, target: nnx.Module, prefix: str = "") -> None:
    """Fills ``target`` from the torch module ``source``; both must have exactly the same names and shapes.

    Args:
      source: a torch module.
      target: its counterpart here, changed in place.
      prefix: put before the source's names, where newer libraries have dropped a published prefix.
    """
    tensors = {prefix + name: tensor.detach().numpy() for name, tensor in source.named_parameters()}
    table = torch_layout(target)
    assert set(tensors) == set(table), sorted(set(tensors) ^ set(table))
    flat = dict(nnx.to_flat_state(nnx.state(target, nnx.Param)))
    for name, (path, shape) in table.items():
        assert tensors[name].shape == shape, (name, tensors[name].shape, shape)
        value = tensors[name]
        if path[-1] == "kernel":
            value = value.T if value.ndim == 2 else value.transpose(2, 3, 1, 0)
        flat[path][...] = jnp.asarray(value)
    nnx.update(target, nnx.from_flat_state(list(flat.items())))


def relative_error(ours: Any, theirs: Any) -> float:
    """Largest absolute difference over the largest absolute expected value; shapes must agree."""
    ours = np.asarray(ours, np.float64)
    theirs = np.asarray(theirs.detach() if hasattr(theirs, "detach") else theirs, np.float64)
    assert ours.shape == theirs.shape, (ours.shape, theirs.shape)
    return float(np.max(np.abs(ours - theirs)) / np.max(np.abs(theirs)))
