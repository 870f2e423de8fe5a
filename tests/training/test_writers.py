import json
import os
import struct

import pytest

from tests.expectations import names, raises
from winobench.base import trackers
from winobench.base.errors import InputError
from winobench.training import writers


def fill(writer, start, steps):
    writer.start(start)
    for step in steps:
        writer.write(step, {"loss": step / 10})
    writer.close()


def test_lines_of_steps_that_are_done_anew_are_dropped(tmp_path):
    path = tmp_path / "run" / "metrics.jsonl"
    fill(writers.JsonLines(path), 0, [1, 2, 3])
    with path.open("a") as file:
        file.write('{"step": 4, "lo')
    fill(writers.JsonLines(path), 2, [3, 4])
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"step": step, "loss": step / 10} for step in (1, 2, 3, 4)
    ]
    before = path.stat().st_mtime_ns
    fill(writers.JsonLines(path), 4, [])
    assert path.stat().st_mtime_ns == before


def events(folder):
    """The scalars in TensorBoard's files: (file number, step, tag, value), and the steps from which one purges."""
    from tensorboardX.proto import event_pb2

    scalars, purges = [], []
    for number, path in enumerate(sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        content, place = path.read_bytes(), 0
        while place < len(content):
            (length,) = struct.unpack_from("<Q", content, place)  # then 4 bytes of checksum, the event, 4 bytes
            event = event_pb2.Event.FromString(content[place + 12 : place + 12 + length])
            place += 16 + length
            if event.session_log.status == event.session_log.START:
                purges.append(event.step)
            scalars += [(number, event.step, value.tag, value.simple_value) for value in event.summary.value]
    return scalars, purges


def test_tensorboard_gets_points_and_forgets_later_ones(tmp_path):
    fill(trackers.TensorBoard(tmp_path), 0, [1, 2, 3])
    assert events(tmp_path) == ([(0, step, "loss", pytest.approx(step / 10)) for step in (1, 2, 3)], [])
    fill(trackers.TensorBoard(tmp_path), 2, [3])
    scalars, purges = events(tmp_path)
    assert [scalar[1] for scalar in scalars] == [1, 2, 3, 3]
    assert purges == [3]


@pytest.fixture(autouse=True)
def no_wandb_variables(monkeypatch):
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)


def test_a_project_without_the_library_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(writers.importlib.util, "find_spec", lambda name: None)
    with raises("missing-package", "'mine'"):
        writers.for_run(tmp_path, project="mine", config={})
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert len(writers.for_run(tmp_path, project=None, config={})) == 1


def test_trackers_get_the_name_of_the_run(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(trackers.extensions, "find", lambda group, name: lambda *given: made.append(given[-1]))
    for config in ({}, {"name": "mine"}):
        (tmp_path / "config.json").write_text(json.dumps(config))
        writers.for_run(tmp_path, project=None, config={}, log=["wandb"])
    assert made == [tmp_path.name, "mine"]


@pytest.mark.parametrize("odd", [b"\xff\xfe\n", b"\0\0\n", b"[]\n", b'{"step": "2"}\n', b"\r\r\n"])
@pytest.mark.parametrize("start", [0, 2])
def test_lines_that_are_not_rows_are_dropped(tmp_path, odd, start):
    path = tmp_path / "metrics.jsonl"
    fill(writers.JsonLines(path), 0, [1, 2])
    path.write_bytes(odd + path.read_bytes() + odd)
    fill(writers.JsonLines(path), start, [start + 1])
    kept = [json.loads(line)["step"] for line in path.read_text(encoding="utf-8").splitlines()]
    assert kept == list(range(1, start + 2))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_metrics_file_that_is_not_a_file_is_refused(tmp_path, make):
    make(tmp_path / "metrics.jsonl")
    with pytest.raises(InputError, match=names("metrics.jsonl")):
        writers.JsonLines(tmp_path / "metrics.jsonl").start(0)
