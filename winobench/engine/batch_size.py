"""The number of items that a device works on at once: halved when they do not fit, or searched and remembered."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import caches, files, json_files
from winobench.base.errors import InputError

SEARCH = "search"  # instead of a batch size

_FILE = "batch_sizes.json"

# A size is measured in rounds of these steps for these seconds. The fastest round counts, the least disturbed one.
_STEPS = 3
_SECONDS = 1.0
_LEAST_GAIN = 1.03  # of a next size, for the search to continue
_SPAN = 16  # the largest size over the default

_log = logging.getLogger(__name__)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a device, or the compiler of its programs, reports that something does not fit into its memory."""
    text = str(error).lower().replace("_", " ")
    return isinstance(error, jax.errors.JaxRuntimeError) and ("resource exhausted" in text or "out of memory" in text)


class BatchSize:
    """A number of items that each device of a mesh works on at once, which is halved when they do not fit."""

    def __init__(self, per_device: int, mesh: Mesh, noun: str):
        self.per_device = per_device
        self._mesh = mesh
        self._noun = noun

    @property
    def total(self) -> int:
        """Items of a batch, over all devices."""
        return self.per_device * parallel.data_parallelism(self._mesh)

    def halve(self, error: Exception) -> None:
        """Halves the number, with one line of the log."""
        reason = " ".join(str(error).split())[:200].rstrip(".")
        if parallel.is_multihost(self._mesh):
            raise InputError(
                f"{self._counted()} at once on each device do not fit into memory ({reason}): processes that share a"
                " mesh cannot change that one by one, so give all of them a smaller batch_size",
                code="out-of-memory",
            ) from error
        if self.per_device == 1:
            raise InputError(
                f"not even one {self._noun} at a time fits into a device's memory ({reason}): compute in bfloat16,"
                " have a diffusion model see smaller images (image_size), or have devices share the parameters"
                " (winobench.parallel.make_mesh(model_parallel=...))",
                code="out-of-memory",
            ) from error
        before, self.per_device = self._counted(), self.per_device // 2
        _log.warning(
            "%s at once on each device do not fit into memory (%s): going on with %d", before, reason, self.per_device
        )

    def _counted(self) -> str:
        return f"{self.per_device} {self._noun}{'s' if self.per_device != 1 else ''}"


def search(
    run: Callable[[int, int], None],
    default: int,
    *,
    downwards: bool,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, float]:
    """Measures powers of two, upwards from the default while that helps and fits: batch size -> items a second.

    ``run(batch size of each device, number of steps)`` waits for the end of its steps. A first call with a single step,
    which may compile, does not count.
    """
    first = 1 << (default.bit_length() - 1)
    rates: dict[int, float] = {}

    def helps(size: int) -> bool:
        """Measures a size. Whether it fits and is better than all before."""
        best = max(rates.values(), default=0.0)
        rate = _rate(run, size, clock)
        if rate is not None:
            rates[size] = rate
        return rate is not None and rate > _LEAST_GAIN * best

    size = first
    while not helps(size):
        if size == 1:
            raise InputError(
                "not even a batch size of 1 fits into a device's memory: compute in bfloat16, or choose a smaller"
                " image_size",
                code="out-of-memory",
            )
        size //= 2
    if size == first:
        while size < _SPAN * default and helps(2 * size):
            size *= 2
    if downwards and max(rates, key=rates.__getitem__) == min(rates):
        size = min(rates)
        while size > 1 and helps(size // 2):
            size //= 2
    return rates


def _rate(run: Callable[[int, int], None], size: int, clock: Callable[[], float]) -> float | None:
    """Items a second of a batch size; None if it does not fit."""
    try:
        run(size, 1)
        best, begin = 0.0, clock()
        now = begin
        while now - begin < _SECONDS:
            before = now
            run(size, _STEPS)
            now = clock()
            best = max(best, size * _STEPS / (now - before))
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return None
    return best


def searched(run: Callable[[int, int], None], default: int, mesh: Mesh, key: dict[str, Any]) -> int:
    """The fastest batch size of each device: remembered, or found by a search and then remembered."""
    if parallel.is_multihost(mesh):
        raise InputError(
            "a batch size is searched for on the devices of one process, but these belong to several: give a number",
            code="several-processes",
        )
    device = mesh.devices.flat[0]
    on_cpu = device.platform == "cpu"
    key = key | {
        "device": device.device_kind,
        "processor": caches.processor() if on_cpu else None,  # CPUs have one device_kind
        "mesh": dict(mesh.shape),
        "jax": jax.__version__,
    }
    remembered = recall(key)
    if remembered is not None:
        _log.info("batch size %d, as a search has found before", remembered)
        return remembered
    rates = search(run, default, downwards=on_cpu)
    parts = parallel.data_parallelism(mesh)
    rates = {size: rate * parts for size, rate in sorted(rates.items())}
    chosen = max(rates, key=rates.__getitem__)
    where = remember(key, chosen, rates)
    # A warning, as lower levels are not shown, and a search takes its time.
    _log.warning(
        "batch size %d was found to be the fastest (passes/s: %s); %s",
        chosen,
        ", ".join(f"{size}: {rate:.4g}" for size, rate in rates.items()),
        f"remembered in {where}" if where else "it could not be remembered",
    )
    return chosen


def recall(key: dict[str, Any]) -> int | None:
    entry = _read(os.path.join(caches.folder(), _FILE)).get(files.digest(key))
    size = entry.get("batch_size") if isinstance(entry, dict) else None
    return size if isinstance(size, int) and not isinstance(size, bool) and size >= 1 else None


def remember(key: dict[str, Any], size: int, rates: dict[int, float]) -> str | None:
    """Returns the file, or None if it cannot be written."""
    path = os.path.join(caches.folder(), _FILE)
    entry = {"key": key, "batch_size": size, "passes_per_second": {str(each): rate for each, rate in rates.items()}}
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        files.write_json(path, _read(path) | {files.digest(key): entry})
    except OSError:
        return None
    return path


def _read(path: str) -> dict[str, Any]:
    """Nothing for a missing or damaged file, which the next search replaces."""
    try:
        content = json_files.load(path)
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
