"""Weights that a file stores in few bits, with scales that turn them into floats.

- Floats of 8 bits with a scale for each tensor or row, as in files of ComfyUI, BFL and compressed-tensors.
- The forms of bitsandbytes: 4 bits (nf4, fp4) and int8.

Scales of inputs (``input_scale``) are left out: here a layer's inputs keep the network's dtype.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from winobench.base import json_files, options
from winobench.base.errors import InputError
from winobench.checkpoints.tensors import FileTensor

_FLOATS = ("F8_E4M3", "F8_E5M2")
_FACTORS = ("scale_weight", "weight_scale")
_OF_INPUTS = ("scale_input", "input_scale")
# Marks of ComfyUI, which only concern how products are computed there.
_MARK, _FORMAT = "scaled_fp8", "comfy_quant"
_FORMATS = ("float8_e4m3fn", "float8_e5m2")
_OTHERS = re.compile(r"(.+[._])?(scaled_fp8|(weight|input)_scale\w*|scale_(weight|input)|comfy_quant)")
_4_BITS = re.compile(r"(.+)\.quant_state\.bitsandbytes__(?:nf4|fp4)")
_8_BITS, _IS_ROWS = "SCB", "weight_format"
# bitsandbytes' own constant.
_OF_INT8 = np.float32(1 / 127)


def dequantised(tensors: Mapping[str, FileTensor]) -> dict[str, FileTensor]:
    """The tensors of a network as floats, without scales and other tensors of their storage."""
    result = dict(tensors)
    if any(tensor.stored in _FLOATS for tensor in tensors.values()):
        for name in tensors:
            _apply(name, result)
        if left := [name for name in result if _OTHERS.fullmatch(name)]:
            raise _unknown(result[left[0]])
    for name in tensors:
        if match := _4_BITS.fullmatch(name):
            _unpack(match[1], name, result)
        elif name.endswith(f".{_8_BITS}"):
            _multiply_rows(name.removesuffix(_8_BITS), result)
    return result


def _apply(name: str, tensors: dict[str, FileTensor]) -> None:
    layer, _, kind = name.rpartition(".")
    if kind == _MARK:
        del tensors[name]
        return
    if kind not in (*_FACTORS, *_OF_INPUTS, _FORMAT):
        return
    tensor, weight = tensors.pop(name), tensors.get(f"{layer}.weight")
    if weight is None:
        raise _unknown(tensor)
    if kind == _FORMAT:
        described = _described(tensor)
        if described.get("format") not in _FORMATS or described.keys() - {"format", "full_precision_matrix_mult"}:
            raise _unknown(tensor)
    elif kind in _FACTORS:
        rows = weight.shape[:1] + (1,) * (len(weight.shape) - 1)
        if weight.stored not in _FLOATS or tensor.shape not in ((), (1,), rows):
            raise _unknown(tensor)
        tensors[f"{layer}.weight"] = _replaced(weight, weight.shape, lambda: weight.read() * _float32(tensor))


def _unpack(weight: str, name: str, tensors: dict[str, FileTensor]) -> None:
    """The 4-bit form: two values a byte, the first in the higher bits, and a largest value for each block."""
    state = tensors.pop(name)
    parts = {key: tensors.pop(f"{weight}.{key}", None) for key in ("absmax", "quant_map")}
    nested = {key: tensors.pop(f"{weight}.{key}", None) for key in ("nested_absmax", "nested_quant_map")}
    packed = tensors.get(weight)
    described = _described(state)
    block, shape, inner = (described.get(key) for key in ("blocksize", "shape", "nested_blocksize"))
    is_nested = inner is not None
    needed = [packed, *parts.values(), *(nested.values() if is_nested else ())]
    if None in needed or not isinstance(block, int) or not isinstance(shape, list):
        raise _unknown(state)

    def read() -> np.ndarray:
        largest = parts["absmax"].read()
        if is_nested:
            largest = _blocks(nested["nested_quant_map"], largest, nested["nested_absmax"].read(), inner)
            largest = largest + np.float32(described["nested_offset"])
        codes = packed.read().reshape(-1)
        codes = np.stack([codes >> 4, codes & 15], axis=-1).reshape(-1)[: math.prod(shape)]
        return _blocks(parts["quant_map"], codes, largest, block).reshape(shape)

    tensors[weight] = _replaced(packed, tuple(shape), read)


def _blocks(values: FileTensor, codes: np.ndarray, largest: np.ndarray, size: int) -> np.ndarray:
    """Values by their codes, times the largest of each block of so many. The last block may be shorter."""
    return _float32(values)[codes] * np.repeat(largest.astype(np.float32), size)[: codes.size]


def _multiply_rows(layer: str, found: dict[str, FileTensor]) -> None:
    largest, weight = found.pop(f"{layer}{_8_BITS}"), found.get(f"{layer}weight")
    layout = found.pop(f"{layer}{_IS_ROWS}", None)
    if weight is None or weight.shape[:1] != largest.shape or (layout is not None and layout.read().any()):
        raise _unknown(largest)
    found[f"{layer}weight"] = _replaced(
        weight, weight.shape, lambda: weight.read() * _float32(largest)[:, None] * _OF_INT8
    )


def _described(tensor: FileTensor) -> dict[str, Any]:
    """A JSON object in a tensor of bytes."""
    try:
        described = json_files.parse(tensor.read().tobytes())
    except json_files.NotJSON as error:
        raise _unknown(tensor) from error
    return described if isinstance(described, dict) else {}


def _float32(tensor: FileTensor) -> np.ndarray:
    return tensor.floats().astype(np.float32)


def _replaced(tensor: FileTensor, shape: tuple[int, ...], read: Any) -> FileTensor:
    return dataclasses.replace(tensor, shape=shape, read=read, stored="")


def _unknown(tensor: FileTensor) -> InputError:
    return InputError(
        f"{tensor.file} is quantised in a way that is not read here ({options.quote(tensor.name)}): take the"
        " unquantised model",
        code="unsupported-checkpoint",
    )
