"""Dictionaries of NumPy arrays in ArrayRecord shards, and Grain batches from them.

A record is one dictionary, packed with MessagePack. A set of shards is complete when its ``index.json`` is there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from flax import serialization

from winobench.base import files, json_files

Record = dict[str, np.ndarray]
_INDEX = "index.json"


def write_shards(
    folder: str | os.PathLike, records: Iterable[Record], *, num_shards: int, about: dict[str, Any]
) -> None:
    """Writes ``records`` round robin into ``num_shards`` files ``shard-00000-of-00008.arrayrecord``."""
    from array_record.python import array_record_module

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"shard-{shard:05d}-of-{num_shards:05d}.arrayrecord" for shard in range(num_shards)]
    # One record a group: reading is random access.
    writers = [array_record_module.ArrayRecordWriter(str(folder / name), "group_size:1") for name in names]
    count = 0
    for record in records:
        writers[count % num_shards].write(serialization.msgpack_serialize(record))
        count += 1
    for writer in writers:
        writer.close()
    write_index(folder, names, count, about)


def write_shard(path: str | os.PathLike, records: Iterable[Record]) -> None:
    """Writes one file of records, whole or not at all, for a set that is made shard by shard."""
    from array_record.python import array_record_module

    with files.atomic_path(path) as temporary:
        with _os_errors(path):
            writer = array_record_module.ArrayRecordWriter(temporary, "group_size:1")
        try:
            for record in records:
                packed = serialization.msgpack_serialize(record)
                with _os_errors(path):
                    writer.write(packed)
        finally:
            with _os_errors(path):
                writer.close()


@contextlib.contextmanager
def _os_errors(path: str | os.PathLike) -> Iterator[None]:
    """ArrayRecord tells of a full disk with a RuntimeError."""
    try:
        yield
    except RuntimeError as error:
        raise OSError(errno.EIO, " ".join(str(error).split()), os.fspath(path)) from error


def write_index(folder: str | os.PathLike, names: Sequence[str], num_records: int, about: dict[str, Any]) -> None:
    """Declares a set of shards complete."""
    files.write_json(pathlib.Path(folder) / _INDEX, {"num_records": num_records, "shards": list(names), "about": about})


def is_complete(folder: str | os.PathLike, about: dict[str, Any]) -> bool:
    """Whether ``folder`` holds a finished set of shards made from the same ``about``."""
    try:
        index = json_files.load(pathlib.Path(folder) / _INDEX)
    except (FileNotFoundError, NotADirectoryError, json_files.NotJSON):
        return False
    return isinstance(index, dict) and index.get("about") == json_files.as_json(about)


class ShardSource:
    """Random access to the records of a folder of shards, as a Grain data source."""

    def __init__(self, folder: str | os.PathLike):
        from grain import sources

        folder = pathlib.Path(folder)
        index = json_files.load(folder / _INDEX)
        self._source = sources.ArrayRecordDataSource([str(folder / name) for name in index["shards"]])

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, position: int) -> Record:
        return serialization.msgpack_restore(self._source[position])


def shuffled_batches(
    source: Sequence[Record],
    *,
    batch_size: int,
    seed: int,
    transform: Callable[[Record, np.random.Generator], Record],
    first_batch: int = 0,
    num_threads: int = 2,
) -> Iterator[Record]:
    """Endless shuffled batches. Batch n depends on (seed, n) alone, so a resumed run sees the same batches."""
    import grain

    dataset = grain.MapDataset.source(source).seed(seed).shuffle().repeat().random_map(transform).batch(batch_size)
    return iterate_from(dataset, first_batch, num_threads=num_threads)


def iterate_from(dataset: Any, first: int, *, num_threads: int) -> Iterator[Any]:
    """Iterates over a ``grain.MapDataset`` from one of its elements on. Those before it are not made."""
    import grain

    iterator = iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=16)))
    if first:
        iterator.set_state({"next_index": first})
    return iterator
