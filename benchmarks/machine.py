"""Machine of a benchmark."""

from __future__ import annotations

import importlib.metadata
import os
import pathlib
import platform
import subprocess
from collections.abc import Sequence
from typing import Any

_LIBRARIES = ("jax", "jaxlib", "flax", "torch", "diffusers", "transformers", "numpy")


def _processor() -> str:
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    if cpuinfo.exists():
        fields = dict(line.split(":", 1) for line in cpuinfo.read_text().splitlines() if ":" in line)
        values = {key.strip(): value.strip() for key, value in fields.items()}
        name = values.get("model name", platform.machine())
        if "cpu family" in values:
            # Virtual machines often hide the model's name, but not its numbers.
            name += f" (family {values['cpu family']}, model {values.get('model', '?')})"
        widest = [flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flag in values.get("flags", "")]
        return f"{name}, {widest[0]}" if widest else name
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError, AttributeError):
        return None


def _commit() -> str | None:
    """The commit of this checkout, with a mark if it has changes."""
    root = pathlib.Path(__file__).parents[1]
    try:
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
            cwd=root,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return run.stdout.strip()


def describe(accelerator: str | None = None, *, more: Sequence[str] = ()) -> dict[str, Any]:
    """The machine, the libraries and the code, ready for JSON.

    Args:
      accelerator: name of the accelerator that was used, if any.
      more: libraries whose versions matter besides the usual ones.
    """
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": _memory_gib(),
        "accelerator": accelerator,
        "system": platform.platform(),
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in (*_LIBRARIES, *more)},
        "commit": _commit(),
    }


def load_average() -> float | None:
    """Processes that ran or waited for a core during the last minute; more than the benchmark's own disturb it."""
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None
