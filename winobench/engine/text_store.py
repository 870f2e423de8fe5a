"""Conditions of texts, computed before all scoring by encoders that then leave the devices, and kept on disk.

The text encoders of large models take as much memory as their denoisers (T5-XXL: 9.5 GB in bfloat16):

    <folder>/<key of the encoders>/<key of a text>.safetensors
"""

from __future__ import annotations

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


class TextStore:
    """Encodes texts and keeps the conditions on disk, by content."""

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
        self._make_room = make_room
        self._function, self._params, self._mesh, self._batch = function, params, mesh, batch_per_device
        self.folder = pathlib.Path(folder) / files.digest([_FORMAT, identity])[:16]

    def prepare(self, items: Sequence[Any]) -> None:
        """Encodes the texts that are not on disk yet. The parameters leave the devices afterwards."""
        missing = {path: item for item in items if not (path := self._path(item)).exists()}
        if not missing:
            return
        paths, left = list(missing), list(missing.values())
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._make_room()
            params = parallel.place_parameters(self._params, self._mesh)
            encoder = tables.Encoder(self._function, params, self._mesh, self._batch, "text")
            for start in range(0, len(left), encoder.batch_size):
                batch = left[start : start + encoder.batch_size]
                rows = jax.tree.map(parallel.fetch, encoder.encode(batch))
                # By their places, so that the order of names is the order of the leaves.
                named = {f"{place:03d}": leaf for place, leaf in enumerate(jax.tree.leaves(rows))}
                for number, path in enumerate(paths[start : start + len(batch)]):
                    weights.write_weights(path, {name: np.asarray(leaf[number]) for name, leaf in named.items()})
        except OSError as error:
            raise InputError(
                f"{self.folder} cannot be written ({error.strerror or error}): free some space", code="cannot-write"
            ) from error

    def read(self, items: Sequence[Any]) -> Iterator[Any]:
        """The conditions of prepared texts, in their order: trees of NumPy arrays."""
        structure = None
        for item in items:
            if structure is None:
                shapes = jax.eval_shape(self._function, self._params, jax.tree.map(lambda leaf: leaf[None], item))
                structure = jax.tree.structure(shapes)
            try:
                leaves = self._leaves(item)
            except InputError:  # damaged on the disk
                self._path(item).unlink(missing_ok=True)
                self.prepare([item])
                leaves = self._leaves(item)
            yield jax.tree.unflatten(structure, leaves)

    def _leaves(self, item: Any) -> list[np.ndarray]:
        tensors = weights.read_weights([os.fspath(self._path(item))])
        return [tensors[name].read() for name in sorted(tensors)]

    def _path(self, item: Any) -> pathlib.Path:
        digest = hashlib.sha256()
        for leaf in jax.tree.leaves(item):
            digest.update(f"{leaf.dtype} {np.shape(leaf)}\n".encode())
            digest.update(np.ascontiguousarray(leaf).data)
        return self.folder / f"{digest.hexdigest()[:32]}.safetensors"
