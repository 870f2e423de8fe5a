"""Results of traced torch modules, compared with torch's own."""

from __future__ import annotations

import importlib.metadata
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from winobench.base import caches, files
from winobench.base.errors import InputError

TOLERANCES = {"float32": 1e-4, "bfloat16": 0.05, "float16": 0.01}
"""Largest differences from torch, as `difference` measures them."""


def versions() -> dict[str, str]:
    """Versions of the packages whose code determines a prediction."""
    names = ("diffusers", "transformers", "torch", "torchax")
    return {name: importlib.metadata.version(name).partition("+")[0] for name in names}


def check_once(fingerprint: str, name_of_class: str, measure: Callable[[], Mapping[str, tuple[float, float]]]) -> None:
    """Raises InputError for a difference from torch that is larger than allowed. The cache keeps the result.

    Networks whose layers do not fit each other fail here first, with an InputError, too.
    """
    device = jax.devices()[0]
    key = [fingerprint, device.platform, device.device_kind, jax.__version__, caches.processor()]
    path = pathlib.Path(caches.folder()) / "torch_checks" / f"{files.digest(key)[:32]}.json"
    if path.exists():
        return
    try:
        measured = measure()
    except InputError:
        raise
    except (TypeError, ValueError) as error:  # of shapes. Devices raise RuntimeError
        message = f"this {name_of_class} cannot run, so check the sizes in its config.json: {str(error)[:300]}"
        raise InputError(" ".join(message.split()), code="unsupported-checkpoint") from error
    for name, (between, allowed) in measured.items():
        if not between <= allowed:
            raise InputError(
                f"{name} of this {name_of_class} differ from torch's by {between:.1e} of their size"
                f" (at most {allowed:.0e} is rounding): it cannot be used here, so report it",
                code="differs-from-torch",
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    files.write_json(path, {name: between for name, (between, _) in measured.items()})


def difference(got: Any, wanted: Any, dtype: Any) -> float:
    """Difference from torch's values, as a share of their root mean square.

    In float32 it is the largest one. In half precision, where rounding errors add up differently, it is the root mean
    square of all.
    """
    got, wanted = (np.asarray(array, np.float32) for array in (got, wanted))
    between = np.abs(got - wanted)
    largest = between.max() if dtype == jnp.float32 else _size(between)
    return float(largest) / max(_size(wanted), float(np.finfo(np.float32).tiny))


def _size(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array))))
