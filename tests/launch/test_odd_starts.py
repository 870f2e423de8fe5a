"""What surrounds a launcher can be odd, too: files that are no configs, folders and devices that are not there."""

import pathlib
import re
import subprocess
import sys

import pytest

import launch
from launch import configuration
from tests.expectations import raises
from winobench import parallel
from winobench.base.errors import InputError

BROKEN = {
    "def get_config(": "bad.py",
    "import no_such_module": "no_such_module",
    "x = 1 / 0": "ZeroDivisionError: division by zero (line 1 of bad.py)",
    "class Own(BaseException): pass\nraise Own('mine')": "Own: mine",
    "def get_config():\n    return {}[1]": "KeyError: 1 (line 2 of bad.py)",
    "def get_config():\n    return {'a': 1}": "dict",
    "def get_config(size):\n    return 1": "TypeError",
    "class E(Exception):\n  def __str__(self): raise self\ndef get_config(): raise E": "E",
}


@pytest.mark.parametrize("content", BROKEN)
def test_whatever_a_config_file_raises_is_one_sentence(tmp_path, content):
    (tmp_path / "bad.py").write_text(content)
    with raises("broken-config-file", BROKEN[content]):
        configuration.load(str(tmp_path / "bad.py"))


@pytest.mark.parametrize("value", ["5", "{'a': 5}"])
def test_settings_are_a_dataclass_of_options(tmp_path, value):
    (tmp_path / "own.py").write_text(
        f"import ml_collections\nSETTINGS = {value}\nget_config = ml_collections.ConfigDict"
    )
    with raises("bad-settings", "SETTINGS", "5"):
        configuration.load(str(tmp_path / "own.py"))


def test_a_config_file_is_a_python_file_of_a_possible_name(tmp_path):
    path = tmp_path / "passwd"
    path.write_text("root:x")
    with raises("bad-file-name"):
        configuration.load(str(path))
    with raises("no-such-file") as raised:
        configuration.load("a/" + "b" * 5_000)
    assert len(str(raised.value)) < 400


def test_a_working_directory_that_is_gone_is_said(tmp_path, monkeypatch):
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with raises("no-working-folder"):
        configuration._check_surroundings()


@pytest.fixture
def ended(capsys):
    """Calls a function as a launcher's, which must end with status 2 and one line on stderr. Returns the line."""

    def call(function, *arguments):
        with pytest.raises(SystemExit) as end:
            configuration._guarded(function, *arguments)
        said = capsys.readouterr().err
        assert (end.value.code, said.count("\n")) == (2, 1)
        return said

    return call


@pytest.mark.parametrize(
    ("module", "raised", "said"),
    [
        ("xla_bridge", "RuntimeError('Unable to initialize backend')", "JAX finds no device: Unable"),
        ("xla_bridge", "AssertionError", "JAX finds no device: a platform has no plug-in for JAX here (in"),
        ("config", "ValueError('invalid truth value')", "JAX refuses a setting: invalid truth value"),
    ],
)
def test_what_jax_says_of_its_settings_is_one_sentence(ended, monkeypatch, module, raised, said):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    there = {"__name__": f"jax._src.{module}"}
    exec(f"def start(): raise {raised}", there)
    printed = ended(there["start"])
    assert printed.startswith(f"error: {said}")
    assert "JAX_PLATFORMS='cuda'" in printed


@pytest.mark.parametrize(
    "setting",
    [
        *("JAX_ENABLE_X64=maybe", "JAX_ENABLE_X64=1", "JAX_DEFAULT_PRNG_IMPL=rbg", "JAX_RANDOM_SEED_OFFSET=7"),
        *("JAX_NUMPY_DTYPE_PROMOTION=strict", "JAX_NUM_CPU_DEVICES=100000000"),
    ],
)
def test_settings_that_would_give_other_numbers_are_refused(monkeypatch, setting):
    monkeypatch.setenv("JAX_ENABLE_X64", "False")
    monkeypatch.setenv("JAX_THREEFRY_PARTITIONABLE", "1")
    configuration._check_surroundings()
    name, value = setting.split("=")
    monkeypatch.setenv(name, value)
    with raises("odd-setting", f"{name}={value!r}"):
        configuration._check_surroundings()


def test_a_backend_of_matplotlib_that_is_not_there_is_one_sentence(ended, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "nonsense")

    def start():
        import matplotlib

        matplotlib.rcParams["backend"] = "nonsense"

    assert ended(start).startswith("error: MPLBACKEND=nonsense is not a backend of Matplotlib")


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        *((f"localhost:{port},2,0", ["1", "65535"]) for port in ("99999", "", "x")),
        *((f"{host}:80,2,0", []) for host in ("", "a\nb", "\0", "a" * 5_000, "a:80")),
        *((f"localhost:9,{numbers}", ["host:port,count,number"]) for numbers in ("²,0", "2,³", "2,-1")),
    ],
)
def test_an_address_is_checked_before_anybody_is_waited_for(spec, named):
    with raises("bad-address", *named) as raised:
        parallel.join_processes(spec)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(
    ("sentence", "begin", "end", "longest"),
    [
        (f"a.txt has {'[' * 100_000} and\n  {'x' * 300} twice", "a.txt has [[[", f"[[[ and {'x' * 300} twice", 1100),
        ("\n".join(["abc"] * 10_000) + ": restore it", "abc abc", "abc: restore it", 1500),
    ],
)
def test_what_nobody_can_read_is_cut(ended, sentence, begin, end, longest):
    def fail():
        raise InputError(sentence)

    printed = ended(fail)
    assert printed.startswith(f"error: {begin}")
    assert printed.endswith(f"{end}\n")
    assert "[...]" in printed
    assert len(printed) < longest


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
    words, path = [sys.executable, "-c", RUN, launcher], {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, env=path)
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
        ("PIL.Image", "pip install pillow"),
        ("tensorflow_datasets", "pip install tensorflow-datasets"),
        ("rapidfuzz", "pip install 'winobench[wscplus]'"),
        ("spacy.tokens", "pip install 'winobench[order]'"),
        ("transformers", "pip install transformers"),
        ("nothing_of_ours", "pip install nothing-of-ours"),
    ],
)
def test_a_missing_package_that_is_needed_late(name, advice, ended):
    def main():
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    printed = ended(main)
    assert printed.startswith(f"error: the Python package {name.partition('.')[0]} is not installed in ")
    assert printed.strip().endswith(f"{advice}.")


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


def test_a_warning_is_one_line_of_the_log(tmp_path):
    """Of winobench, of a library, and before the log begins. The filters of Python still hold."""
    program = """
import warnings
import launch
launch.guard()
warnings.warn("the first one\\nis odd")
from absl import app
def main(_):
    warnings.warn("the second one\\n  is odd", stacklevel=2)
    for _ in range(2):
        warnings.warn("repeated", RuntimeWarning)
    warnings.warn_explicit("old", DeprecationWarning, "library.py", 1)
app.run(main)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=pathlib.Path(launch.__file__).parents[1]
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == 3
    for line, message in zip(lines, ("the first one is odd", "the second one is odd", "repeated"), strict=True):
        assert line.endswith(message)
        assert "Warning" not in line
