"""Torch modules that a pipeline calls on the host, and that JAX computes on the devices."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.models import functional, snapshots
from winobench.torch_modules.network import TorchNetwork

# Fields of outputs that no pipeline reads, and whose computation is left out.
_UNUSED = ("logits", "past_key_values")
# Texts are padded to a multiple of this many tokens, so that few lengths are compiled.
_TOKENS = 64


def stand_in(
    network: TorchNetwork,
    params: Callable[[], Sequence[Any]],
    mesh: Mesh,
    rows: int = 1,
    *,
    method: str = "forward",
    pads: bool = False,
) -> Any:
    """A torch module that computes a network on the devices of a mesh. Its tensors are on the host.

    Args:
      network: gives the class, the config and the shapes of the parameters.
      params: returns the parameters on the devices, at each call.
      rows: images or texts of a call. The devices divide tensors with a multiple of these rows, where they can.
      method: the method that the pipeline calls.
      pads: whether masked texts are padded to few lengths. Results have the length of the texts.
    """
    structure, module = snapshots.split(network)[0], network.program.module

    def compute(*arguments: Any, **keywords: Any) -> Any:
        length = padded = None
        if pads:
            keywords, length, padded = _padded(network.config, arguments, keywords)
        call, arrays = _taken_apart(structure, method, mesh, (arguments, keywords), network.dtype)
        results, form = _run(call, params(), [parallel.put(array, _sharding(array, mesh, rows)) for array in arrays])
        return form.put_together(_shortened(results, length, padded))

    replacement = object.__new__(_kind(type(module), method))
    vars(replacement).update({**vars(module), "_compute": compute})
    return replacement


@functools.cache
def _kind(kind: type, method: str) -> type:
    """A subclass with another method. Cached, since classes stay until garbage is collected."""
    from winobench.torch_modules.bridge import torch

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        return self._compute(*arguments, **keywords)

    return type(kind.__name__, (kind,), {method: call, "device": torch.device("cpu"), "__module__": kind.__module__})


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class _Form:
    """A torch tree without its tensors. Equal if the tensors have the same places and all other leaves are equal."""

    spec: Any
    others: tuple[Any, ...]  # each leaf, or `_TENSOR` for a tensor

    def put_together(self, arrays: Sequence[Any]) -> Any:
        """The tree with copies of arrays as tensors of the host."""
        from winobench.torch_modules import bridge

        arrays = iter(arrays)
        return self.tree([bridge.to_torch(np.array(next(arrays))) if leaf is _TENSOR else leaf for leaf in self.others])

    def tree(self, leaves: Sequence[Any]) -> Any:
        from torch.utils import _pytree

        return _pytree.tree_unflatten(leaves, self.spec)

    @functools.cached_property
    def _key(self) -> tuple[Any, ...]:
        # 1, 1.0 and True are equal, and compute different things.
        return repr(self.spec), tuple((type(leaf), leaf) for leaf in self.others)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Form) and self._key == other._key


_TENSOR = "<tensor>"


@dataclasses.dataclass(frozen=True)
class _Call:
    """The static arguments of a compiled call."""

    structure: functional.Structure
    method: str
    mesh: Mesh
    form: _Form


@functools.partial(jax.jit, static_argnums=0)
def _run(call: _Call, params: Sequence[jax.Array], arrays: Sequence[jax.Array]) -> tuple[list[jax.Array], _Form]:
    from winobench.torch_modules import bridge

    with parallel.traced_on(call.mesh), call.structure.module(list(params)).traced() as module:
        tensors = iter([bridge.as_torch(array) for array in arrays])
        leaves = [next(tensors) if leaf is _TENSOR else leaf for leaf in call.form.others]
        arguments, keywords = call.form.tree(leaves)
        form, tensors = _form(_used(getattr(module, call.method)(*arguments, **keywords)))
        return [bridge.as_jax(tensor) for tensor in tensors], form


def _form(tree: Any) -> tuple[_Form, list[Any]]:
    """The form and the tensors of a tree."""
    import torch
    from torch.utils import _pytree

    leaves, spec = _pytree.tree_flatten(tree)
    are_tensors = [isinstance(leaf, torch.Tensor) for leaf in leaves]
    others = tuple(_TENSOR if is_one else leaf for leaf, is_one in zip(leaves, are_tensors, strict=True))
    return _Form(spec, others), [leaf for leaf, is_one in zip(leaves, are_tensors, strict=True) if is_one]


def _taken_apart(
    structure: functional.Structure, method: str, mesh: Mesh, tree: Any, dtype: Any
) -> tuple[_Call, list[np.ndarray]]:
    from winobench.torch_modules import bridge

    form, tensors = _form(tree)
    arrays = [bridge.to_numpy(tensor) for tensor in tensors]
    if method != "forward":  # pipelines round to a denoiser's dtype, not to an autoencoder's
        arrays = [array.astype(dtype) if jax.numpy.issubdtype(array.dtype, np.floating) else array for array in arrays]
    return _Call(structure, method, mesh, form), arrays


def _used(output: Any) -> Any:
    if not isinstance(output, Mapping):
        return output
    return type(output)(**{name: value for name, value in output.items() if name not in _UNUSED})


def _sharding(array: np.ndarray, mesh: Mesh, rows: int) -> Any:
    parts = parallel.data_parallelism(mesh)
    is_shared = array.ndim > 0 and len(array) > 0 and len(array) % rows == 0 and len(array) % parts == 0
    return parallel.split_axis(mesh) if is_shared else parallel.replicated(mesh)


def _padded(
    config: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]
) -> tuple[dict[str, Any], int | None, int | None]:
    """Keywords with padded texts, and their lengths before and after. None for lengths that stay."""
    import torch

    mask = keywords.get("attention_mask")
    shape = getattr(mask, "shape", ())
    tensors = _form((arguments, keywords))[1]
    in_keywords = [name for name, value in keywords.items() if isinstance(value, torch.Tensor)]
    if len(shape) != 2 or any(tensor.shape != shape for tensor in tensors) or len(in_keywords) != len(tensors):
        return dict(keywords), None, None
    length = shape[1]
    padded = min(-(-length // _TOKENS) * _TOKENS, getattr(config, "max_position_embeddings", None) or 1 << 30)
    if padded <= length:
        return dict(keywords), None, None
    pad = functools.partial(torch.nn.functional.pad, pad=(0, padded - length))
    return {name: pad(value) if name in in_keywords else value for name, value in keywords.items()}, length, padded


def _shortened(arrays: Sequence[jax.Array], length: int | None, padded: int | None) -> list[jax.Array]:
    if length is None:
        return list(arrays)
    return [array[:, :length] if array.ndim > 2 and array.shape[1] == padded else array for array in arrays]
