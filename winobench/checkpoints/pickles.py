"""Reads PyTorch weight files (``.bin``) without PyTorch and without running code that is in them.

A pickle is a small program: opened in the ordinary way it can do anything. The unpickler here knows a handful of names,
builds descriptions of tensors out of them, and refuses everything else. Tensors are then read from the zip archive's
members with NumPy, on any device they were saved from.
"""

from __future__ import annotations

import collections
import dataclasses
import io
import math
import os
import pickle
import shlex
import zipfile
from typing import Any

import ml_dtypes
import numpy as np

from winobench.checkpoints import sources
from winobench.errors import InputError

_DTYPES = {
    "BFloat16Storage": np.dtype(ml_dtypes.bfloat16),
    "BoolStorage": np.dtype(np.bool_),
    "ByteStorage": np.dtype(np.uint8),
    "CharStorage": np.dtype(np.int8),
    "DoubleStorage": np.dtype("<f8"),
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "IntStorage": np.dtype("<i4"),
    "LongStorage": np.dtype("<i8"),
    "ShortStorage": np.dtype("<i2"),
}
# Far above what the names and shapes of a network take.
_MAX_PICKLE_BYTES = 64 * 2**20


class _Refused(Exception):
    """The pickle asks for something that a file of weights does not need."""


@dataclasses.dataclass(frozen=True, slots=True)
class _StorageType:
    dtype: np.dtype


@dataclasses.dataclass(frozen=True, slots=True)
class _Storage:
    key: str
    dtype: np.dtype
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class PickledTensor:
    """A tensor in an archive of PyTorch's.

    Attributes:
      shape: torch's shape.
      dtype: NumPy dtype.
    """

    path: str
    member: str
    dtype: np.dtype
    size: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self) -> np.ndarray:
        """Reads the values: a new, contiguous array.

        Raises:
          InputError: if the archive is damaged.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                content = archive.read(self.member)
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise InputError(f"{self.path} is damaged at {self.member} ({error}): get it anew") from error
        if len(content) < self.size * self.dtype.itemsize:
            raise InputError(f"{self.path} is damaged at {self.member} (too short): get it anew")
        flat = np.frombuffer(content, self.dtype, self.size)[self.offset :]
        strides = tuple(stride * self.dtype.itemsize for stride in self.strides)
        return np.array(np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False), order="C")


@dataclasses.dataclass(frozen=True, slots=True)
class _Description:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class _Rebuild:
    """Stands for a function of torch's in the pickle. It has no dictionary, so that a pickle cannot change it."""

    __slots__ = ()


class _RebuildTensor(_Rebuild):
    """``torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks, ...)``."""

    __slots__ = ()

    def __call__(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Description:
        return _Description(storage, offset, shape, strides)


class _RebuildParameter(_Rebuild):
    """``torch._utils._rebuild_parameter(tensor, requires_grad, backward_hooks)``."""

    __slots__ = ()

    def __call__(self, tensor: Any, *_: Any) -> Any:
        return tensor


_FUNCTIONS = {"_rebuild_tensor_v2": _RebuildTensor(), "_rebuild_parameter": _RebuildParameter()}


class _Unpickler(pickle.Unpickler):
    """Knows the names that a dictionary of tensors needs, and no others."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return collections.OrderedDict
        if module == "torch._utils" and name in _FUNCTIONS:
            return _FUNCTIONS[name]
        if module == "torch" and name in _DTYPES:
            return _StorageType(_DTYPES[name])
        raise _Refused(f"{module}.{name}")

    def persistent_load(self, pid: Any) -> _Storage:
        # ("storage", type, key, device, number of elements); the device does not matter to us.
        if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[1], _StorageType)):
            raise _Refused("an unknown kind of storage")
        return _Storage(pid[2], pid[1].dtype, pid[4])


def read_torch_pickle(path: str | os.PathLike) -> dict[str, PickledTensor]:
    """Lists the tensors of a ``torch.save`` file that holds one flat dictionary of tensors.

    Args:
      path: a file in the zip format of PyTorch 1.6 and later.

    Returns:
      Key -> tensor, whose values are read on demand.

    Raises:
      InputError: if the file is in the format before that, is damaged, holds anything but tensors by name, or asks for
        anything that could run code.
    """
    path = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info for info in archive.infolist()}
            programs = [name for name in sizes if name.count("/") == 1 and name.endswith("/data.pkl")]
            if len(programs) != 1:
                raise InputError(f"{path} is a zip archive, but not one of torch.save: it has no data.pkl")
            root = programs[0].removesuffix("data.pkl")
            if sizes[programs[0]].file_size > _MAX_PICKLE_BYTES:
                raise InputError(f"{path} is refused: its data.pkl is larger than that of any network")
            program = archive.read(programs[0])
            byteorder = archive.read(f"{root}byteorder") if f"{root}byteorder" in sizes else b"little"
    except zipfile.BadZipFile as error:
        raise InputError(
            f"{path} is damaged, or in the format from before PyTorch 1.6, which is not supported: get it anew, or"
            " load it with torch once and save it as safetensors"
        ) from error
    except (OSError, NotImplementedError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if byteorder.strip() != b"little":
        raise InputError(f"{path} was saved on a big-endian machine, which is not supported")

    try:
        content = _Unpickler(io.BytesIO(program)).load()
    except _Refused as refused:
        raise InputError(
            f"{path} is refused: a file of weights has no need of {refused}, and this could run code when it is opened"
        ) from refused
    except Exception as error:
        # A damaged or hostile program can fail in any way; none of them concerns the caller.
        raise InputError(f"{path} is no pickle of tensors ({type(error).__name__}: {error}): get it anew") from error
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a dictionary of tensors, but holds a {type(content).__name__}")
    return {key: _tensor(path, root, sizes, key, value) for key, value in content.items()}


def _tensor(path: str, root: str, sizes: dict[str, zipfile.ZipInfo], key: Any, value: Any) -> PickledTensor:
    """Checks a description, now that the program has ended and can no longer change it."""
    if not isinstance(key, str) or type(value) is not _Description:
        raise InputError(f"{path} holds something other than tensors by name, at {key!r}: it is no file of weights")
    storage = value.storage
    sound = (
        type(storage) is _Storage
        and type(storage.key) is str
        and isinstance(storage.dtype, np.dtype)
        and storage.dtype in _DTYPES.values()
        and type(value.shape) is tuple
        and type(value.strides) is tuple
        and len(value.shape) == len(value.strides)
        and all(type(n) is int and n >= 0 for n in (storage.size, value.offset, *value.shape, *value.strides))
    )
    if sound:
        count = math.prod(value.shape)
        last = value.offset + sum((n - 1) * stride for n, stride in zip(value.shape, value.strides, strict=True))
        # Values that repeat (stride 0) are no weights, and would let a small file ask for any amount of memory.
        sound = count == 0 or (count <= storage.size and last < storage.size)
    if not sound:
        raise InputError(f"{path} is refused: it describes the tensor {key} in a way that torch.save never does")
    member = f"{root}data/{storage.key}"
    if member not in sizes:
        raise InputError(f"{path} is damaged: it has no {member}, the values of {key}")
    # torch never compresses; a compressed member could unpack to any size.
    if sizes[member].compress_type != zipfile.ZIP_STORED:
        raise InputError(f"{path} is refused: {member} is compressed, which torch.save never does")
    return PickledTensor(path, member, storage.dtype, storage.size, value.offset, value.shape, value.strides)


def conversion_command(source: sources.Source) -> str:
    """Returns the command line that turns the pickles of a source into safetensors files."""
    module = "python -m winobench.checkpoints.convert_pickle"
    if isinstance(source, sources.HubRepository):
        revision = f" --revision={shlex.quote(source.requested)}" if source.requested else ""
        return f"{module} {source.repo_id} {source.repo_id.rpartition('/')[2]}{revision}"
    return f"{module} {shlex.quote(str(source.path))}"
