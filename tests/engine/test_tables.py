import dataclasses
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from winobench import parallel
from winobench.engine import batch_size, tables


def test_first_uses():
    items, positions = tables.first_uses(np.array([7, 3, 7, 7, 1, 3, 9]))
    np.testing.assert_array_equal(items, [7, 3, 1, 9])
    np.testing.assert_array_equal(positions, [0, 1, 4, 6])


def test_stretches_are_as_long_as_the_limits_allow():
    images = np.array([0, 0, 1, 1, 2, 2, 0, 3])
    texts = np.array([0, 1, 0, 1, 0, 1, 2, 3])
    assert list(tables.segments((images, texts), (10, 10))) == [(0, 8)]
    assert list(tables.segments((images, texts), (2, 10))) == [(0, 4), (4, 7), (7, 8)]
    assert list(tables.segments((images, texts), (10, 2))) == [(0, 6), (6, 8)]
    assert list(tables.segments((images, texts), (2, 2))) == [(0, 4), (4, 6), (6, 8)]
    assert list(tables.segments((images, texts), (1, 1))) == [(n, n + 1) for n in range(8)]
    assert list(tables.segments((np.zeros(0, int),), (3,))) == []


@dataclasses.dataclass(frozen=True)
class Square:
    def __call__(self, params, batch):
        return {"squared": params * batch**2, "wide": jnp.stack([batch, -batch], axis=-1)}


class Harness:
    def __init__(self, num_items=20, rows=6, batch=2):
        self.loaded = []
        mesh = parallel.make_mesh(jax.devices()[:1])
        encoder = tables.Encoder(Square(), parallel.put(np.float32(10), parallel.replicated(mesh)), mesh, batch)
        self.table = tables.DeviceTable(encoder, num_items, rows, np.zeros((), np.float32), self.load)

    def load(self, numbers):
        for number in numbers:
            self.loaded.append(number)
            yield np.float32(number)

    def check(self, items):
        items = np.asarray(items)
        rows = self.table.rows(items)
        assert rows.dtype == np.int32
        np.testing.assert_array_equal(self.table.array["squared"][rows], 10.0 * items**2)
        np.testing.assert_array_equal(self.table.array["wide"][rows], np.stack([items, -items], axis=-1))


def test_items_are_encoded_when_needed_and_kept():
    harness = Harness(rows=9, num_items=100, batch=2)
    needed = np.array([30, 2, 17, 9, 50])
    harness.table.begin(needed)
    assert harness.loaded == []
    harness.check([30, 30])
    assert harness.loaded == [30, 2]
    harness.check(needed)
    harness.check(needed[::-1])
    assert harness.loaded == needed.tolist()
    assert harness.table.encoded == len(needed)


def test_items_of_the_next_stretch_are_kept_and_others_make_room():
    harness = Harness(rows=4, num_items=10)
    harness.table.begin(np.array([0, 1, 2]))
    harness.check([0, 1, 2])
    harness.table.begin(np.array([2, 3]))
    harness.check([2, 3])
    assert harness.loaded == [0, 1, 2, 3]
    # All four rows are taken: 5 and 6 take the rows of two of 0, 1 and 3, and 2 stays.
    harness.table.begin(np.array([5, 2, 6]))
    harness.check([5, 2, 6])
    assert harness.loaded == [0, 1, 2, 3, 5, 6]
    harness.table.begin(np.array([0, 1, 3, 5]))
    harness.check([0, 1, 3, 5])
    assert sorted(harness.loaded[6:]) in ([0, 1], [0, 3], [1, 3])


def test_an_unfinished_stretch_leaves_no_wrong_rows():
    harness = Harness(rows=8, num_items=10, batch=1)
    harness.table.begin(np.arange(8))
    harness.check([0])
    harness.table.close()
    harness.table.begin(np.arange(8)[::-1])
    harness.check(np.arange(8))


def out_of_memory(*_):
    raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")


def test_what_was_encoded_before_a_failure_is_kept(monkeypatch):
    harness = Harness(rows=8, num_items=10, batch=2)
    harness.table.begin(np.arange(6))
    harness.check([0, 1])
    assert not harness.table.has_failed()
    with monkeypatch.context() as patch:
        patch.setattr(tables, "_encode", out_of_memory)
        with pytest.raises(jax.errors.JaxRuntimeError):
            harness.table.rows(np.array([2]))
    assert harness.table.has_failed()
    harness.table.encoder.size.halve(ValueError("no room"))
    harness.table.begin(np.arange(1, 6))
    harness.check([1, 2, 3, 4, 5])
    assert harness.loaded == [0, 1, 2, 3, 2, 3, 4, 5]
    assert not harness.table.has_failed()


@pytest.mark.parametrize("when", ["at once", "later"])
def test_a_lost_table_is_filled_anew(monkeypatch, when):
    harness = Harness(rows=8, num_items=10, batch=2)
    harness.table.begin(np.arange(6))
    harness.check([0, 1])
    if when == "at once":

        def failing(mesh, spec, table, rows, values):
            jax.tree.map(lambda leaf: leaf.delete(), table)
            out_of_memory()

        with monkeypatch.context() as patch:
            patch.setattr(tables, "_write", failing)
            with pytest.raises(jax.errors.JaxRuntimeError):
                harness.table.rows(np.array([2]))
    else:
        harness.table.rows(np.array([2]))
        monkeypatch.setattr(jax, "block_until_ready", out_of_memory)
    assert harness.table.has_failed()
    monkeypatch.undo()
    harness.table.begin(np.arange(1, 6))
    harness.check([1, 2, 3, 4, 5])
    assert harness.loaded == [0, 1, 2, 3, 1, 2, 3, 4, 5]
    assert not harness.table.has_failed()


class Scoring:
    def __init__(self, size, fails=()):
        self.images, self.texts = Harness(rows=4, batch=4), Harness(rows=4, batch=4)
        self.size = batch_size.BatchSize(size, parallel.make_mesh(jax.devices()[:1]), "pair")
        self.fails, self.calls = fails, 0

    def step(self, image_rows, text_rows, batch):
        self.calls += 1
        if self.calls in self.fails:
            out_of_memory()
        return self.images.table.array["squared"][image_rows] + self.texts.table.array["squared"][text_rows] / 1000

    def check(self, pairs, *order):
        """Scores all pairs; returns their numbers in the order of their results."""
        results, numbers = np.full(len(pairs), np.nan), []
        for rows, part in tables.score_rows(self.images.table, self.texts.table, pairs, self.size, self.step, *order):
            results[rows] = part
            numbers += rows.tolist()
        np.testing.assert_allclose(results, 10 * pairs[:, 0] ** 2 + pairs[:, 1] ** 2 / 100, rtol=1e-6)
        return numbers


def test_scoring_continues_after_failures_of_every_kind(monkeypatch):
    scoring, write, writes = Scoring(16, (2, 9)), tables._write, []

    def failing_write(mesh, spec, table, rows, values):
        writes.append(None)
        if len(writes) in (5, 20):
            jax.tree.map(lambda leaf: leaf.delete(), table)
            out_of_memory()
        return write(mesh, spec, table, rows, values)

    monkeypatch.setattr(tables, "_write", failing_write)
    assert scoring.check(np.random.default_rng(0).integers(0, 20, (100, 2))) == list(range(100))
    assert scoring.size.total == 4
    assert scoring.images.table.encoder.batch_size * scoring.texts.table.encoder.batch_size == 4


@pytest.mark.parametrize("fails", [(), (3,)])
def test_an_order_of_its_own(fails):
    """Within what fits into the tables; after a failure with what is left."""
    pairs = np.array([(i, j) for i in range(6) for j in range(3)])
    order = Scoring(2, fails).check(pairs, lambda items: np.argsort(items[:, 1], kind="stable"))
    # Four images fit: the text changes least often among the first twelve pairs, and among the last six.
    assert order == [3 * image + text for first in (0, 4) for text in range(3) for image in range(first, 6)[:4]]


def test_loading_ahead_keeps_the_order_and_the_limit():
    started = []

    def load(number):
        started.append(number)
        time.sleep(0.01 * (number % 3))
        return number

    items = tables.load_ahead(load, list(range(20)), 5)
    assert next(items) == 0
    assert max(started) <= 5
    assert list(items) == list(range(1, 20))


def test_loading_ahead_reports_errors_and_stops():
    started = []

    def load(number):
        started.append(number)
        if number == 3:
            raise OSError("broken image")
        return number

    items = tables.load_ahead(load, list(range(100)), 4)
    assert [next(items) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(OSError, match="broken image"):
        next(items)
    assert len(started) <= 8
    with pytest.raises(StopIteration):
        next(items)


def test_loading_begins_before_the_first_item_is_asked_for():
    started = threading.Event()
    items = tables.load_ahead(lambda number: started.set(), [0], 1)
    assert started.wait(20)
    items.close()


def test_texts_are_encoded_while_the_first_images_are_loaded():
    """Images come only once a text was asked for, and texts only once an image is being loaded."""
    loading, asked = threading.Event(), threading.Event()

    def load_image(number):
        loading.set()
        assert asked.wait(20)
        return np.float32(number)

    def load_texts(numbers):
        for number in numbers:
            assert loading.wait(20)
            asked.set()
            yield np.float32(number)

    images, texts = Harness(), Harness()
    images.table._load = lambda numbers: tables.load_ahead(load_image, numbers, 4)
    texts.table._load = load_texts

    def step(image_rows, text_rows, batch):
        return images.table.array["squared"][image_rows] + texts.table.array["squared"][text_rows]

    size = batch_size.BatchSize(2, parallel.make_mesh(jax.devices()[:1]), "pair")
    pairs = np.array([[0, 1], [1, 2], [2, 0]])
    results = [value for _, part in tables.score_rows(images.table, texts.table, pairs, size, step) for value in part]
    np.testing.assert_allclose(results, [10, 50, 40])
