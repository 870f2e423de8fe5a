"""The errors behind one example, without reading the other errors.

An index of a run's parts tells which row groups have an example's pairs. It holds a few bytes a pair, and is made again
when a part appears.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import os
import pathlib
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from winobench.base.errors import InputError
from winobench.base.texts import EMPTY_TEXT, text_hash
from winobench.data.images import GRAY_IMAGE, image_hash
from winobench.runs.error_store import SAME_SCORING, Batch, ErrorStore, race_store
from winobench.runs.examples import Examples, terms_of
from winobench.runs.reading import read_without_tables
from winobench.runs.run import Run, TaskRun
from winobench.viewer import library

_COLUMNS = ["image", "text", "first_sample", "errors"]
_HEX = 16  # digits of a digest that the index keeps: 64 bits
_MOST_RUNS, _MOST_GROUPS, _MOST_TABLES = 6, 8, 6

T = TypeVar("T")


class _Recent(Generic[T]):
    """The last few of something that takes long to make."""

    def __init__(self, most: int):
        self._most = most
        self._kept: collections.OrderedDict[Hashable, T] = collections.OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._kept:
            self._kept[key] = make()
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


class Errors:
    """The errors behind the examples of some runs."""

    def __init__(self) -> None:
        self._runs: _Recent[Run] = _Recent(_MOST_RUNS)
        self._indexes: _Recent[list[_Index]] = _Recent(_MOST_RUNS)
        self._tables: _Recent[pa.Table] = _Recent(_MOST_TABLES)
        self._lock = threading.Lock()

    def row(self, root: str, task: str, row: int) -> dict[str, Any] | None:
        """The errors behind an example's scores; None where they are incomplete, or the scores are not made of them.

        {"images", "texts", "samples": how many, "terms": {name: [images or 1][texts or 1][samples]}}, null for a sample
        that a race never computed.
        """
        with self._lock:
            stamps = library.stamps(root)
            run = self._runs.get((root, *stamps), lambda: read_without_tables(root))
            record = run.tasks.get(task)
            if record is None or run.is_text or not record.has_answers or record.metric is None:
                return None
            example = self._example(root, task, row)
            tables = {
                index.scoring: table
                for index in self._indexes.get((root, *stamps), lambda: list(_indexes(root)))
                if (table := index.table(example)) is not None
            }
            for batches in _batches(run, record, example, tables):
                if batches is not None:
                    (batch,) = batches
                    return _plain(example, {term.name: batch.errors[term.name][0] for term in batch.terms})
        return None

    def prepare(self, root: str) -> None:
        """Makes the index of a run that somebody looks at, before they look at an example."""
        with self._lock, contextlib.suppress(Exception):  # the request for errors repeats it
            stamps = library.stamps(root)
            self._indexes.get((root, *stamps), lambda: list(_indexes(root)))

    def _example(self, root: str, task: str, row: int) -> Examples:
        """One row of a task's table."""
        path = f"examples/{task}.parquet"
        with _opened(root, path) as (table, version):
            start = 0
            for group in range(table.metadata.num_row_groups):
                size = table.metadata.row_group(group).num_rows
                if start <= row < start + size:
                    break
                start += size
            else:
                raise InputError(f"the task {task!r} has {start:,} examples, and none of number {row}")
            wanted = ["id", "images", "texts", "scores", "terms", "normalized_text", "normalized_gray"]
            names = [name for name in wanted if name in table.schema_arrow.names]
            key = (root, task, group, version)
            read = functools.partial(table.read_row_group, group, names, use_threads=False)
            row_table = self._tables.get(key, read).slice(row - start, 1)
        (values,) = row_table.to_pylist()
        return Examples(
            ids=[values["id"]],
            groups=[()],
            images=[tuple(values["images"])],
            texts=[tuple(values["texts"])],
            targets=[None],
            scores=[np.array(values["scores"], np.float64)],
            correct=np.array([False]),
            terms=terms_of(row_table, pathlib.Path(root) / path),
        )


def _batches(
    run: Run, record: TaskRun, example: Examples, tables: Mapping[tuple[bytes, ...], pa.Table]
) -> Iterator[list[Batch] | None]:
    """The errors behind an example, out of tables by `SAME_SCORING`, where they are complete."""
    if run.has_raced(record.name) and record.timesteps is not None:
        store = race_store(tables, record.timesteps.tolist())
        yield None if store is None else store.raced_batches(example, len(record.timesteps))
        return
    for table in tables.values():
        yield ErrorStore(table).batches(example, record.num_samples, record.mean)


@dataclasses.dataclass
class _Index:
    """Where the pairs are that were scored in one way."""

    root: str
    scoring: tuple[bytes, ...]  # the values of `SAME_SCORING`
    groups: list[tuple[str, int]]  # part and row group
    keys: np.ndarray  # [n] uint64, sorted
    places: np.ndarray  # [n, 2] uint32: number of the row group, row in it
    tables: _Recent[pa.Table]

    def table(self, example: Examples) -> pa.Table | None:
        """The errors of all pairs that an example's scores can depend on; None without any."""
        texts = [*map(text_hash, example.texts[0]), text_hash(EMPTY_TEXT)]
        images = [*example.images[0], _gray_hash()]
        pairs = [(image, text) for image in images for text in texts]
        wanted = _keys([image for image, _ in pairs], [text for _, text in pairs])
        first, last = np.searchsorted(self.keys, wanted, "left"), np.searchsorted(self.keys, wanted, "right")
        places = np.unique(np.concatenate([self.places[a:b] for a, b in zip(first, last, strict=True)]), axis=0)
        if not len(places):
            return None
        parts = [self._group(number).take(places[places[:, 0] == number, 1]) for number in np.unique(places[:, 0])]
        return pa.concat_tables(parts)

    def _group(self, number: int) -> pa.Table:
        return self.tables.get(int(number), lambda: self._read(*self.groups[number]))

    def _read(self, name: str, group: int) -> pa.Table:
        with _opened(self.root, name) as (part, _):
            return part.read_row_group(group, _COLUMNS, use_threads=False).replace_schema_metadata(None)


@contextlib.contextmanager
def _opened(root: str, name: str) -> Iterator[tuple[pq.ParquetFile, tuple[int, int, int]]]:
    """A table of a run's folder, and its file's inode, size and time."""
    with open(library.opened(root, name), "rb") as file, pq.ParquetFile(file) as table:
        about = os.fstat(file.fileno())
        yield table, (about.st_ino, about.st_size, about.st_mtime_ns)


def _indexes(root: str) -> Iterator[_Index]:
    """The index of each way in which a run's pairs were scored."""
    indexes: dict[tuple[bytes, ...], tuple[list[tuple[str, int]], list[np.ndarray], list[np.ndarray]]] = {}
    for name in library.parts(root, library.IMAGES):
        with _opened(root, name) as (part, _):
            metadata = part.schema_arrow.metadata or {}
            scoring = tuple(metadata.get(key, b"") for key in SAME_SCORING)
            groups, keys, places = indexes.setdefault(scoring, ([], [], []))
            for group in range(part.metadata.num_row_groups):
                table = part.read_row_group(group, _COLUMNS[:2], use_threads=False)
                keys.append(_keys(table["image"], table["text"]))
                rows = np.arange(table.num_rows, dtype=np.uint32)
                places.append(np.stack([np.full_like(rows, len(groups)), rows], axis=1))
                groups.append((name, group))
    for scoring, (groups, keys, places) in indexes.items():
        joined = np.concatenate(keys)
        order = np.argsort(joined, kind="stable")
        yield _Index(root, scoring, groups, joined[order], np.concatenate(places)[order], _Recent(_MOST_GROUPS))


@functools.cache
def _gray_hash() -> str:
    return image_hash(GRAY_IMAGE)


def _keys(images: Sequence[str] | pa.ChunkedArray, texts: Sequence[str] | pa.ChunkedArray) -> np.ndarray:
    """A number of each pair, [n] uint64. Other pairs can have it, too."""
    return _numbers(images) * np.uint64(0x9E3779B97F4A7C15) + _numbers(texts)


def _numbers(digests: Sequence[str] | pa.ChunkedArray) -> np.ndarray:
    """The first 64 bits of digests in hexadecimal, [n] uint64."""
    values = digests.to_pylist() if isinstance(digests, pa.ChunkedArray) else digests
    content = bytes.fromhex("".join([value[:_HEX].ljust(_HEX, "0") for value in values]))
    return np.frombuffer(content, np.uint64)


def _plain(example: Examples, terms: dict[str, np.ndarray]) -> dict[str, Any]:
    """Errors as JSON values."""
    images, texts = example.scores[0].shape
    samples = next(iter(terms.values())).shape[-1]
    none = np.array(None)
    values = {name: np.where(np.isnan(errors), none, errors.astype(object)).tolist() for name, errors in terms.items()}
    return {"images": images, "texts": texts, "samples": samples, "terms": values}
