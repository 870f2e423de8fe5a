"""What surrounds a launcher can be odd, too: files that are no configs, folders and devices that are not there."""

import pytest

from launch import configuration
from tests.expectations import raises
from winobench import parallel
from winobench.base.errors import InputError


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("raise SystemExit('no')", ("broken-config-file", "SystemExit: no")),
        ("class Own(BaseException): pass\nraise Own('mine')", ("broken-config-file", "Own: mine")),
        ("def get_config(): raise SystemExit(3)", ("broken-config-file", "SystemExit: 3")),
        ("def get_config(): return 1 / 0", ("broken-config-file", "ZeroDivisionError")),
        (
            "class E(Exception):\n  def __str__(self): return 5\ndef get_config(): raise E",
            ("broken-config-file", "E (line 3"),
        ),
        (
            "class E(Exception):\n  def __str__(self): raise self\ndef get_config(): raise E",
            ("broken-config-file", "E"),
        ),
        (
            "import ml_collections\nSETTINGS = 5\ndef get_config(): return ml_collections.ConfigDict({'a': 1})",
            ("bad-settings", "SETTINGS"),
        ),
        ("import ml_collections\nSETTINGS = {'a': 5}\nget_config = ml_collections.ConfigDict", ("bad-settings", "5")),
    ],
)
def test_whatever_a_config_file_raises_is_said(tmp_path, content, said):
    path = tmp_path / "own.py"
    path.write_text(content)
    with raises(*said):
        configuration.load(str(path))


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


@pytest.mark.parametrize(
    ("module", "raised", "said"),
    [
        (
            "jax._src.xla_bridge",
            "RuntimeError('Unable to initialize backend')",
            "error: JAX finds no device: Unable",
        ),
        (
            "jax._src.xla_bridge",
            "AssertionError",
            "error: JAX finds no device: a platform has no plug-in for JAX here (in",
        ),
        ("jax._src.config", "ValueError('invalid truth value')", "error: JAX refuses a setting: invalid truth value"),
    ],
)
def test_what_jax_says_of_its_settings_is_one_sentence(capsys, monkeypatch, module, raised, said):
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    there = {"__name__": module}
    exec(f"def start(): raise {raised}", there)
    with pytest.raises(SystemExit) as end:
        configuration._guarded(there["start"])
    assert end.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith(said)
    assert "JAX_PLATFORMS='cuda'" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_ENABLE_X64", "maybe"),
        ("JAX_ENABLE_X64", "1"),
        ("JAX_DEFAULT_PRNG_IMPL", "rbg"),
        ("JAX_THREEFRY_PARTITIONABLE", "off"),
        ("JAX_RANDOM_SEED_OFFSET", "7"),
        ("JAX_NUMPY_DTYPE_PROMOTION", "strict"),
        ("JAX_NUM_CPU_DEVICES", "0"),
        ("JAX_NUM_CPU_DEVICES", "100000000"),
    ],
)
def test_settings_that_would_give_other_numbers_are_refused(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with raises("odd-setting", f"{name}={value!r}"):
        configuration._check_surroundings()


@pytest.mark.parametrize(("name", "value"), [("JAX_ENABLE_X64", "False"), ("JAX_THREEFRY_PARTITIONABLE", "1")])
def test_usual_settings_are_taken(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    configuration._check_surroundings()


def test_a_backend_of_matplotlib_that_is_not_there_is_one_sentence(capsys, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "nonsense")

    def start(_):
        import matplotlib

        matplotlib.rcParams["backend"] = "nonsense"

    with pytest.raises(SystemExit) as raised:
        configuration._guarded(start, None)
    assert raised.value.code == 2
    said = capsys.readouterr().err
    assert said == "error: MPLBACKEND=nonsense is not a backend of Matplotlib: unset it.\n"


def test_other_errors_keep_their_traceback():
    def fail(_):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        configuration._guarded(fail, None)


@pytest.mark.parametrize("spec", ["localhost:99999,2,0", "localhost:0,2,0", "localhost:,2,0", "localhost:x,2,0"])
def test_a_port_is_checked_before_anybody_is_waited_for(spec):
    with raises("bad-address", "1", "65535"):
        parallel.join_processes(spec)


@pytest.mark.parametrize(
    "spec", [":80,2,0", "a\nb:80,2,0", "a b:80,2,0", "\0:80,2,0", "a" * 5_000 + ":80,2,0", "a:80:90,2,0"]
)
def test_a_host_is_a_name_or_an_address(spec):
    with raises("bad-address") as raised:
        parallel.join_processes(spec)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("spec", ["localhost:9,²,0", "localhost:9,2,³", "localhost:9,2,-1"])
def test_numbers_of_processes_are_digits(spec):
    with raises("bad-address", "host:port,count,number"):
        parallel.join_processes(spec)


def test_words_that_nobody_can_read_are_cut(capsys):
    def fail():
        raise InputError(f"a.txt has {'[' * 100_000} and\n  {'x' * 300} twice: restore it")

    with pytest.raises(SystemExit):
        configuration._guarded(fail)
    told = capsys.readouterr().err
    assert told.startswith("error: a.txt has [[[")
    assert told.endswith(f"[[[ and {'x' * 300} twice: restore it\n")
    assert len(told) < 1100


def test_a_long_sentence_is_cut(capsys):
    def fail():
        raise InputError("\n".join(["abc"] * 10_000) + ": restore it")

    with pytest.raises(SystemExit):
        configuration._guarded(fail)
    told = capsys.readouterr().err
    assert told.startswith("error: abc abc")
    assert told.endswith("abc: restore it\n")
    assert "[...]" in told
    assert len(told) < 1500
