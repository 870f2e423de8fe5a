"""Reads PyTorch weight files (``.bin``) without PyTorch and without running code that is in them.

A pickle is a small program: opened in the ordinary way it can do anything. The unpickler here finds the few names that
weights need, which make descriptions of tensors, and refuses all others. A program that would take more time or memory
than any network's is refused before it runs.
"""

from __future__ import annotations

import dataclasses
import io
import lzma
import math
import os
import pickle
import pickletools
import zipfile
import zlib
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from winobench.base.errors import InputError

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
# Values of a tuple and of those in it. torch writes 6, and tuples of at most 8 dimensions among them.
_LARGEST_TUPLE = 100
# The weights' key in the checkpoint of a training, of OpenCLIP's or Lightning's.
_WEIGHTS = "state_dict"
# What reading a member of a damaged, encrypted or oddly packed archive raises, besides BadZipFile.
_UNREADABLE = (OSError, NotImplementedError, RuntimeError, EOFError, zlib.error, lzma.LZMAError)


class _Refused(Exception):
    """The pickle asks for something that a file of weights does not need."""


class _Storage(NamedTuple):
    key: str
    dtype: np.dtype
    size: int


@dataclasses.dataclass(frozen=True, slots=True)
class PickledTensor:
    """A tensor in an archive of PyTorch's, with torch's shape and strides."""

    path: str
    member: str
    dtype: np.dtype
    size: int
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def read(self) -> np.ndarray:
        """Reads the values: a new, contiguous array."""
        try:
            with zipfile.ZipFile(self.path) as archive:
                content = archive.read(self.member)
            if len(content) < self.size * self.dtype.itemsize:
                raise EOFError("too short")
        except (*_UNREADABLE, KeyError, zipfile.BadZipFile) as error:
            message = f"{self.path} is damaged at {self.member} ({error}): get it again"
            raise InputError(message, code="damaged-file") from error
        flat = np.frombuffer(content, self.dtype, self.size)[self.offset :]
        strides = tuple(stride * self.dtype.itemsize for stride in self.strides)
        return np.array(np.lib.stride_tricks.as_strided(flat, self.shape, strides, writeable=False), order="C")


class _Sealed:
    """A class whose instances and itself the instruction BUILD cannot change."""

    __slots__ = ()

    def __setstate__(self, state: Any) -> None:
        raise _Refused("a change of something else than a dictionary")


class _Description(_Sealed):
    """``torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, backward_hooks, ...)``."""

    __slots__ = ("offset", "shape", "storage", "strides")

    def __init__(self, storage: Any, offset: Any, shape: Any, strides: Any, *_: Any):
        self.storage, self.offset, self.shape, self.strides = storage, offset, shape, strides


class _Parameter(_Sealed):
    """``torch._utils._rebuild_parameter(tensor, requires_grad, backward_hooks)``, which is the tensor."""

    def __new__(cls, tensor: Any, *_: Any) -> Any:
        if type(tensor) is not _Description:
            raise _Refused("a parameter of something else than a tensor")
        return tensor


class _Dictionary(dict):
    """``collections.OrderedDict()``, to which torch adds the versions of modules, unused here."""

    def __init__(self):  # without arguments, which could be copied any number of times
        super().__init__()

    def __setstate__(self, state: Any) -> None:
        pass


_CLASSES = {
    ("collections", "OrderedDict"): _Dictionary,
    ("torch._utils", "_rebuild_tensor_v2"): _Description,
    ("torch._utils", "_rebuild_parameter"): _Parameter,
}


class _Unpickler(pickle.Unpickler):
    """Finds the names that a dictionary of tensors needs, and no others: nothing else can be called."""

    def find_class(self, module: str, name: str) -> Any:
        if module == "torch" and name in _DTYPES:
            return name
        if (module, name) not in _CLASSES:
            raise _Refused(f"{module}.{name}"[:200])
        return _CLASSES[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        # ("storage", type, key, device, number of elements). The device does not matter here.
        is_storage = type(pid) is tuple and list(map(type, pid)) == [str, str, str, str, int] and pid[0] == "storage"
        if not is_storage or pid[1] not in _DTYPES:
            raise _Refused("an unknown kind of storage")
        return _Storage(pid[2], _DTYPES[pid[1]], pid[4])


# The opcodes that a dictionary of tensors needs.
_OPCODES = """
PROTO FRAME STOP MARK POP NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 INT LONG BINFLOAT FLOAT BINUNICODE
SHORT_BINUNICODE UNICODE BINSTRING SHORT_BINSTRING EMPTY_DICT EMPTY_LIST EMPTY_TUPLE DICT LIST TUPLE TUPLE1 TUPLE2
TUPLE3 SETITEM SETITEMS APPEND APPENDS BINPUT LONG_BINPUT PUT MEMOIZE BINGET LONG_BINGET GET GLOBAL STACK_GLOBAL
BINPERSID REDUCE BUILD
"""
# Of these, opcodes that change a value and leave it on the stack. With nothing to change, it can be a tuple.
_CHANGES = ("SETITEM", "SETITEMS", "APPEND", "APPENDS", "BUILD")


def _check_cost(program: bytes) -> None:
    """Refuses programs of a few bytes that Python would follow into any amount of time or memory.

    Such programs have many steps, far places in the table of values, or tuples that hold one tuple many times, whose
    hash takes exponential time. This function follows the sizes of the values on the stack.
    """
    stack: list[int] = []
    marks: list[int] = []
    table: dict[int, int] = {}
    allowed = set(_OPCODES.split())
    for number, (opcode, argument, _) in enumerate(pickletools.genops(program)):
        if opcode.name not in allowed:
            raise _Refused(f"the opcode {opcode.name}")
        if number >= _MAX_OPCODES:
            raise ValueError(f"more than {_MAX_OPCODES:,} steps, which no network needs")
        if opcode.name == "MARK":
            marks.append(len(stack))
        elif opcode.name == "POP" and marks and marks[-1] == len(stack):
            marks.pop()
        elif "PUT" in opcode.name or opcode.name == "MEMOIZE":
            index = len(table) if argument is None else int(argument)
            if index > _MAX_OPCODES:
                raise ValueError("a place far outside the table of values")
            table[index] = stack[-1]
        elif "GET" in opcode.name:
            stack.append(table[int(argument)])
        else:
            taken = [kind for kind in opcode.stack_before if kind is not pickletools.stackslice]
            start = len(stack) - len(taken)
            if pickletools.markobject in taken:
                start = marks.pop() - (len(taken) - 1)
            if start < 0:
                raise IndexError("a step that takes more values than there are")
            size = 1
            if "TUPLE" in opcode.name:
                size += sum(stack[start:])
            elif opcode.name in _CHANGES:
                size = stack[start]
            if size > _LARGEST_TUPLE:
                raise ValueError(f"a tuple of more than {_LARGEST_TUPLE} values")
            stack[start:] = [size] * len(opcode.stack_after)


def _unpickle(program: bytes) -> Any:
    _check_cost(program)
    return _Unpickler(io.BytesIO(program), fix_imports=False, encoding="latin-1").load()


def read_torch_pickle(path: str | os.PathLike) -> dict[str, PickledTensor]:
    """Lists the tensors of a ``torch.save`` file that holds one flat dictionary of tensors, or it as ``state_dict``.

    Returns key -> tensor, whose values are read on demand.
    """
    path = os.fspath(path)
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {info.filename: info for info in archive.infolist()}
            programs = [name for name in sizes if name.count("/") == 1 and name.endswith("/data.pkl")]
            if len(programs) != 1:
                raise _not_weights(f"{path} is a zip archive, but not one of torch.save: it has no data.pkl")
            root = programs[0].removesuffix("data.pkl")
            if sizes[programs[0]].file_size > _MAX_PICKLE_BYTES:
                message = f"{path} is refused: its data.pkl is larger than any network's"
                raise InputError(message, code="too-large")
            program = archive.read(programs[0])
            order = sizes.get(f"{root}byteorder")
            if order is not None and order.file_size > _LONGEST_ORDER:
                raise InputError(f"{path} is damaged: its byteorder is not a word. Get it again", code="damaged-file")
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
        message = f"{path} was saved on a big-endian machine, which is not supported"
        raise InputError(message, code="unsupported-file-format")
    try:
        content = _unpickle(program)
    except _Refused as refused:
        raise InputError(
            f"{path} is refused: a file of weights has no need of {refused}, and this could run code when it is opened",
            code="unsafe-pickle",
        ) from refused
    except Exception as error:
        # A damaged or hostile program can fail in any way, which does not concern the caller.
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise _not_weights(f"{path} is not a pickle of tensors ({reason}): get it again") from error
    if not isinstance(content, dict):
        raise _not_weights(f"{path} must hold a dictionary of tensors, but holds a {type(content).__name__}")
    # Checkpoints of a training hold its progress and its optimizer's state, too.
    if isinstance(content.get(_WEIGHTS), dict):
        content = content[_WEIGHTS]
    # A learned word of the web UI.
    if isinstance(content.get("string_to_param"), dict):
        content = {content.get("name"): content["string_to_param"].get("*")}
    return {key: _tensor(path, root, sizes, key, value) for key, value in content.items()}


def _not_weights(message: str) -> InputError:
    return InputError(message, code="not-weights")


def _tensor(path: str, root: str, sizes: dict[str, zipfile.ZipInfo], key: Any, value: Any) -> PickledTensor:
    """Checks a description, now that the program has ended and can no longer change it."""
    if not isinstance(key, str) or type(value) is not _Description:
        name = repr(key[:80]) if isinstance(key, str) else f"a {type(key).__name__}"
        raise _not_weights(f"{path} holds something other than tensors by name, at {name}: it is not a file of weights")
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
        # Values that repeat (stride 0) are not weights, and would let a small file take any amount of memory.
        sound = count == 0 or (count <= storage.size and last < storage.size)
    if not sound:
        message = f"{path} is refused: it describes the tensor {key} in a way that torch.save never does"
        raise InputError(message, code="unsafe-pickle")
    member = f"{root}data/{storage.key}"
    if member not in sizes:
        raise InputError(f"{path} is damaged: it has no {member}, the values of {key}", code="damaged-file")
    # torch never compresses. A compressed member could unpack to any size.
    if sizes[member].compress_type != zipfile.ZIP_STORED:
        message = f"{path} is refused: {member} is compressed, which torch.save never does"
        raise InputError(message, code="compressed-weights")
    return PickledTensor(path, member, storage.dtype, storage.size, value.offset, value.shape, value.strides)
