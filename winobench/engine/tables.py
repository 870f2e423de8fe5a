"""Tables of encoded images and texts on the device, filled while the scoring runs.

A table has a fixed number of rows, so that one compilation serves any number of items. Triples are cut into segments
that need no more items than there are rows. Within a segment, items are encoded in order of first use, a batch at a
time and just before they are needed: loading and encoding overlap with scoring, and few decoded images are in memory.
"""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from winobench import parallel
from winobench.engine import batch_size as batch_sizes

_LOADING_THREADS = min(8, os.cpu_count() or 1)
_STEPS_AHEAD = 4  # that may be under way before a result is waited for
_WHOLE = PartitionSpec()

Item = TypeVar("Item")

# Names of the host's work in a profiler's trace. Without a profiler, a name costs less than a microsecond.
LOADING = "winobench: load an item"
WAITING_FOR_ITEMS = "winobench: wait for items"
WAITING_FOR_RESULTS = "winobench: wait for results"


def first_uses(items: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct items of int [n] in order of first use, and the position of each one's first use."""
    distinct, position = np.unique(items, return_index=True)
    order = np.argsort(position)
    return distinct[order], position[order]


def segments(columns: Sequence[np.ndarray], rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Cuts a sequence so that each part has at most ``rows[k]`` distinct values in column k.

    Yields (start, stop) of each part, in order. Each is as long as it can be.
    """
    start, length = 0, len(columns[0])
    while start < length:
        stop = length
        for column, limit in zip(columns, rows, strict=True):
            _, position = first_uses(column[start:stop])
            if len(position) > limit:
                stop = start + int(position[limit])
        yield start, stop
        start = stop


@dataclasses.dataclass(frozen=True)
class _Encoding:
    """Static argument of an encoding step: equal values share a compilation."""

    function: Callable[[Any, Any], Any]
    mesh: Mesh


@functools.partial(jax.jit, static_argnames="how")
def _encode(how: _Encoding, params: Any, batch: Any) -> Any:
    split = PartitionSpec(parallel.DATA_AXIS)
    return parallel.map_over_data(how.function, how.mesh, (PartitionSpec(), split), split)(params, batch)


@parallel.without_mesh
def encoded_shapes(
    function: Callable[[Any, Any], Any], params: Any, mesh: Mesh, batch_per_device: int, item: Any
) -> Any:
    """Shapes and dtypes [1, ...] of an encoded item. They come from the program that encodes batches."""
    total = batch_sizes.BatchSize(batch_per_device, mesh, "item").total
    batch = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((total, *np.shape(leaf)), leaf.dtype), item)
    encoded = jax.eval_shape(functools.partial(_encode, _Encoding(function, mesh)), params, batch)
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((1, *leaf.shape[1:]), leaf.dtype), encoded)


def lower_encoder(function: Callable[[Any, Any], Any], mesh: Mesh, params: Any, batch: Any) -> jax.stages.Lowered:
    """The lowered `Encoder` program, for shapes of parameters and of a batch."""
    return _encode.lower(_Encoding(function, mesh), params, batch)


@functools.partial(jax.jit, static_argnames=("mesh", "spec"), donate_argnames="table")
def _write(mesh: Mesh, spec: PartitionSpec, table: Any, rows: jax.Array, values: list[Any]) -> Any:
    """Each device writes all parts of the values into its own copy of the table, and waits for no other."""

    def write(table: Any, rows: jax.Array, values: list[Any]) -> Any:
        values = jax.tree.map(lambda *parts: jnp.concatenate(parts), *values)
        # Rows of padding lie behind the table's end and are dropped.
        return jax.tree.map(lambda whole, part: whole.at[rows].set(part, mode="drop"), table, values)

    specs = (spec, PartitionSpec(), spec)
    return jax.shard_map(write, mesh=mesh, in_specs=specs, out_specs=spec, check_vma=False)(table, rows, values)


@functools.partial(jax.jit, static_argnames=("how", "rows", "spec"))
def _empty(how: _Encoding, rows: int, spec: PartitionSpec, params: Any, batch: Any) -> Any:
    shapes = jax.eval_shape(functools.partial(_encode, how), params, batch)
    empty = jax.tree.map(lambda leaf: jnp.zeros((rows, *leaf.shape[1:]), leaf.dtype), shapes)
    return jax.lax.with_sharding_constraint(empty, NamedSharding(how.mesh, spec))


class Encoder:
    """Turns batches of one fixed shape into rows of a table, each device its own part of the batch.

    ``function(params, batch [n, ...]) -> [n, ...]`` on pytrees is pure, hashable, and equal to functions of the same
    computation.
    """

    def __init__(
        self,
        function: Callable[[Any, Any], Any],
        params: Any,
        mesh: Mesh,
        batch_per_device: int | batch_sizes.BatchSize,
        noun: str = "item",
        spec: PartitionSpec = _WHOLE,
    ):
        self._spec = spec
        self._how = _Encoding(function, mesh)
        self.params = params
        if not isinstance(batch_per_device, batch_sizes.BatchSize):
            batch_per_device = batch_sizes.BatchSize(batch_per_device, mesh, noun)
        self.size = batch_per_device

    @property
    def batch_size(self) -> int:
        return self.size.total

    def _put(self, items: Sequence[Any]) -> Any:
        def stacked(*rows: np.ndarray) -> np.ndarray:
            batch = np.zeros((self.batch_size, *np.shape(rows[0])), np.asarray(rows[0]).dtype)
            batch[: len(rows)] = rows
            return batch

        split = parallel.split_axis(self._how.mesh)
        return jax.tree.map(lambda *rows: parallel.put(stacked(*rows), split), *items)

    @parallel.without_mesh
    def empty_table(self, rows: int, example: Any) -> Any:
        return _empty(self._how, rows, self._spec, self.params, self._put([example]))

    @parallel.without_mesh
    def encode(self, items: Sequence[Any]) -> Any:
        """Encodes at most a batch of items: a pytree of arrays [batch_size, ...], with anything behind the items."""
        return parallel.wait_if_cpu(self._how.mesh, _encode(self._how, self.params, self._put(items)))

    @parallel.without_mesh
    def write(self, table: Any, rows: np.ndarray, items: Sequence[Any]) -> Any:
        """Encodes at most a batch of items into rows of a table, whose buffers are given up. Returns the new table."""
        mesh = self._how.mesh
        values = parallel.held_by_all(self.encode(items), mesh, self._spec)
        padded = np.full(self.batch_size, np.iinfo(np.int32).max, np.int32)
        padded[: len(rows)] = rows
        return _write(mesh, self._spec, table, parallel.put(padded, parallel.replicated(mesh)), values)


class DeviceTable:
    """A table of encoded items, a pytree of arrays [rows, ...]. The current segment's items have rows.

    Rows without an item hold anything finite.
    """

    def __init__(
        self,
        encoder: Encoder,
        num_items: int,
        rows: int,
        example: Any,
        load: Callable[[Sequence[int]], Iterator[Any]],
    ):
        self.array = encoder.empty_table(rows, example)
        self.encoder = encoder
        self.encoded = 0
        self._example = example
        self._load = load
        self._encoding = False
        self._lost = False
        self._row_of_item = np.full(num_items, -1, np.int32)
        self._item_of_row = np.full(rows, -1, np.int64)
        self._queue = np.zeros(0, np.int64)
        self._place_in_queue = np.full(num_items, -1, np.int64)
        self._done = 0
        self._arrays: Iterator[np.ndarray] = iter(())

    @property
    def num_items(self) -> int:
        return len(self._row_of_item)

    @property
    def capacity(self) -> int:
        return len(self._item_of_row)

    def begin(self, needed: np.ndarray) -> None:
        """Starts a segment: gives every item that it needs a row, and queues those that are not encoded."""
        self.close()
        if self._lost:
            self._make_again()
        # Items of an unfinished segment that were not encoded.
        unfinished = self._queue[self._done :]
        self._item_of_row[self._row_of_item[unfinished]] = -1
        self._row_of_item[unfinished] = -1
        missing = needed[self._row_of_item[needed] < 0]
        keep = np.zeros(len(self._item_of_row), bool)
        keep[self._row_of_item[needed[self._row_of_item[needed] >= 0]]] = True
        # Empty rows first, so that nothing is dropped while rows are free.
        free = np.concatenate(
            [np.flatnonzero(~keep & (self._item_of_row < 0)), np.flatnonzero(~keep & (self._item_of_row >= 0))]
        )
        rows = free[: len(missing)]
        dropped = self._item_of_row[rows]
        self._row_of_item[dropped[dropped >= 0]] = -1
        self._row_of_item[missing] = rows
        self._item_of_row[rows] = missing
        self._queue, self._done = missing, 0
        self._place_in_queue[:] = -1
        self._place_in_queue[missing] = np.arange(len(missing))
        self._arrays = self._load(missing.tolist())

    def rows(self, items: np.ndarray) -> np.ndarray:
        """Encodes missing items of the segment and returns the rows of all given ones, int32 [n]."""
        last = int(self._place_in_queue[items].max())
        while self._done <= last:
            numbers = self._queue[self._done : self._done + self.encoder.batch_size]
            with jax.profiler.TraceAnnotation(WAITING_FOR_ITEMS):
                arrays = list(itertools.islice(self._arrays, len(numbers)))
            self._encoding = True
            self.array = self.encoder.write(self.array, self._row_of_item[numbers], arrays)
            self._encoding = False
            self._done += len(numbers)
            self.encoded += len(numbers)
        return self._row_of_item[items]

    def has_failed(self) -> bool:
        """After an error of a device: whether encoding has failed. Later segments encode lost items again."""
        leaves = jax.tree.leaves(self.array)
        # Each step of encoding takes the table's buffers. If it fails at once, there may be no table any more. If it
        # fails later, the new one holds only the error.
        self._lost = self._lost or any(leaf.is_deleted() for leaf in leaves)
        if not self._lost:
            try:
                jax.block_until_ready(leaves)
            except jax.errors.JaxRuntimeError:
                self._lost = True
        failed, self._encoding = self._encoding or self._lost, False
        return failed

    def _make_again(self) -> None:
        self.array = None  # two may not fit
        self.array = self.encoder.empty_table(self.capacity, self._example)
        self._row_of_item[:] = -1
        self._item_of_row[:] = -1
        self._queue, self._done = np.zeros(0, np.int64), 0
        self._lost = False

    def close(self) -> None:
        getattr(self._arrays, "close", lambda: None)()
        self._arrays = iter(())


def load_ahead(load: Callable[[int], Item], numbers: Sequence[int], ahead: int) -> Generator[Item, None, None]:
    """Yields ``load(number)`` for each number, in order. Threads load up to ``ahead`` of them, from now on."""
    items = _loaded_ahead(load, numbers, ahead)
    next(items)  # has the threads start
    return items


def _loaded_ahead(load: Callable[[int], Item], numbers: Sequence[int], ahead: int) -> Generator[Any, None, None]:
    """None, once the threads are at work, and then the items."""

    def named(number: int) -> Item:
        with jax.profiler.TraceAnnotation(LOADING):
            return load(number)

    waiting: collections.deque[concurrent.futures.Future[Item]] = collections.deque()
    rest = iter(numbers)
    pool = concurrent.futures.ThreadPoolExecutor(_LOADING_THREADS, thread_name_prefix="winobench-load")
    try:
        item = None
        while True:
            for number in itertools.islice(rest, ahead - len(waiting)):
                waiting.append(pool.submit(named, number))
            yield item
            if not waiting:
                return
            item = waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@parallel.without_mesh
def score_rows(
    images: DeviceTable,
    texts: DeviceTable,
    items: np.ndarray,
    size: batch_sizes.BatchSize,
    step: Callable[[np.ndarray, np.ndarray, np.ndarray], jax.Array],
    order: Callable[[np.ndarray], np.ndarray] | None = None,
    cut: Callable[[np.ndarray, int], Iterator[np.ndarray]] | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Scores items in batches, encoding images and texts shortly before they are needed.

    A batch of items, images or texts that does not fit into a device's memory is halved, for good. The work continues
    with the items without results.

    Args:
      items: int [n, 2 or more], rows (number of the image, number of the text, ...).
      step: ``step(rows of images, rows of texts, items) -> [size.total]`` for a whole batch. Reads the tables' arrays.
      order: int [n, 2 or more] -> int [n], the order of the items of a segment. As they are given when None.
      cut: ``cut(items [n, 2 or more], size.total)`` cuts ordered items into batches, int [size.total]: numbers of
        items, -1 for empty places. One after the other when None.

    Yields:
      (numbers of items, int [b], their results [b]) of batch after batch, each item once.
    """
    numbers = np.arange(len(items))
    done = np.zeros(len(items), bool)
    try:
        while len(numbers):
            try:
                for batch, scores in _batches(images, texts, items, numbers, size.total, step, order, cut):
                    done[batch] = True
                    yield batch, scores
                return
            except jax.errors.JaxRuntimeError as error:
                if not batch_sizes.is_out_of_memory(error):
                    raise
                failed = [table.encoder.size for table in (images, texts) if table.has_failed()]
                for batch_size in failed or [size]:
                    batch_size.halve(error)
            # Lost tables are made again in the next round, when the error and its references are gone.
            numbers = np.flatnonzero(~done)
    finally:
        images.close()
        texts.close()


def _batches(
    images: DeviceTable,
    texts: DeviceTable,
    items: np.ndarray,
    numbers: np.ndarray,
    size: int,
    step: Callable[[np.ndarray, np.ndarray, np.ndarray], jax.Array],
    order: Callable[[np.ndarray], np.ndarray] | None,
    cut: Callable[[np.ndarray, int], Iterator[np.ndarray]] | None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """`score_rows` of the items with these numbers, in batches of one size."""
    # Steps under way, oldest first: the device always has the next one while Python prepares more or waits.
    waiting: collections.deque[tuple[np.ndarray, np.ndarray, jax.Array]] = collections.deque()
    cut = _in_order if cut is None else cut
    columns = (items[numbers, 0], items[numbers, 1])
    for begin, end in segments(columns, (images.capacity, texts.capacity)):
        segment = numbers[begin:end]
        if order is not None:
            segment = segment[order(items[segment])]
        images.begin(first_uses(items[segment, 0])[0])
        texts.begin(first_uses(items[segment, 1])[0])
        for indices in cut(items[segment], size):
            filled = np.flatnonzero(indices >= 0)
            # Empty places take the item before them, whose results are cut off below.
            last = np.maximum.accumulate(np.where(indices >= 0, np.arange(size), 0))
            here, batch = segment[indices[filled]], items[segment[indices[last]]]
            # Texts first: in a segment's first batch, devices encode them while its images are being loaded.
            text_rows = texts.rows(batch[:, 1])
            scores = step(images.rows(batch[:, 0]), text_rows, batch)
            scores.copy_to_host_async()
            waiting.append((here, filled, scores))
            if len(waiting) > _STEPS_AHEAD:
                yield _finished(*waiting.popleft())
    while waiting:
        yield _finished(*waiting.popleft())


def _in_order(items: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(items), size):
        batch = np.arange(start, start + size)
        yield np.where(batch < len(items), batch, -1)


def _finished(numbers: np.ndarray, indices: np.ndarray, scores: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    with jax.profiler.TraceAnnotation(WAITING_FOR_RESULTS):
        return numbers, parallel.fetch(scores)[indices]
