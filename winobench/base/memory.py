"""Amounts of memory, checked before large allocations, and whether a process keeps freed memory.

Without the question, a system answers with a traceback, kills the process, or crawls.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pathlib
from typing import TYPE_CHECKING, Any

from winobench.base.accelerators import ACCELERATORS
from winobench.base.errors import InputError

if TYPE_CHECKING:
    import jax

# A step of training on a CPU would return its memory, and Linux clear every page again for the next one. Parameters of
# glibc's mallopt, with values: one arena, no separate mappings for large blocks, no memory is returned.
_KEEPING = {-8: 1, -4: 0, -1: -1}
_CGROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def host_bytes() -> int:
    """Bytes of memory that this process can have at most: the machine's, its container's, or its own limit."""
    limits = []
    with contextlib.suppress(AttributeError, OSError, ValueError):  # a system without these numbers
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):  # no such file, or the word "max"
            limits.append(int(pathlib.Path(path).read_text()))
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
        if limit != resource.RLIM_INFINITY:
            limits.append(limit)
    return min((limit for limit in limits if limit > 0), default=1 << 62)


def keep_freed() -> None:
    """Has this process keep the memory that it frees, where the C library is glibc. Call it before threads start."""
    with contextlib.suppress(AttributeError, OSError, TypeError):  # another C library
        for parameter, value in _KEEPING.items():
            ctypes.CDLL(None).mallopt(parameter, value)


def device_bytes(device: jax.Device) -> int:
    """Bytes of memory of a device. CPUs have the host's memory, described devices the memory of their kind."""
    try:
        limit = (device.memory_stats() or {}).get("bytes_limit")
    except Exception:  # backends without such numbers report that in different ways
        limit = None
    if not limit and device.platform != "cpu":
        kinds = {each.device_kind: each.usable_memory for each in ACCELERATORS.values()}
        limit = kinds.get(device.device_kind)
    return int(limit) if limit else host_bytes()


def array_bytes(tree: Any) -> int:
    """Bytes of all arrays of a pytree, or of anything with sizes and dtypes. Of sharded ones, of all parts together."""
    import jax

    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def gigabytes(number: int) -> str:
    return f"{number / 1e9:,.0f} GB" if number >= 1e10 else f"{number / 1e9:.2g} GB"


def check(what: str, needed: int, advice: str, device: jax.Device | None = None) -> None:
    """Refuses what needs so many bytes at least, and cannot fit."""
    available = host_bytes() if device is None else device_bytes(device)
    if needed > available:
        place = "this machine" if device is None or device.platform == "cpu" else f"a {device.device_kind}"
        raise InputError(
            f"{what} needs about {gigabytes(needed)} of memory, but {place} has {gigabytes(available)}: {advice}",
            code="out-of-memory",
        )
