import json
import stat

import jax
import pytest

from tests.expectations import raises
from winobench import parallel
from winobench.engine import batch_size

KEY = {"network": "abc", "latent_shape": [4, 4, 3]}


class Device:
    """Runs steps whose time follows from a table: batch size -> items in a second; other sizes do not fit."""

    def __init__(self, rates):
        self.rates = rates
        self.now = 0.0
        self.tried = []

    def run(self, size, steps):
        if size not in self.tried:
            assert steps == 1  # the one that compiles
            self.tried.append(size)
            self.now += 100
        elif size in self.rates:
            self.now += size * steps / self.rates[size]
        if size not in self.rates:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.")

    def search(self, default, downwards=False):
        return batch_size.search(self.run, default, downwards=downwards, clock=lambda: self.now)


@pytest.mark.parametrize(
    ("rates", "default", "downwards", "tried"),
    [
        # Upwards until it no longer pays, and no further; nothing below.
        ({8: 10, 16: 20, 32: 30, 64: 30.5, 128: 90}, 16, True, [16, 32, 64]),
        # The default is no power of two.
        ({16: 20, 32: 19}, 31, False, [16, 32]),
        # Until the memory ends.
        ({16: 20, 32: 30}, 16, False, [16, 32, 64]),
        # Downwards if nothing above is better, and if that is asked for.
        ({1: 5, 2: 28, 4: 30, 8: 25, 16: 20, 32: 18}, 16, True, [16, 32, 8, 4, 2]),
        ({8: 25, 16: 20, 32: 18}, 16, False, [16, 32]),
        # The default does not fit.
        ({1: 1, 2: 2, 4: 4}, 16, False, [16, 8, 4]),
        ({1: 9, 2: 8, 4: 4}, 16, True, [16, 8, 4, 2, 1]),
        # Not without end.
        ({2**n: 2.0**n for n in range(20)}, 2, False, [2, 4, 8, 16, 32]),
        ({1: 1.0}, 1, True, [1, 2]),
    ],
)
def test_sizes_that_are_tried(rates, default, downwards, tried):
    device = Device(rates)
    found = device.search(default, downwards)
    assert device.tried == tried
    assert found == pytest.approx({size: rates[size] for size in tried if size in rates})


def test_compiling_and_disturbed_rounds_do_not_count():
    device = Device({8: 1e3, 16: 900})
    quiet = device.run
    rounds = []

    def disturbed(size, steps):
        quiet(size, steps)
        rounds.append(size)
        if len(rounds) % 2:
            device.now += 0.01

    device.run = disturbed
    assert device.search(8) == pytest.approx({8: 1e3, 16: 900})
    assert rounds.count(8) > 10


def test_errors_end_the_search():
    with raises("out-of-memory", "bfloat16"):
        Device({}).search(4)

    def broken(size, steps):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="something else"):
        batch_size.search(broken, 4, downwards=True)


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1 bytes.", True),
        ("INTERNAL: CUDA_ERROR_OUT_OF_MEMORY: out of memory", True),
        ("RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm.", True),
        ("INTERNAL: Failed to launch a kernel", False),
    ],
)
def test_what_is_out_of_memory(text, is_it):
    assert batch_size.is_out_of_memory(jax.errors.JaxRuntimeError(text)) == is_it
    assert not batch_size.is_out_of_memory(ValueError(text))


def test_halving(caplog):
    size = batch_size.BatchSize(5, parallel.make_mesh(jax.devices()[:2]), "text")
    assert size.total == 10
    error = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory.\nA long list " + "of buffers " * 1000)
    for _ in range(2):
        size.halve(error)
    assert size.total == 2
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("5 texts at once on each device do not fit into memory (RESOURCE_EXHAUSTED: out of memory.")
    assert second.endswith("going on with 1")
    assert len(first) < 300
    assert "\n" not in first
    with raises("out-of-memory"):
        size.halve(error)
    assert size.per_device == 1


@pytest.fixture
def cache(monkeypatch, tmp_path):
    folder = tmp_path / "not there yet"
    monkeypatch.setenv("WINOBENCH_CACHE", str(folder))
    return folder


def searched(device, default=8, mesh=None, key=KEY):
    mesh = parallel.make_mesh(jax.devices()[:1]) if mesh is None else mesh
    return batch_size.searched(device.run, default, mesh, key)


@pytest.fixture
def device(monkeypatch):
    device = Device({4: 11, 8: 10, 16: 9})
    search = batch_size.search
    monkeypatch.setattr(batch_size, "search", lambda *args, **named: search(*args, **named, clock=lambda: device.now))
    return device


def test_what_was_found_is_remembered(cache, device, caplog):
    assert searched(device) == 4
    (record,) = caplog.records
    path = cache / "batch_sizes.json"
    assert record.getMessage() == (
        f"batch size 4 was found to be the fastest (passes/s: 4: 11, 8: 10, 16: 9); remembered in {path}"
    )
    again = Device({})
    assert searched(again) == 4
    assert again.tried == []
    assert len(caplog.records) == 1
    # Another key has an entry of its own.
    device.rates = {8: 10, 16: 20}
    device.tried = []
    assert searched(device, key=KEY | {"network": "other"}) == 16
    assert searched(again) == 4
    device.tried = []
    assert searched(device, mesh=parallel.make_mesh(jax.devices()[:2])) == 16
    entries = json.loads(path.read_text()).values()
    assert [sorted(entry) for entry in entries] == [["batch_size", "key", "passes_per_second"]] * 3
    # The rates of two devices are those of both.
    assert sorted(entry["passes_per_second"]["16"] for entry in entries) == pytest.approx([9, 20, 40])
    assert {entry["key"]["jax"] for entry in entries} == {jax.__version__}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"a": 1', "\x00\xff", '{"KEY": 5}', '{"KEY": {"batch_size": "4"}}', '{"KEY": {}}']
)
def test_a_damaged_file_is_replaced(cache, device, content):
    searched(device)
    path = cache / "batch_sizes.json"
    (digest,) = json.loads(path.read_text())
    path.write_bytes(content.replace("KEY", digest).encode("latin-1"))
    device.tried = []
    assert searched(device) == 4
    assert device.tried == [8, 16, 4, 2]
    assert json.loads(path.read_text())[digest]["batch_size"] == 4


def test_a_folder_that_cannot_be_written(cache, device, caplog):
    cache.write_text("a file")
    assert searched(device) == 4
    assert caplog.records[0].getMessage().endswith("; it could not be remembered")
    assert stat.S_ISREG(cache.stat().st_mode)


def test_devices_of_several_processes_are_not_searched(monkeypatch, device):
    monkeypatch.setattr(parallel, "is_multihost", lambda mesh: True)
    with raises("several-processes"):
        searched(device)
