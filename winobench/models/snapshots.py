"""Snapshots of networks.

A call of a scorer, a responder or a generator uses the weights that its model has when the call begins. An identity is
computed from the same arrays. JAX arrays never change: the same object has the same values. References to them are
weak, so that earlier weights leave the memory.
"""

from __future__ import annotations

import abc
import copy
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import jax
import numpy as np
from flax import nnx

from winobench import parallel
from winobench.base.errors import InputError
from winobench.models import functional, states


class WeakSnapshot:
    """A structure, and weak references to its arrays. Calls ``when_deleted`` once one of them is deleted."""

    def __init__(self, structure: Any, arrays: Sequence[Any], when_deleted: Callable[[], Any] | None = None):
        self.structure = structure
        self._references = [_reference(array, when_deleted) for array in arrays]

    def matches(self, structure: Any, arrays: Sequence[Any]) -> bool:
        """Whether these are the same objects, and none of them can have been written into."""
        return (
            len(arrays) == len(self._references)
            and all(reference() is array for reference, array in zip(self._references, arrays, strict=True))
            and not any(map(_is_writable, arrays))
            and self.structure == structure
        )


def split(network: nnx.Module) -> tuple[functional.Structure, list[Any]]:
    """Splits a network as `functional.split`. Replaces its NumPy arrays by read-only copies."""
    structure, arrays = functional.split(network)
    concrete = [array for array in arrays if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)]
    if any(array.is_deleted() for array in concrete):
        raise InputError(
            f"weights of this {type(network).__name__} were donated to a compiled function, and are gone: put the new"
            " ones into the network (nnx.update) before it is used",
            code="deleted-weights",
        )
    if not any(map(_is_writable, arrays)):
        return structure, arrays
    arrays = [_read_only(array) if _is_writable(array) else array for array in arrays]
    nnx.update(network, nnx.state(structure.module(arrays)))
    return structure, arrays


_last: weakref.WeakKeyDictionary[nnx.Module, tuple[WeakSnapshot, weakref.ref[nnx.Module]]] = weakref.WeakKeyDictionary()


def network_snapshot(network: nnx.Module) -> nnx.Module:
    """A network with the same arrays, which later changes do not reach. The same object while nothing has changed."""
    structure, arrays = split(network)
    if network in _last:
        state, reference = _last[network]
        snapshot = reference()
        if snapshot is not None and state.matches(structure, arrays):
            return snapshot
    snapshot = structure.module(arrays)
    _last[network] = WeakSnapshot(structure, arrays), weakref.ref(snapshot)
    return snapshot


def snapshot(model: Any) -> Any:
    """The result of an object's method ``snapshot``. The object itself where its class has no such method."""
    # Earlier versions called the method "held".
    method = getattr(type(model), "snapshot", None) or getattr(type(model), "held", None)
    return model if method is None else method(model)


_computed: dict[Any, tuple[WeakSnapshot, Any]] = {}


def once(key: Any, arrays: Sequence[Any], compute: Callable[[], Any]) -> Any:
    """A result of arrays, computed once while they exist. Arrays that can be written into are computed each time."""
    key = (key, tuple(map(id, arrays)))
    state, result = _computed.get(key, (None, None))
    if state is not None and state.matches(None, arrays):
        return result
    result = compute()
    if not any(map(_is_writable, arrays)):
        _computed[key] = WeakSnapshot(None, arrays, lambda: _computed.pop(key, None)), result
    return result


class HasSnapshots(abc.ABC):
    """An object with a model, whose calls use the weights that the model has when they begin.

    Each public call works on a `snapshot`, whose ``model`` and placed parameters belong to each other.
    """

    MODEL: ClassVar[str] = "model"
    """The attribute with the model: a network, or an object with a method ``snapshot``."""

    _placed: tuple[Any, ...] = ()  # the model with these parameters, tokenizers and the processor
    _is_snapshot = False

    @abc.abstractmethod
    def _place(self, model: Any) -> None:
        """Builds everything that depends on weights or structure, from a snapshot of the model."""

    @parallel.without_mesh
    def snapshot(self) -> Self:
        """A copy of this object that keeps the present weights."""
        if self._is_snapshot:
            return self
        with _lock:
            model = getattr(self, self.MODEL)
            model = network_snapshot(model) if isinstance(model, nnx.Module) else snapshot(model)
            own = vars(self)
            tokenizers = states.copied(self, {name: own[name] for name in ("tokenizer",) if name in own})
            parts = (model, *tokenizers.values(), own.get("processor"))
            if list(map(id, parts)) != list(map(id, self._placed)):
                self._placed = ()
                self._place(model)
                self._placed = parts
            result = copy.copy(self)
        vars(result).update({self.MODEL: model, **tokenizers})
        result._is_snapshot = True
        return result

    def held(self) -> Self:
        """Earlier name of `snapshot`."""
        return self.snapshot()


_lock = threading.RLock()


def _reference(array: Any, when_deleted: Callable[[], Any] | None) -> Callable[[], Any]:
    try:
        return weakref.ref(array, None if when_deleted is None else lambda _: when_deleted())
    except TypeError:  # a number, which never changes
        return lambda: array


def _is_writable(array: Any) -> bool:
    """Whether the values can change: of a NumPy array, or of the memory that it is a view of."""
    while isinstance(array, np.ndarray):
        if array.flags.writeable:
            return True
        array = array.base
    if array is None or isinstance(array, jax.Array | np.generic | int | float):
        return False
    try:
        return not memoryview(array).readonly
    except TypeError:
        return False


def _read_only(array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array.flags.writeable = False
    return array
