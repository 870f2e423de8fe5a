"""Arrays in MATLAB's files, as some data sets state their classes."""

from __future__ import annotations

import io
import pathlib

import numpy as np

from winobench.base.errors import InputError
from winobench.tasks.annotations import not_as_published, read_bytes


def read(path: pathlib.Path, name: str) -> np.ndarray:
    """An array of the file, without axes of length 1."""
    import scipy.io  # late: few tasks need it

    stored = io.BytesIO(read_bytes(path))
    try:
        content = scipy.io.loadmat(stored, squeeze_me=True, variable_names=[name])
    except Exception:  # scipy raises nearly anything for a file that is cut off or of another kind
        raise InputError(
            f"{path} is damaged, or no file of MATLAB's: get the file again", code="damaged-file"
        ) from None
    if name not in content:
        raise not_as_published(path, f"has no {name!r}", "missing-field")
    return np.atleast_1d(content[name])


def read_numbers(path: pathlib.Path, name: str) -> np.ndarray:
    """The same of whole numbers in a row, int64 [n]."""
    array = read(path, name)
    if array.ndim != 1 or array.dtype.kind not in "iuf" or not np.array_equal(array, np.floor(array)):
        raise not_as_published(f"{name!r} in {path}", "is not a list of whole numbers", "not-a-number")
    return array.astype(np.int64)
