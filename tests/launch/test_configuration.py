"""From words on a command line to a config, or to one sentence on what is wrong."""

import functools
import json

import pytest

from launch import configuration
from tests import launching
from tests.expectations import names, raises
from winobench.base import options
from winobench.base.errors import InputError

_CONFIG = """
import dataclasses
from configs import forms_of
from winobench.base import options
from winobench.base.options import COUNT, group, option

@dataclasses.dataclass(frozen=True)
class Inner:
    depth: int = option(1, COUNT)
    rate: float = option(0.1, options.number())

@dataclasses.dataclass(frozen=True)
class SETTINGS:
    size: str = option("small", options.text())
    rate: float = option(0.5, options.number(), "how fast")
    count: int = option(3, COUNT)
    fast: bool = option(False, options.flag())
    widths: tuple = option((1, 2), options.items(COUNT))
    words: str | None = option(None, options.text().or_none())
    limit: int | None = option(7, COUNT.or_none())
    range: tuple | None = option(None, options.span(1_000).or_none())
    number_or_word: int | str | None = option(None, (COUNT | options.text()).or_none())
    inner: Inner = group(Inner)

get_config = forms_of("mine", SETTINGS, {"small": {}, "large": {"size": "large"}})
"""


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(_CONFIG)
    return path


def test_names_paths_arguments_and_repeated_overrides(path):
    config = configuration.load(str(path), [("limit", "none"), ("limit", "4"), ("words", "x"), ("words", "y")])
    assert (config.limit, config.words) == (4, "y")
    assert configuration.load(str(path)).size == "small"
    assert configuration.load(f"{path}:large").size == "large"
    assert configuration.load("gdbench").limit == 100
    assert configuration.load("gdbench:full").limit is None
    assert configuration.load("gdbench:table3").tasks == "mmbias"
    assert configuration.load("gdbench:full").sampling.num_samples == 32


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        ("rate", "1e-3", 1e-3),
        ("count", "1_000", 1000),
        ("fast", "true", True),
        ("size", "none", "none"),  # a field that may not be empty takes the word as it is
        ("widths", "4,5,6", (4, 5, 6)),
        ("words", "a=b", "a=b"),
        ("words", "None", None),
        ("limit", "9", 9),
        ("range", "10,900", (10, 900)),
        ("number_or_word", "1_000", 1000),
        ("number_or_word", "none", None),
    ],
)
def test_the_type_of_the_field_decides(path, field, text, value):
    config = configuration.load(str(path), [(field, text)])
    found = options.values(config)[field]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([("conut", "3")], "no field 'conut': did you mean --config.count?"),
        ([("inner.dept", "3")], "no field 'inner.dept': did you mean --config.inner.depth or --config.inner.rate?"),
        ([("zzz", "3")], "it has count, fast, "),
        ([("inner", "3")], "is a group of fields: override one of inner.depth, inner.rate"),
        ([("count", "1.5")], "--config.count is a whole number, not '1.5'"),
        ([("rate", "fast")], "--config.rate is a number"),
        ([("widths", "a,b")], "--config.widths is a list with commas"),
    ],
)
def test_bad_overrides(path, overrides, message):
    with pytest.raises(InputError) as caught:
        configuration.load(str(path), overrides)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("widths", ["[0", "0)", "((0))", "(0]", "0,,1", "0,", ",0", "", "1,000", "'0'", "1e3", "0x10", "(1),(3)"]),
        ("range", ["[0", "0)", "0,,1", "", '"0"', "{1}"]),
        ("count", ["1__0", "1_", "0x10", "1e3", "True", "007", "", "[1", "٣"]),
        ("limit", ["", " ", "null", "1_"]),
        ("rate", ["0x1", "", "٣", "1e"]),
        ("fast", ["", "2", "on off", "[true"]),
        ("number_or_word", ["", " "]),
    ],
)  # fmt: skip
def test_a_text_is_never_taken_for_another_value(path, field, texts):
    for text in texts:
        with raises("bad-value", f"--config.{field}"):
            configuration.load(str(path), [(field, text)])


def test_configs_and_arguments_that_cannot_be_taken(path, tmp_path):
    with raises("config-of-another-launcher", "winobench train", "winobench eval"):
        configuration.load("hardneg", launcher="eval")
    with pytest.raises(InputError, match="config 'gdbnch' is unknown: did you mean gdbench\\?"):
        configuration.load("gdbnch")
    with pytest.raises(InputError, match=names("nothing.py")):
        configuration.load(str(tmp_path / "nothing.py"))
    with pytest.raises(InputError, match=names("'huge'")):
        configuration.load(f"{path}:huge")
    fixed = tmp_path / "fixed.py"
    fixed.write_text("import ml_collections\ndef get_config():\n    return ml_collections.ConfigDict()\n")
    with pytest.raises(InputError, match=names("':huge'")):
        configuration.load(f"{fixed}:huge")


def test_a_launcher_lists_its_own_configs():
    assert "gdbench" in configuration.config_names("eval")
    assert "gdbench" not in configuration.config_names("train")
    assert set(configuration.config_names("train")) <= set(configuration.config_names())


def test_every_config_loads_in_every_form():
    """A config that nothing runs decays."""
    assert configuration.config_names()
    for name in configuration.config_names():
        config = configuration.load(name)
        json.dumps(configuration.plain(config))
        declared = configuration.options_of(name)
        assert declared.keys() == options.values(config).keys()
        assert all(option.metadata["help"] for option in declared.values())


_LAUNCHER = """
import sys
from absl import flags
from launch import configuration
from winobench.base.errors import InputError

_NUMBER = flags.DEFINE_integer("number", 0, "A number.")

def main(config):
    if _NUMBER.value == 13:
        raise InputError("13 is\\nunlucky.")
    if _NUMBER.value == 14:
        raise KeyboardInterrupt
    print(config.count, config.words, _NUMBER.value)

configuration.start(main, launcher="toy", default=sys.argv.pop(1), usage="A toy.")
"""


@pytest.fixture
def toy(path, tmp_path, monkeypatch):
    (tmp_path / "toy.py").write_text(_LAUNCHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    return functools.partial(launching.launch, "toy", path)


def test_a_launcher_gets_its_config_and_flags(toy):
    assert toy("--number=5", "--config.count", "8", "-config.words=two words") == (0, "8 two words 5\n", "")


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--config.conut=3"], 2, "error: the config has no field 'conut': did you mean --config.count?\n"),
        (["--numbr=3"], 2, "error: there is no flag --numbr: did you mean --number?\n"),
        (["--number=x"], 2, None),
        (["stray"], 2, "error: 'stray' is not a flag: flags start with --, and --help lists them.\n"),
        (["--config.count"], 2, "error: --config.count lacks a value: write --config.count=<value>.\n"),
        (["--number=13"], 2, "error: 13 is unlucky.\n"),
        (["--number=14"], 130, "interrupted\n"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(toy, words, status, message):
    code, out, err = toy(*words)
    assert (code, out) == (status, "")
    assert err == message or (message is None and err.startswith("error: ") and err.count("\n") == 1)


def test_help_shows_flags_fields_values_and_configs(toy):
    code, out, err = toy("--help", "--config.count=8")
    assert (code, err) == (0, "")
    assert out.startswith("A toy.\n")
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert lines["--number"].endswith("A number.")
    assert lines["--config.rate"].split()[1:] == ["0.5", "how", "fast"]
    assert lines["--config.count"].split()[1] == "8"
    assert lines["--config.words"].split()[1] == "none"


_PLAIN_LAUNCHER = """
import sys
from absl import flags
from launch import configuration

_NUMBER = flags.DEFINE_integer("number", 0, "A number.")
takes_words = sys.argv.pop(1) == "words"
configuration.start_without_config(lambda words: print(words, _NUMBER.value), usage="Toy.", takes_words=takes_words)
"""


@pytest.mark.parametrize(
    ("words", "status", "out", "err"),
    [
        (["words", "a", "--number=3", "b"], 0, "['a', 'b'] 3\n", ""),
        (["none", "--number=3"], 0, "[] 3\n", ""),
        (["none", "a"], 2, "", "error: 'a' is not a flag: flags start with --, and --help lists them.\n"),
        (["words", "--config=x"], 2, "", "error: there is no flag --config: --help lists the flags.\n"),
        (["words", "--help"], 0, "Toy.\n\nFlags:\n  --number  A number.\n", ""),
    ],
)
def test_a_launcher_without_config(words, status, out, err, tmp_path, monkeypatch):
    (tmp_path / "plain_toy.py").write_text(_PLAIN_LAUNCHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert launching.launch("plain_toy", *words) == (status, out, err)
