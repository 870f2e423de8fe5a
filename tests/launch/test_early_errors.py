"""What goes wrong before a launcher's own handling of errors is there: one line, too."""

import pathlib
import re
import subprocess
import sys

import pytest

import launch
from launch import configuration

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("code", "status", "line"),
    [
        (
            "raise ModuleNotFoundError(\"No module named 'absl'\", name='absl.flags')",
            2,
            "error: the Python package absl is not installed in .*: install it with pip install absl-py.",
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", 130, "interrupted"),
    ],
    ids=["missing", "interrupt"],
)
@pytest.mark.parametrize("launcher", ["eval", "report"])
def test_while_the_libraries_load(tmp_path, launcher, code, status, line):
    (tmp_path / "ml_collections.py").write_text(code)  # in place of the library that launchers import early
    done = subprocess.run(
        [sys.executable, "-c", RUN, launcher],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == status, done.stderr
    assert re.fullmatch(line, done.stderr.strip()), done.stderr


# As Python does it for -m, with the interrupt that a shell which starts the tests in the background would have ignored.
RUN = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, "")
launcher = sys.argv[1]
sys.argv = ["-m"]
runpy._run_module_as_main(f"launch.{launcher}")
"""


def test_another_programs_last_words_are_its_own():
    assert sys.excepthook is not launch._excepthook


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("sky", "pip install 'winobench[cloud]'"),
        ("transformers.models", "pip install transformers"),
        ("matplotlib", "pip install matplotlib"),
        ("PIL.Image", "pip install pillow"),
        ("tensorflow_datasets", "pip install tensorflow-datasets"),
    ],
)
def test_a_missing_package_that_is_needed_late(name, advice, capsys):
    def main():
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    with pytest.raises(SystemExit) as end:
        configuration._guarded(main)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: the Python package {name.partition('.')[0]} is not installed in ")
    assert said.strip().endswith(f"{advice}.")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [ModuleNotFoundError("x", name="winobench.nothing"), ModuleNotFoundError("x"), ImportError("x", name="jax"),
     ModuleNotFoundError("x", name="json.nothing")],
)  # fmt: skip
def test_mistakes_of_ones_own_keep_their_traceback(error):
    def main():
        raise error

    with pytest.raises(type(error)):
        configuration._guarded(main)
