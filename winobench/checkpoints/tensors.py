"""Tensors in files, whose values are read on demand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import ml_dtypes
import numpy as np

from winobench.base.errors import InputError


@dataclasses.dataclass(frozen=True)
class FileTensor:
    """A tensor that lies in a file."""

    name: str  # its key in the file
    shape: tuple[int, ...]  # torch's
    file: str
    read: Callable[[], np.ndarray]  # the values, in the file's dtype. Floats of 8 bits are float32 here
    stored: str = ""  # the file's dtype, as safetensors names it

    def floats(self) -> np.ndarray:
        """The values. Raises InputError where they are not real numbers."""
        values = self.read()
        if values.dtype.kind != "f" and values.dtype != ml_dtypes.bfloat16:
            message = f"{self.file}: the tensor {self.name} holds {values.dtype}, not real numbers"
            raise InputError(message, code="wrong-dtype")
        return values
