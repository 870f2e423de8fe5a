"""GGUF files of diffusion models: quantised weights under the names of the original layout, read as floats."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from winobench.base.errors import InputError
from winobench.checkpoints.tensors import FileTensor

# Some programs flatten convolutions and keep their shapes in fields of these names.
_SHAPE = "comfy.gguf.orig_shape."
# Elements of an array in the metadata. The largest are vocabularies and their merges, with less than a million.
_MOST_ELEMENTS = 2**24


def read(path: str) -> dict[str, FileTensor]:
    """The tensors of a file, key -> tensor. Values are float32, dequantised when they are read."""
    try:
        kind = _bounded_reader()
    except ImportError as error:
        raise InputError(
            f'{path} is read by the package gguf, which is not installed: pip install "winobench[torch]"',
            code="missing-package",
        ) from error
    try:
        reader = kind(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error})", code="cannot-read") from error
    # Its reader raises many kinds of exceptions for a damaged file.
    except Exception as error:
        raise InputError(f"{path} is not a whole GGUF file ({error}): get it again", code="damaged-file") from error
    tensors = {}
    for tensor in reader.tensors:
        shape = _shape(reader, tensor)
        values = functools.partial(_floats, path, tensor, shape)
        tensors[tensor.name] = FileTensor(tensor.name, shape, path, values)
    return tensors


def _bounded_reader() -> type[Any]:
    """The package's reader, which takes counts as they stand: here each is compared with the file's size."""
    import gguf

    class Reader(gguf.GGUFReader):
        def _get(self, offset, dtype, count=1, *args, **options):
            if not 0 <= int(offset) <= int(offset) + np.dtype(dtype).itemsize * int(count) <= len(self.data):
                raise ValueError(f"it ends before {int(count):,} values at byte {int(offset):,}")
            return super()._get(offset, dtype, count, *args, **options)

        def _get_field_parts(self, orig_offs, raw_type):
            if int(raw_type) == gguf.GGUFValueType.ARRAY:
                count = int(self._get(orig_offs + 4, np.uint64)[0])
                if count > min(len(self.data) - orig_offs, _MOST_ELEMENTS):
                    raise ValueError(f"an array of its metadata has {count:,} elements")
            return super()._get_field_parts(orig_offs, raw_type)

    return Reader


def _shape(reader: Any, tensor: Any) -> tuple[int, ...]:
    field = reader.get_field(f"{_SHAPE}{tensor.name}")
    if field is None:
        return tuple(int(size) for size in reversed(tensor.shape))
    return tuple(int(field.parts[part][0]) for part in field.data)


def _floats(path: str, tensor: Any, shape: tuple[int, ...]) -> np.ndarray:
    import gguf

    try:
        values = gguf.dequantize(tensor.data, tensor.tensor_type)
    except NotImplementedError as error:
        raise InputError(
            f"{path} quantises {tensor.name} as {tensor.tensor_type.name}, which the package gguf does not undo: take"
            " another quantisation",
            code="unsupported-checkpoint",
        ) from error
    if values.size != math.prod(shape):
        raise InputError(f"{path} states the shape {list(shape)} of {tensor.name}: get it again", code="damaged-file")
    return np.asarray(values, np.float32).reshape(shape)
