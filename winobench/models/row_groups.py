"""Layers over groups of a batch's rows, one after the other, so that the arrays of a group stay on a TPU's chip.

XLA keeps what fits in the memory on the chip. With all rows at once, the wide arrays of a transformer go through the
device's memory, and its copies between layouts do, too. Convolutions are faster with all rows.
"""

from __future__ import annotations

from collections.abc import Callable

import jax

from winobench import parallel

# Bytes of the memory on a chip that the widest array of a group may take, by the kind of a TPU: two thirds of it. A
# v5p's two cores have 64 MiB each, and groups are slower there: 7.9 ms instead of 7.2 at 64 x 64 positions.
_WIDEST = {"TPU v5 lite": 84 << 20, "TPU v6 lite": 84 << 20}


def map_in_groups(function: Callable[..., jax.Array], row_bytes: int, *arrays: jax.Array) -> jax.Array:
    """``function(*arrays)``, which gives one row for each of the arrays' rows, whose widest array has so many bytes."""
    rows = arrays[0].shape[0]
    size = group_size(rows, row_bytes)
    if size == rows:
        return function(*arrays)
    groups = tuple(array.reshape(-1, size, *array.shape[1:]) for array in arrays)
    result = jax.lax.map(lambda group: function(*group), groups)
    return result.reshape(rows, *result.shape[2:])


def group_size(rows: int, row_bytes: int) -> int:
    """The most rows of a group that divide all rows. All of them on other devices, or where not even one row fits."""
    device = parallel.traced_device()
    most = _WIDEST.get(device.kind, 0) // row_bytes if device is not None and parallel.runs_on_one_device() else 0
    return next((size for size in range(min(rows, most), 0, -1) if rows % size == 0), rows)
