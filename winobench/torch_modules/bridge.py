"""Torch under JAX: the one module that imports torchax, and whose import needs the extra ``torch``."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base.errors import InputError

JAX = "jax"
"""The type of the device of tensors that are JAX arrays."""

try:
    import diffusers
    import torch
    import transformers

    if importlib.util.find_spec("torchax") is None:
        raise ImportError("No module named 'torchax'", name="torchax")
except ImportError as error:
    raise InputError(
        f"this model runs by diffusers and torch, but {error.name or error} is not installed:"
        ' pip install "winobench[torch]"',
        code="missing-package",
    ) from error


@contextlib.contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Gives an attribute another value for a while. The owner inherits it again afterwards, if it did before."""
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


_ABSENT = object()


@functools.cache
def environment() -> Any:
    """torchax's environment. Its import lists the devices, so distributed processes must join before.

    torchax 0.0.13 names overloads in its tables that torch 2.13 has dropped. Nothing calls them.
    """
    packet = type(torch.ops.aten.add)
    read = packet.__getattr__

    def lenient(self: Any, name: str) -> Any:
        try:
            return read(self, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return f"{self}.{name}"

    with replaced(packet, "__getattr__", lenient):
        import torchax

        made = torchax.default_env()  # reads the other tables
    # A view of a tensor lacks it, so that a tensor could not index the view.
    torchax.view.View._elem = property(lambda self: self.jax())
    from winobench.torch_modules import operations

    operations.install(made)
    return made


_lock = threading.RLock()


@contextlib.contextmanager
def tracing() -> Iterator[None]:
    """Torch operations on JAX arrays, by one thread at a time: a pipeline is changed while it is traced.

    diffusers caches some results unless it is exported. In a trace, the results would be tracers.
    """
    exporting = replaced(torch.compiler, "is_exporting", lambda: True)
    with _lock, environment(), torch.no_grad(), exporting, warnings.catch_warnings():
        # Torch's whole numbers have 64 bits, and JAX's here 32.
        warnings.filterwarnings("ignore", "Explicitly requested dtype")
        yield


@contextlib.contextmanager
def in_torch() -> Iterator[None]:
    """Torch's own operations on the host, by one thread at a time."""
    with _lock, torch.no_grad():
        yield


def as_torch(array: Any) -> Any:
    """JAX arrays or tracers as tensors. Within `tracing`."""
    return environment().j2t_iso(jnp.asarray(array))


def as_jax(tensor: Any) -> jax.Array:
    return environment().t2j_iso(tensor)


def to_numpy(tensor: Any) -> np.ndarray:
    """A tensor of the host as a read-only array of the same memory. A meta tensor becomes zeros without memory."""
    if tensor.is_meta:
        zero = to_numpy(torch.zeros((), dtype=tensor.dtype))
        return np.broadcast_to(zero, tuple(tensor.shape))
    tensor = tensor.detach().contiguous()
    is_bfloat16 = tensor.dtype == torch.bfloat16
    array = (tensor.view(torch.int16) if is_bfloat16 else tensor).numpy()
    # Views are read-only as well, so that nobody needs to copy them.
    array.flags.writeable = False
    narrow = {"int64": np.int32, "float64": np.float32, "complex128": np.complex64}.get(array.dtype.name)
    if narrow is not None:
        array = array.astype(narrow)
        array.flags.writeable = False
    return array.view(jnp.bfloat16) if is_bfloat16 else array


def to_torch(array: Any) -> Any:
    """An array as a tensor of the same memory. Nothing may write into it."""
    array = np.asarray(array)
    is_bfloat16 = array.dtype == jnp.bfloat16
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writ")
        tensor = torch.from_numpy(array.view(np.int16) if is_bfloat16 else array)
    return tensor.view(torch.bfloat16) if is_bfloat16 else tensor


__all__ = ["diffusers", "torch", "transformers"]
