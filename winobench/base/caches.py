"""Caches between runs that only save time, in one folder that may be deleted whenever nothing runs."""

from __future__ import annotations

import contextlib
import os
import platform
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jaxlib
import numpy as np

from winobench.base import files

# Programs that take less time to compile than this many seconds are not kept. A start has dozens of small ones.
_WORTH_KEEPING = 0.0


def folder() -> str:
    """``$WINOBENCH_CACHE``, or ``winobench`` in ``$XDG_CACHE_HOME``, or ``~/.cache/winobench``. It need not exist."""
    own = os.environ.get("WINOBENCH_CACHE")
    if own:
        return os.path.abspath(files.user_path(own))
    common = os.environ.get("XDG_CACHE_HOME") or os.path.join("~", ".cache")
    return os.path.join(os.path.abspath(files.user_path(common)), "winobench")


def processor() -> str:
    """A digest of what this machine's processor can do, and of how many cores it has: 12 hexadecimal digits."""
    found = [platform.machine(), os.cpu_count()]
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
        found += sorted({line.strip() for line in file if line.startswith(("model name", "flags", "Features"))})
    return files.digest(found)[:12]


def keep_compiled() -> None:
    """Has JAX keep compiled programs from now on, unless JAX's settings name a folder or forbid it."""
    config: Any = jax.config  # makes its attributes when it is imported
    if config.jax_compilation_cache_dir is not None or not config.jax_enable_compilation_cache:
        return
    # A home that several machines share would offer one of them what only another one's processor can execute.
    path = os.path.join(folder(), "compiled", processor())
    try:
        os.makedirs(path, exist_ok=True)
    except OSError:
        return
    if not os.access(path, os.W_OK):
        return
    jax.config.update("jax_compilation_cache_dir", path)
    if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", _WORTH_KEEPING)


def kept_arrays(key: Any, compute: Callable[[], Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    """Arrays that a program makes, next to JAX's compiled programs. Computed where they are not there.

    Args:
      key: a JSON value with all that decides them, but for JAX and the device.
      compute: makes the arrays.
    """
    config: Any = jax.config
    folder, device = config.jax_compilation_cache_dir, jax.devices()[0]
    if folder is None or not config.jax_enable_compilation_cache or not os.path.isdir(folder):
        return dict(compute())
    settings = [config.jax_enable_x64, config.jax_default_matmul_precision, os.environ.get("XLA_FLAGS")]
    machine = [jax.__version__, jaxlib.__version__, device.platform, device.device_kind, processor()]
    path = os.path.join(folder, f"winobench-{files.digest([key, machine, settings])}.npz")
    with contextlib.suppress(OSError, ValueError, EOFError, zipfile.BadZipFile), np.load(path) as arrays:
        return dict(arrays)  # zip files have checksums
    arrays = dict(compute())
    with contextlib.suppress(OSError), files.atomic_path(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)
    return arrays
