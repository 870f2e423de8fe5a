"""Standard output that is lost: a reader that has gone, a full disk, closed streams."""

import gc
import os
import signal
import subprocess
import sys
import time

import pytest

import launch
from launch import output

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def standard_output(monkeypatch):
    """Makes sys.stdout a stream to a descriptor, with or without a buffer."""
    streams = []

    def use(descriptor, is_buffered):
        streams.append(os.fdopen(descriptor, "w", buffering=-1 if is_buffered else 1))
        monkeypatch.setattr(sys, "stdout", streams[-1])

    yield use
    for stream in streams:
        stream.close()


def _pipe_without_reader():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


LOST = [(_pipe_without_reader, 141, ""), (lambda: os.open("/dev/full", os.O_WRONLY), 1, "No space left on device")]


@pytest.mark.parametrize(("lost", "status", "sentence"), LOST)
@pytest.mark.parametrize("is_buffered", [True, False])
@pytest.mark.parametrize("end", [None, 0, 2])
def test_commands_end_as_others_whose_output_is_lost(standard_output, capfd, lost, status, sentence, is_buffered, end):
    standard_output(lost(), is_buffered)

    def command():
        with output.watched():
            try:
                print("a line\n" * 10)
            except Exception:  # as around a task that fails
                pytest.fail("the loss was taken for another failure")
            if end is not None:
                sys.exit(end)

    with pytest.raises(SystemExit) as caught:
        command()
    assert caught.value.code == ((end or status) if is_buffered else status)  # its own failure keeps its status
    said = capfd.readouterr().err
    assert end or (sentence in said and len(said.splitlines()) == bool(sentence))


def test_other_broken_pipes_are_not_taken_for_it(standard_output):
    standard_output(os.open(os.devnull, os.O_WRONLY), True)

    def command():
        with output.watched():
            os.write(_pipe_without_reader(), b"text")

    with pytest.raises(BrokenPipeError):
        command()


def test_a_stderr_that_is_full_changes_no_status(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        output.print_stderr("a line")
        monkeypatch.undo()
        with pytest.raises(OSError, match="No space"):
            full.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())


@pytest.mark.parametrize(
    ("redirection", "status", "sentence"),
    [("> /dev/full", 1, "error: standard output cannot be written"), (">&- 2>&-", 0, "")],
)
def test_launchers(redirection, status, sentence):
    command = f"{sys.executable} -m launch.eval --list_tasks {redirection}"
    ended = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr.count("\n")) == (status, bool(sentence))
    assert sentence in ended.stderr


def test_an_interrupt_that_python_drops_is_raised_again(monkeypatch):
    def called(phase, info):
        gc.callbacks.remove(called)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(sys, "unraisablehook", launch._unraisablehook)
    gc.callbacks.append(called)
    gc.collect()
    with pytest.raises(KeyboardInterrupt):
        time.sleep(0.5)
