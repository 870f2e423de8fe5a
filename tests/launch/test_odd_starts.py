"""What surrounds a launcher can be odd, too: files that are no configs, folders and devices that are not there."""

import pytest

from launch import configuration
from tests.expectations import raises
from winobench import parallel
from winobench.base.errors import InputError

BROKEN = {
    "def get_config(": "bad.py",
    "import no_such_module": "no_such_module",
    "x = 1": "get_config",
    "x = 1 / 0": "ZeroDivisionError: division by zero (line 1 of bad.py)",
    "raise SystemExit('no')": "SystemExit: no",
    "raise SystemExit(3)": "SystemExit: 3",
    "class Own(BaseException): pass\nraise Own('mine')": "Own: mine",
    "def get_config(): raise SystemExit(3)": "SystemExit: 3",
    "def get_config():\n    return {}[1]": "KeyError: 1 (line 2 of bad.py)",
    "def get_config():\n    return {'a': 1}": "dict",
    "def get_config():\n    return None": "NoneType",
    "def get_config(size):\n    return 1": "TypeError",
    "class E(Exception):\n  def __str__(self): return 5\ndef get_config(): raise E": "E (line 3",
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


def test_a_config_file_is_a_python_file(tmp_path):
    path = tmp_path / "passwd"
    path.write_text("root:x")
    with raises("bad-file-name"):
        configuration.load(str(path))


def test_a_name_that_no_file_can_have_is_cut():
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
        *("JAX_ENABLE_X64=maybe", "JAX_ENABLE_X64=1", "JAX_DEFAULT_PRNG_IMPL=rbg", "JAX_THREEFRY_PARTITIONABLE=off"),
        *("JAX_RANDOM_SEED_OFFSET=7", "JAX_NUMPY_DTYPE_PROMOTION=strict", "JAX_NUM_CPU_DEVICES=0"),
        "JAX_NUM_CPU_DEVICES=100000000",
    ],
)
def test_settings_that_would_give_other_numbers_are_refused(monkeypatch, setting):
    name, value = setting.split("=")
    monkeypatch.setenv(name, value)
    with raises("odd-setting", f"{name}={value!r}"):
        configuration._check_surroundings()


@pytest.mark.parametrize(("name", "value"), [("JAX_ENABLE_X64", "False"), ("JAX_THREEFRY_PARTITIONABLE", "1")])
def test_usual_settings_are_taken(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
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
        *((f"localhost:{port},2,0", ["1", "65535"]) for port in ("99999", "0", "", "x")),
        *((f"{host}:80,2,0", []) for host in ("", "a\nb", "a b", "\0", "a" * 5_000, "a:80")),
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
