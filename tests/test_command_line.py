"""The console script: its commands are the launchers, and errors name what is near."""

import pathlib
import subprocess
import sys

import pytest

import launch
from tests import launching
from winobench import __main__ as command_line
from winobench.base import extensions

LAUNCHERS = pathlib.Path(launch.__file__).parent


def call(*words):
    done = subprocess.run(
        [sys.executable, "-m", "winobench", *words], capture_output=True, text=True, env=launching.environment()
    )
    return done.returncode, done.stdout, done.stderr


def test_the_commands_are_the_launchers():
    modules = [path for path in LAUNCHERS.glob("*.py") if 'if __name__ == "__main__":' in path.read_text()]
    added = extensions.added(extensions.COMMANDS)
    assert set(command_line.commands()) == {*(path.stem for path in modules), *added}
    assert all(f"  {name} " in command_line.usage() for name in command_line.commands())


@pytest.mark.parametrize(
    ("words", "status", "out", "err"),
    [
        ([], 0, "usage: winobench COMMAND", ""),
        (["evl"], 2, "", "did you mean eval?"),
        (["train", "--help"], 0, "winobench train", ""),
        (["prepare", "--tsk=pets"], 2, "", "error: "),
    ],
)
def test_the_script_runs_a_launcher(words, status, out, err):
    found = call(*words)
    assert found[0] == status
    assert out in found[1]
    assert err in found[2]
    assert "Traceback" not in found[2]


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["eval", "--help"]])
def test_a_reader_that_leaves_sees_no_traceback(words):
    """The reader has gone before the first line, as head may."""
    process = subprocess.Popen(
        [sys.executable, "-m", "winobench", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=launching.environment(),
    )
    process.stdout.close()
    assert (process.stderr.read(), process.wait()) == (b"", 141)
    process.stderr.close()
