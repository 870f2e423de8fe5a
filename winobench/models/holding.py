"""Networks as they are at one moment.

The rule of all that scores, answers or generates: a call uses the weights that its model has when the call begins,
and an identity is computed from the arrays that are used. Arrays of JAX never change, so that an array which is the
same object has the same values. References to them are weak: they keep no earlier weights in memory.
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


class Taken:
    """Which structure and arrays there were at one moment. It keeps none of the arrays alive."""

    def __init__(self, structure: Any, arrays: Sequence[Any], when_one_is_gone: Callable[[], Any] | None = None):
        self.structure = structure
        self._references = [_reference(array, when_one_is_gone) for array in arrays]

    def is_of(self, structure: Any, arrays: Sequence[Any]) -> bool:
        """Whether these are the same objects, and none of them can have been written into."""
        return (
            len(arrays) == len(self._references)
            and all(reference() is array for reference, array in zip(self._references, arrays, strict=True))
            and not any(map(_is_writable, arrays))
            and self.structure == structure
        )


def split(network: nnx.Module) -> tuple[functional.Structure, list[Any]]:
    """Takes a network apart as `functional.split`. Its NumPy arrays become copies that nobody can write into."""
    structure, arrays = functional.split(network)
    there = [array for array in arrays if isinstance(array, jax.Array) and not isinstance(array, jax.core.Tracer)]
    if any(array.is_deleted() for array in there):
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


_last: weakref.WeakKeyDictionary[nnx.Module, tuple[Taken, weakref.ref[nnx.Module]]] = weakref.WeakKeyDictionary()


def held(network: nnx.Module) -> nnx.Module:
    """A network of the same arrays that stays as this one is now. The same object again while nothing has changed."""
    structure, arrays = split(network)
    if network in _last:
        taken, reference = _last[network]
        there = reference()
        if there is not None and taken.is_of(structure, arrays):
            return there
    there = structure.module(arrays)
    _last[network] = Taken(structure, arrays), weakref.ref(there)
    return there


_computed: dict[Any, tuple[Taken, Any]] = {}


def once(key: Any, arrays: Sequence[Any], compute: Callable[[], Any]) -> Any:
    """A result of arrays, computed once while they exist. Arrays that can be written into are computed each time."""
    key = (key, tuple(map(id, arrays)))
    found = _computed.get(key)
    if found is not None and found[0].is_of(None, arrays):
        return found[1]
    result = compute()
    if not any(map(_is_writable, arrays)):
        _computed[key] = Taken(None, arrays, lambda: _computed.pop(key, None)), result
    return result


def hold(thing: Any) -> Any:
    """What a thing's ``held()`` gives. The thing itself where its class has no such method."""
    method = getattr(type(thing), "held", None)
    return thing if method is None else method(thing)


class Holder(abc.ABC):
    """Something that has a model, and whose calls use the weights that the model has when they begin.

    Each public call works on `held`, whose ``model`` and placed parameters belong to each other.
    """

    MODEL: ClassVar[str] = "model"
    """The attribute with the model: a network, or something with a method ``held``."""

    _placed: tuple[Any, ...] = ()  # the model with these parameters, tokenizers and the processor
    _is_held = False

    @abc.abstractmethod
    def _place(self, model: Any) -> None:
        """Makes everything that depends on weights or structure, of a model that nobody else changes."""

    @parallel.without_mesh
    def held(self) -> Self:
        """The same, which keeps the weights of this moment."""
        if self._is_held:
            return self
        with _lock:
            model = getattr(self, self.MODEL)
            model = held(model) if isinstance(model, nnx.Module) else hold(model)
            own = vars(self)
            tokenizers = states.copied(self, {name: own[name] for name in ("tokenizer",) if name in own})
            parts = (model, *tokenizers.values(), own.get("processor"))
            if list(map(id, parts)) != list(map(id, self._placed)):
                self._placed = ()
                self._place(model)
                self._placed = parts
            found = copy.copy(self)
        vars(found).update({self.MODEL: model, **tokenizers})
        found._is_held = True
        return found


_lock = threading.RLock()


def _reference(array: Any, when_gone: Callable[[], Any] | None) -> Callable[[], Any]:
    try:
        return weakref.ref(array, None if when_gone is None else lambda _: when_gone())
    except TypeError:  # a number, which never changes
        return lambda: array


def _is_writable(array: Any) -> bool:
    """Whether somebody can change the values: a NumPy array, or the memory that it is a view of."""
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
