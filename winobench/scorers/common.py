"""Shared code of scorers: checks of their arguments, and their devices."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike

from winobench import parallel
from winobench.base import options
from winobench.base.errors import InputError


def positive(name: str, value: Any) -> int:
    """A whole number of at least 1."""
    return options.COUNT.check(name, value, "out-of-range")


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    return options.choice(*choices).check(name, value)


def checked_pairs(pairs: ArrayLike, num_images: int, num_texts: int) -> np.ndarray:
    """int32 [n, 2] of (number of the image, number of the text)."""
    return checked_rows("pairs", pairs, {"image": num_images, "text": num_texts})


def checked_rows(name: str, rows: ArrayLike, limits: Mapping[str, int]) -> np.ndarray:
    """int32 [n, number of columns], rows of numbers of things."""
    rows = np.asarray(rows)
    if rows.size == 0:
        return np.zeros((0, len(limits)), np.int32)
    if rows.ndim != 2 or rows.shape[1] != len(limits) or not np.issubdtype(rows.dtype, np.integer):
        raise InputError(
            f"{name} has the shape {list(rows.shape)} and the type {rows.dtype}, but it must be an integer array"
            f" [n, {len(limits)}] of rows ({', '.join(limits)})",
            code="wrong-shape",
        )
    for column, (what, limit) in zip(rows.T, limits.items(), strict=True):
        if column.min() < 0 or column.max() >= limit:
            raise InputError(
                f"{name} names {what}s {column.min()} to {column.max()}, but there are {limit}, numbered from 0",
                code="out-of-range",
            )
    return rows.astype(np.int32)


def finite_scores(scores: np.ndarray) -> np.ndarray:
    """Scores [images, texts]. Raises InputError unless all are finite."""
    wrong = np.argwhere(~np.isfinite(scores))
    if len(wrong):
        image, text = wrong[0].tolist()
        raise InputError(
            f"the score of images[{image}] and texts[{text}] is not finite: try dtype='float32', or check the weights",
            code="not-finite",
        )
    return scores


def over_grid(
    shape: tuple[int, ...], iterate: Callable[[np.ndarray], Iterable[tuple[np.ndarray, np.ndarray]]]
) -> np.ndarray:
    """Floats of this shape, of a function of int32 [n, dimensions] that yields (some of these rows, their values)."""
    rows = np.indices(shape, dtype=np.int32).reshape(len(shape), -1).T
    values: np.ndarray | None = None
    for numbers, part in iterate(rows):
        if values is None:
            values = np.empty(len(rows), np.asarray(part).dtype)
        values[numbers] = part
    return np.zeros(shape, np.float32) if values is None else values.reshape(shape)


def distinct(keys: Sequence[Any]) -> tuple[list[int], np.ndarray]:
    """The position of each distinct key's first occurrence, and for every key the number of its distinct one."""
    numbers: dict[Any, int] = {}
    first: list[int] = []
    for position, key in enumerate(keys):
        if key not in numbers:
            numbers[key] = len(first)
            first.append(position)
    return first, np.asarray([numbers[key] for key in keys])


def image_key(image: Any) -> Any:
    """Equal for images that are the same for sure: same path, same pixels."""
    if content_hash := getattr(image, "content_hash", None):
        return content_hash
    if isinstance(image, str | os.PathLike):
        return os.fspath(image)
    if isinstance(image, np.ndarray):
        return image.shape, image.dtype.str, hashlib.sha256(np.ascontiguousarray(image).data).digest()
    return id(image)


def mesh_for(params: Any, mesh: Mesh | None) -> Mesh:
    """The mesh that a scorer was given, or else `winobench.parallel.default_mesh`."""
    return parallel.default_mesh(params) if mesh is None else parallel.as_mesh(mesh)
