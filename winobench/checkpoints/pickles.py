"""Reads PyTorch weight files (``.bin``) without PyTorch and without running code that is in them.

A pickle is a small program: opened in the ordinary way it can do anything. The interpreter here knows the opcodes and
the handful of names that weights need, builds descriptions of tensors out of them, and refuses everything else. A
program that is longer than any network's is refused, too. Tensors are then read from the zip archive's
members with NumPy, on any device they were saved from.
"""

from __future__ import annotations

import dataclasses
import lzma
import math
import os
import pickletools
import shlex
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from winobench.base.errors import InputError
from winobench.checkpoints import sources

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
# Far above what the names and shapes of a network take, which are about 200 bytes and 40 opcodes a tensor.
_MAX_PICKLE_BYTES = 16 * 2**20
_MAX_OPCODES = 250_000
_LONGEST_ORDER = 100
# The weights' key in the checkpoint of a training, of OpenCLIP's or Lightning's.
_WEIGHTS = "state_dict"
# What reading a member of a damaged, encrypted or oddly packed archive raises, besides BadZipFile.
_UNREADABLE = (OSError, NotImplementedError, RuntimeError, EOFError, zlib.error, lzma.LZMAError)


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
        except (*_UNREADABLE, KeyError, zipfile.BadZipFile) as error:
            raise InputError(
                f"{self.path} is damaged at {self.member} ({error}): get it again", code="damaged-file"
            ) from error
        if len(content) < self.size * self.dtype.itemsize:
            raise InputError(f"{self.path} is damaged at {self.member} (too short): get it again", code="damaged-file")
        flat = np.frombuffer(content, self.dtype, self.size)[self.offset :]
        strides = tuple(stride * self.dtype.itemsize for stride in self.strides)
        return np.array(np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False), order="C")


@dataclasses.dataclass(frozen=True, slots=True)
class _Description:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Description:
    """``torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks, ...)``."""
    return _Description(storage, offset, shape, strides)


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    """``torch._utils._rebuild_parameter(tensor, requires_grad, backward_hooks)``."""
    return tensor


# The functions that a dictionary of tensors needs -> what stands for them. Nothing can change them, and the program
# never gets hold of anything else that can be called.
_FUNCTIONS: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): lambda: {},
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
}


def _named(module: Any, name: Any) -> Any:
    """What a name in the program stands for."""
    if isinstance(module, str) and isinstance(name, str):
        if (module, name) in _FUNCTIONS:
            return _FUNCTIONS[module, name]
        if module == "torch" and name in _DTYPES:
            return _StorageType(_DTYPES[name])
        raise _Refused(f"{module}.{name}"[:200])
    raise _Refused("a name that is not a text")  # whose text could be of any length


def _storage(pid: Any) -> _Storage:
    # ("storage", type, key, device, number of elements). The device does not matter to us.
    if not (isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[1], _StorageType)):
        raise _Refused("an unknown kind of storage")
    return _Storage(pid[2], pid[1].dtype, pid[4])


class _Machine:
    """Does what a pickle says, with the opcodes that a dictionary of tensors needs, and no others.

    Python's own unpickler follows a few bytes into any amount of work: the hash of nested tuples, a number for the
    place of a value in the table of values. Here each opcode costs a bounded amount, and their number is bounded.
    """

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._table: dict[int, Any] = {}

    def run(self, program: bytes) -> Any:
        """The object that a program leaves.

        Raises:
          _Refused: the program asks for something that a file of weights does not need.
          Exception: it is damaged, in any way.
        """
        for number, (opcode, argument, _) in enumerate(pickletools.genops(program)):
            if number >= _MAX_OPCODES:
                raise ValueError(f"more than {_MAX_OPCODES:,} steps, which no network needs")
            if opcode.name == "STOP":
                return self._stack.pop()
            if opcode.name not in _STEPS:
                raise _Refused(f"the opcode {opcode.name}")
            _STEPS[opcode.name](self, argument)
        raise EOFError("the pickle does not end")

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        items = self._stack[start:]
        del self._stack[start:]
        return items

    def _pass(self, argument: Any) -> None:
        pass

    def _mark(self, argument: Any) -> None:
        self._marks.append(len(self._stack))

    def _push(self, argument: Any) -> None:
        self._stack.append(argument)

    def _push_number(self, argument: int) -> None:
        if argument.bit_length() > 63:
            raise ValueError("a number of more than 63 bits")
        self._stack.append(argument)

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(items) % 2:
            raise ValueError("keys and values outside a dictionary")
        for key, value in zip(items[::2], items[1::2], strict=True):
            # The hash of other keys can take any time.
            if key is not None and type(key) not in (str, int):
                raise ValueError(f"a key is a {type(key).__name__}")
            target[key] = value

    def _dictionary(self, argument: Any) -> None:
        items = self._since_mark()
        self._stack.append({})
        self._set(items)

    def _set_item(self, argument: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def _tuple_of(self, count: int) -> None:
        if len(self._stack) < count:
            raise IndexError("a tuple of too few values")
        self._stack[-count:] = [tuple(self._stack[-count:])]

    def _append(self, items: list[Any]) -> None:
        if type(self._stack[-1]) is not list:
            raise ValueError("items outside a list")
        self._stack[-1] += items

    def _keep(self, argument: Any) -> None:
        self._table[int(argument)] = self._stack[-1]

    def _global(self, argument: str) -> None:
        self._stack.append(_named(*argument.split(" ", 1)))

    def _stack_global(self, argument: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(_named(module, name))

    def _call(self, argument: Any) -> None:
        arguments, function = self._stack.pop(), self._stack.pop()
        # By identity: whatever else the program has made, comparing it could take any time.
        if type(arguments) is not tuple or not any(function is known for known in _FUNCTIONS.values()):
            raise _Refused("a call of something else than a function")
        self._stack.append(function(*arguments))

    def _build(self, argument: Any) -> None:
        # torch adds the versions of modules to a dictionary, which are of no use here.
        self._stack.pop()
        if type(self._stack[-1]) is not dict:
            raise _Refused("a change of something else than a dictionary")


# Opcode -> what the machine does with its argument.
_STEPS: dict[str, Callable[[_Machine, Any], Any]] = {
    **dict.fromkeys(("PROTO", "FRAME"), _Machine._pass),
    "MARK": _Machine._mark,
    "NONE": lambda machine, _: machine._push(None),
    "NEWTRUE": lambda machine, _: machine._push(True),
    "NEWFALSE": lambda machine, _: machine._push(False),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "LONG1", "INT", "LONG"), _Machine._push_number),
    **dict.fromkeys(("BINFLOAT", "FLOAT", "BINUNICODE", "SHORT_BINUNICODE", "UNICODE"), _Machine._push),
    **dict.fromkeys(("BINSTRING", "SHORT_BINSTRING"), _Machine._push),
    "EMPTY_DICT": lambda machine, _: machine._push({}),
    "EMPTY_LIST": lambda machine, _: machine._push([]),
    "EMPTY_TUPLE": lambda machine, _: machine._push(()),
    "DICT": _Machine._dictionary,
    "LIST": lambda machine, _: machine._push(machine._since_mark()),
    "TUPLE": lambda machine, _: machine._push(tuple(machine._since_mark())),
    "TUPLE1": lambda machine, _: machine._tuple_of(1),
    "TUPLE2": lambda machine, _: machine._tuple_of(2),
    "TUPLE3": lambda machine, _: machine._tuple_of(3),
    "SETITEM": _Machine._set_item,
    "SETITEMS": lambda machine, _: machine._set(machine._since_mark()),
    "APPEND": lambda machine, _: machine._append([machine._stack.pop()]),
    "APPENDS": lambda machine, _: machine._append(machine._since_mark()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT", "PUT"), _Machine._keep),
    "MEMOIZE": lambda machine, _: machine._keep(len(machine._table)),
    **dict.fromkeys(("BINGET", "LONG_BINGET", "GET"), lambda machine, place: machine._push(machine._table[int(place)])),
    "POP": lambda machine, _: machine._stack.pop(),
    "GLOBAL": _Machine._global,
    "STACK_GLOBAL": _Machine._stack_global,
    "BINPERSID": lambda machine, _: machine._push(_storage(machine._stack.pop())),
    "REDUCE": _Machine._call,
    "BUILD": _Machine._build,
}


def read_torch_pickle(path: str | os.PathLike) -> dict[str, PickledTensor]:
    """Lists the tensors of a ``torch.save`` file that holds one flat dictionary of tensors, or it as ``state_dict``.

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
                raise InputError(
                    f"{path} is a zip archive, but not one of torch.save: it has no data.pkl", code="not-weights"
                )
            root = programs[0].removesuffix("data.pkl")
            if sizes[programs[0]].file_size > _MAX_PICKLE_BYTES:
                raise InputError(
                    f"{path} is refused: its data.pkl is larger than that of any network", code="too-large"
                )
            program = archive.read(programs[0])
            order = sizes.get(f"{root}byteorder")
            if order is not None and order.file_size > _LONGEST_ORDER:
                raise InputError(f"{path} is damaged: its byteorder is not a word; get it again", code="damaged-file")
            byteorder = b"little" if order is None else archive.read(order)
    except zipfile.BadZipFile as error:
        raise InputError(
            f"{path} is damaged, or in the format from before PyTorch 1.6, which is not supported: get it again, or"
            " load it with torch once and save it as safetensors",
            code="damaged-file",
        ) from error
    except _UNREADABLE as error:
        raise InputError(f"{path} cannot be read: {error}", code="cannot-read") from error
    if byteorder.strip() != b"little":
        raise InputError(
            f"{path} was saved on a big-endian machine, which is not supported", code="unsupported-file-format"
        )

    try:
        content = _Machine().run(program)
    except _Refused as refused:
        raise InputError(
            f"{path} is refused: a file of weights has no need of {refused}, and this could run code when it is opened",
            code="unsafe-pickle",
        ) from refused
    except Exception as error:
        # A damaged or hostile program can fail in any way. None of them concerns the caller.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(f"{path} is not a pickle of tensors ({reason}): get it again", code="not-weights") from error
    if not isinstance(content, dict):
        raise InputError(
            f"{path} must hold a dictionary of tensors, but holds a {type(content).__name__}", code="not-weights"
        )
    # Checkpoints of a training hold how far it was, and its optimizer's state, besides.
    if type(content.get(_WEIGHTS)) is dict:
        content = content[_WEIGHTS]
    return {key: _tensor(path, root, sizes, key, value) for key, value in content.items()}


def _tensor(path: str, root: str, sizes: dict[str, zipfile.ZipInfo], key: Any, value: Any) -> PickledTensor:
    """Checks a description, now that the program has ended and can no longer change it."""
    if not isinstance(key, str) or type(value) is not _Description:
        raise InputError(
            f"{path} holds something other than tensors by name, at {key!r}: it is no file of weights",
            code="not-weights",
        )
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
        raise InputError(
            f"{path} is refused: it describes the tensor {key} in a way that torch.save never does",
            code="unsafe-pickle",
        )
    member = f"{root}data/{storage.key}"
    if member not in sizes:
        raise InputError(f"{path} is damaged: it has no {member}, the values of {key}", code="damaged-file")
    # torch never compresses. A compressed member could unpack to any size.
    if sizes[member].compress_type != zipfile.ZIP_STORED:
        raise InputError(
            f"{path} is refused: {member} is compressed, which torch.save never does", code="compressed-weights"
        )
    return PickledTensor(path, member, storage.dtype, storage.size, value.offset, value.shape, value.strides)


def conversion_command(source: sources.Source) -> str:
    """Returns the command line that turns the pickles of a source into safetensors files."""
    module = "python -m winobench.checkpoints.convert_pickle"
    if isinstance(source, sources.HubRepository):
        revision = f" --revision={shlex.quote(source.requested)}" if source.requested else ""
        return f"{module} {source.repo_id} {source.repo_id.rpartition('/')[2]}{revision}"
    return f"{module} {shlex.quote(str(source.path))}"
