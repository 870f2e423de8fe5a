"""Progress in a log: lines with counts, speed and rest; and on a terminal: a bar."""

import io
import subprocess
import sys
import time

import pytest
import rich.console

from tests import launching
from winobench.base import progress


def test_lines_where_there_is_no_terminal(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    with progress.Progress("preparing toy", "images") as shown:
        shown.start(4000, 1000)
        for seconds in (10, 20, 31, 35):
            now[0] = seconds
            shown.advance(200)
        # 600 in the 40 s since the first 200, which may have waited for a compilation.
        now[0] = 50
        shown.note("loss 0.5")
        shown.advance(0)
        shown.say("a [note]")
    assert capsys.readouterr().err.splitlines() == [
        "preparing toy: 4,000 images, 1,000 are done",
        "preparing toy: 1,400 of 4,000 images, 20 images/s, 2.2 minutes left",  # early, to say how long it takes
        "preparing toy: 1,800 of 4,000 images, 15 images/s, 2.4 minutes left, loss 0.5",
        "a [note]",
    ]
    with progress.Progress("downloading x", "bytes") as shown:
        shown.start(None)
        for now[0] in (100, 140):
            shown.advance(2_750_000)
    assert capsys.readouterr().err.splitlines() == ["downloading x", "downloading x: 5.5 MB"]


def test_a_bar_on_a_terminal(monkeypatch):
    output = io.StringIO()
    console = rich.console.Console(file=output, force_terminal=True, width=100)
    monkeypatch.setattr(progress.rich.console, "Console", lambda **_: console)
    with progress.Progress("preparing [toy]", "images") as shown:
        shown.start(40, 10)
        shown.advance(10)
        shown.start(40, 15)
        shown.say("a note")
        shown.note("loss [0.5]")
        shown.advance(25)
    assert "preparing [toy]" in output.getvalue()
    assert "40/40" in output.getvalue()
    assert "a note" in output.getvalue()
    assert "loss [0.5]" in output.getvalue()


def test_colours_that_are_forced_make_no_bar(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress.counting(3, 0, enabled=True, label="scoring", unit="passes") as advance:
        advance(3)
    assert capsys.readouterr().err.splitlines()[0] == "scoring: 3 passes"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_nothing_where_nobody_wants_it(monkeypatch, capsys, is_terminal):
    monkeypatch.setenv("FORCE_COLOR", "1" if is_terminal else "")
    with progress.counting(10, 2, enabled=False) as advance:
        advance(8)
    assert capsys.readouterr() == ("", "")


COMPILING = """
import jax
from winobench.base import progress
progress.SECONDS_OF_COMPILING = {seconds}
progress.say_what_compiles()
progress.say_what_compiles()

@jax.jit
def many_steps(x):
    for step in range(300):
        x = jax.numpy.sin(x @ x) + {salt}
    return x

for _ in range(2):
    many_steps(jax.numpy.ones((4, 4)))
"""


@pytest.mark.parametrize(("seconds", "count"), [(0.02, 1), (3600, 0)])
def test_a_program_that_compiles_for_long_is_one_line(seconds, count):
    program = COMPILING.format(seconds=seconds, salt=time.time())  # a program that no cache has
    words = [sys.executable, "-c", program]
    process = subprocess.run(words, env=launching.environment(), capture_output=True, text=True, timeout=100)
    assert process.returncode == 0, process.stderr
    line = f"compiling jit(many_steps): more than {seconds:g} s so far"
    assert process.stderr.splitlines().count(line) == count, process.stderr
    assert count or "compiling" not in process.stderr
