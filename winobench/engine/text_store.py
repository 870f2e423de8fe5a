"""Conditions of texts, computed before all scoring by encoders that then leave the devices, and kept on disk.

The text encoders of large models take as much memory as their denoisers (T5-XXL: 9.5 GB in bfloat16):

    <folder>/<key of the encoders>/<key of a text>.safetensors
"""

from __future__ import annotations

import abc
import contextlib
import functools
import hashlib
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from winobench import parallel
from winobench.base import files
from winobench.base.errors import InputError
from winobench.checkpoints import weights
from winobench.engine import tables

_FORMAT = 1  # raised whenever states of the same texts could change


def as_they_are(params: Any, batch: Any) -> Any:
    """Stands for an encoder whose results are given."""
    del params
    return batch


class TextStore(abc.ABC):
    """Encodes texts and keeps the conditions on disk, by content."""

    def __init__(self, identity: Any, folder: str | os.PathLike[str], batch_size: int):
        self.folder = pathlib.Path(folder) / files.digest([_FORMAT, identity])[:16]
        self.batch_size = batch_size

    @abc.abstractmethod
    def _encoder(self) -> contextlib.AbstractContextManager[Callable[[Sequence[Any]], Any]]:
        """A context with a function: at most a batch of items -> a tree of host arrays [batch_size, ...]."""

    @abc.abstractmethod
    def _shapes(self, item: Any) -> Any:
        """Shapes and dtypes of an item's conditions."""

    def prepare(self, items: Sequence[Any]) -> None:
        """Encodes the texts that are not on disk yet."""
        missing = {path: item for item in items if not (path := self._path(item)).exists()}
        if not missing:
            return
        paths, left = list(missing), list(missing.values())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with self._encoder() as encode:
                for start in range(0, len(left), self.batch_size):
                    rows = encode(left[start : start + self.batch_size])
                    # Numbered, so that names sort in the order of the leaves.
                    named = {f"{index:03d}": leaf for index, leaf in enumerate(jax.tree.leaves(rows))}
                    for number, path in enumerate(paths[start : start + self.batch_size]):
                        weights.write_weights(path, {name: _trimmed(leaf[number]) for name, leaf in named.items()})
        except OSError as error:
            raise InputError(
                f"{self.folder} cannot be written ({error.strerror or error}): free some space", code="cannot-write"
            ) from error

    def read(self, items: Sequence[Any]) -> Iterator[Any]:
        """The conditions of prepared texts, in their order: trees of NumPy arrays."""
        shapes = None
        for item in items:
            if shapes is None:
                shapes = self._shapes(item)
            try:
                leaves = self._leaves(item)
            except InputError:  # damaged on the disk
                self._path(item).unlink(missing_ok=True)
                self.prepare([item])
                leaves = self._leaves(item)
            states = jax.tree.unflatten(jax.tree.structure(shapes), leaves)
            yield jax.tree.map(lambda leaf, whole: _whole(leaf, whole.shape), states, shapes)

    def _leaves(self, item: Any) -> list[np.ndarray]:
        tensors = weights.read_weights([os.fspath(self._path(item))])
        return [tensors[name].read() for name in sorted(tensors)]

    def _path(self, item: Any) -> pathlib.Path:
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(item):
            digest.update(f"{leaf.dtype} {np.shape(leaf)}\n".encode())
            digest.update(np.ascontiguousarray(leaf).data)
        return self.folder / f"{digest.hexdigest()[:32]}.safetensors"


class StagedTexts(TextStore):
    """Text encoders that are on the devices only while they encode."""

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        params: Any,
        identity: Any,
        folder: str | os.PathLike[str],
        mesh: Mesh,
        batch_per_device: int,
        make_room: Callable[[], None],
    ):
        super().__init__(identity, folder, batch_per_device * parallel.data_parallelism(mesh))
        self._make_room = make_room
        self._function, self._params, self._mesh, self._batch = function, params, mesh, batch_per_device

    @contextlib.contextmanager
    def _encoder(self) -> Iterator[Callable[[Sequence[Any]], Any]]:
        self._make_room()
        params = parallel.place_parameters(self._params, self._mesh)
        encoder = tables.Encoder(self._function, params, self._mesh, self._batch, "text")
        yield lambda items: jax.tree.map(parallel.fetch, encoder.encode(items))

    def _shapes(self, item: Any) -> Any:
        shapes = jax.eval_shape(self._function, self._params, jax.tree.map(lambda leaf: leaf[None], item))
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), shapes)


class HostTexts(TextStore):
    """Text encoders that take texts without tokens. Items are UTF-8, uint8 [bytes]."""

    def __init__(
        self,
        encoding: Callable[..., contextlib.AbstractContextManager[Callable[[Sequence[str]], Any]]],
        shapes: Any,
        identity: Any,
        batch_size: int,
        folder: str | os.PathLike[str],
        mesh: Mesh,
        make_room: Callable[[], None],
    ):
        """Takes encoders.

        Args:
          encoding: (mesh, make_room) -> a context with a function: texts -> a tree of arrays [n, ...].
          shapes: a tree with the shapes and dtypes of one text.
          make_room: called before text encoders move to devices of the mesh.
        """
        super().__init__(identity, folder, batch_size)
        self._encoding, self._of_one = functools.partial(encoding, mesh, make_room), shapes

    @staticmethod
    def items(texts: Sequence[str]) -> list[np.ndarray]:
        return [np.frombuffer(text.encode("utf-8", "surrogatepass"), np.uint8) for text in texts]

    @contextlib.contextmanager
    def _encoder(self) -> Iterator[Callable[[Sequence[Any]], Any]]:
        with self._encoding() as encode:
            yield lambda items: encode([bytes(item).decode("utf-8", "surrogatepass") for item in items])

    def _shapes(self, item: Any) -> Any:
        return self._of_one


def _trimmed(array: np.ndarray) -> np.ndarray:
    """An array without the rows of zeros at its end, which are often padding."""
    array = np.asarray(array)
    if array.ndim < 2:
        return array
    used = np.flatnonzero(array.reshape(len(array), -1).any(axis=1))
    return array[: used[-1] + 1] if len(used) else array[:1]


def _whole(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """An array with the rows of zeros that `_trimmed` left out."""
    if array.shape == shape:
        return array
    whole = np.zeros(shape, array.dtype)
    whole[: len(array)] = array
    return whole
