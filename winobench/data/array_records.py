"""Dictionaries of NumPy arrays in ArrayRecord shards, and Grain batches from them.

A record is one dictionary of arrays, packed with MessagePack. A set of shards is complete when its ``index.json`` is
there: it is written last.
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from flax import serialization

Record = dict[str, np.ndarray]
_INDEX = "index.json"


def write_shards(
    folder: str | os.PathLike, records: Iterable[Record], *, num_shards: int, about: dict[str, Any]
) -> None:
    """Writes ``records`` round robin into ``num_shards`` files ``shard-00000-of-00008.arrayrecord``.

    Args:
      folder: made if needed; shards of an unfinished earlier attempt are overwritten.
      records: dictionaries of arrays.
      num_shards: number of files.
      about: JSON values kept in ``index.json``; ``is_complete`` compares them.
    """
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
    temporary = folder / (_INDEX + ".tmp")
    temporary.write_text(json.dumps({"num_records": count, "shards": names, "about": about}, indent=2) + "\n")
    temporary.rename(folder / _INDEX)


def is_complete(folder: str | os.PathLike, about: dict[str, Any]) -> bool:
    """Whether ``folder`` holds a finished set of shards made from the same ``about``."""
    try:
        index = json.loads((pathlib.Path(folder) / _INDEX).read_text())
    except FileNotFoundError:
        return False
    return index["about"] == json.loads(json.dumps(about))


class ShardSource:
    """Random access to the records of a folder of shards, as a Grain data source."""

    def __init__(self, folder: str | os.PathLike):
        from grain import sources

        folder = pathlib.Path(folder)
        index = json.loads((folder / _INDEX).read_text())
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
    """Endless shuffled batches; batch n depends on (seed, n) alone, so a resumed run sees what it would have seen.

    Args:
      source: random access to records, such as ``ShardSource`` or a list.
      batch_size: records a batch; an epoch's last records roll over into the next epoch.
      seed: of the order and of ``transform``'s generator.
      transform: (record, generator) -> record, the same arrays for every record.
      first_batch: number of batches to skip, at no cost.
      num_threads: readers that work ahead.
    """
    import grain

    dataset = grain.MapDataset.source(source).seed(seed).shuffle().repeat().random_map(transform).batch(batch_size)
    iterator = iter(dataset.to_iter_dataset(grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=16)))
    if first_batch:
        iterator.set_state({"next_index": first_batch})
    return iterator
