"""From words on a command line to a config, or to one sentence on what is wrong."""

import functools
import json

import pytest
from absl import flags

import winobench.__main__ as command_line
from launch import configuration
from launch.overrides import parted, shown
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
    inner: Inner = group(Inner, short=("depth",))

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
        ([("conut", "3")], "no field 'conut': did you mean --count?"),
        ([("inner.dept", "3")], "no field 'inner.dept': did you mean --inner.depth or --inner.rate?"),
        ([("zzz", "3")], "it has count, fast, "),
        ([("inner", "3")], "--inner is a group: give one of --inner.depth, --inner.rate"),
        ([("count", "1.5")], "--count is a whole number, not '1.5'"),
        ([("rate", "fast")], "--rate is a number"),
        ([("widths", "a,b")], "--widths is a list with commas"),
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
        with raises("bad-value", f"--{field}"):
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


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["--number=5", "--config.count", "8", "-config.words=two words"], "8 two words 5\n"),
        (["--number", "5", "--count", "8", "--words=two words"], "8 two words 5\n"),
        (["--config.number=5", "-count=8", "--words", "--count=9"], "8 --count=9 5\n"),
        (["--count=7", "--config.count=8", "--depth=3"], "8 None 0\n"),
    ],
)
def test_a_launcher_gets_its_config_and_flags(toy, words, out):
    assert toy(*words) == (0, out, "")


def _given(*words):
    """The words for absl, and the fields that a command line gives, by the options of the config above."""
    space: dict = {}
    exec(_CONFIG, space)
    with launching.flags_of_its_own():
        flags.DEFINE_bool("overwrite", False, "", module_name="launch.toy")
        flags.DEFINE_string("words_in_all", None, "", module_name="launch.toy")
        flags.DEFINE_string("count", None, "A flag of a field's name.", module_name="launch.toy")
        rest, fields = parted(["toy", *words], space["SETTINGS"])
        return rest[1:], dict(fields), shown(space["SETTINGS"])


@pytest.mark.parametrize(
    ("words", "rest", "fields"),
    [
        (["--limit=3", "--config.limit=4"], [], {"limit": "4"}),
        (["--inner.rate=1", "--config.inner.depth", "2"], [], {"inner.rate": "1", "inner.depth": "2"}),
        (["--depth=2"], [], {"inner.depth": "2"}),
        (["--number-or-word=a-b"], [], {"number_or_word": "a-b"}),
        (["--words-in-all", "--limit=3"], ["--words_in_all", "--limit=3"], {}),  # a flag's value is left alone
        (["--words", "--limit=3"], [], {"words": "--limit=3"}),  # and a field's
        (["--count=a", "--config.count=3"], ["--count=a"], {"count": "3"}),
        (["--fast", "run", "--overwrite", "other"], ["run", "--overwrite", "other"], {"fast": "true"}),
        (["--fast", "false", "--no-overwrite"], ["--overwrite=false"], {"fast": "false"}),
        (["--fast", "none", "--overwrite", "none"], ["--overwrite", "none"], {"fast": "none"}),
        (["--nofast", "--nooverwrite"], ["--overwrite=false"], {"fast": "false"}),
        (["--limit=3", "--", "--limit=4"], ["--", "--limit=4"], {"limit": "3"}),
        (["--words=a=b\nc", "-1", "x--y"], ["-1", "x--y"], {"words": "a=b\nc"}),
        (["--config.overwrite", "--other-one=3"], ["--overwrite", "--other_one=3"], {}),
    ],
)
def test_fields_have_short_names(words, rest, fields):
    assert _given(*words)[:2] == (rest, fields)


def test_a_field_is_shown_by_its_shortest_name_that_is_no_flag():
    *_, by_field = _given()
    assert (by_field["limit"], by_field["inner.depth"], by_field["inner.rate"]) == ("limit", "depth", "inner.rate")
    assert by_field["count"] == "config.count"


@pytest.mark.parametrize("command", command_line.commands())
def test_no_command_has_a_flag_with_the_name_of_a_field(command):
    if command in ("cloud", "plan"):  # they pass a config on, and take its other fields by --config.NAME
        return
    status, text, _ = launching.launch(launching.module(command), "--help")
    assert (status, "--config." in text) == (0, False)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--config.conut=3"], 2, "error: there is no flag --conut: did you mean --count?\n"),
        (
            ["--inner.rat=3"],
            2,
            "error: there is no flag --inner.rat: did you mean --inner.rate, --inner.depth or --rate?\n",
        ),
        (["--config.inner=3"], 2, "error: --inner is a group: give one of --inner.depth, --inner.rate.\n"),
        (["--depth=x"], 2, "error: --depth is a whole number, not 'x'.\n"),
        (["--numbr=3"], 2, "error: there is no flag --numbr: did you mean --number?\n"),
        (
            ["--numbr=3", "--conut", "3", "--inner=1", "--zzz", "--zzz"],
            2,
            "error: there is no flag --numbr: did you mean --number? There is no flag --conut: did you mean --count?"
            " --inner is a group: give one of --inner.depth, --inner.rate. There is no flag --zzz: --help lists the"
            " flags.\n",
        ),
        (
            ["---x", "-", "--=3", "--%", "stray", "--", "--zzz"],
            2,
            "error: there is no flag ---x: --help lists the flags. There is no flag --%: --help lists the flags.\n",
        ),
        (["--number=x"], 2, None),
        (["stray"], 2, "error: 'stray' is not a flag: flags start with --, and --help lists them.\n"),
        (["--config.count"], 2, "error: --count lacks a value: write --count=<value>.\n"),
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
    assert lines["--rate"].split()[1:] == ["0.5", "how", "fast"]
    assert lines["--count"].split()[1] == "8"
    assert lines["--words"].split()[1] == "none"


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
        (["words", "--config.number", "3", "--", "--number=4"], 0, "['--number=4'] 3\n", ""),
        (["none", "--config.numbr=x"], 2, "", "error: there is no flag --numbr: did you mean --number?\n"),
        (["words", "--help"], 0, "Toy.\n\nFlags:\n  --number  A number.\n", ""),
    ],
)
def test_a_launcher_without_config(words, status, out, err, tmp_path, monkeypatch):
    (tmp_path / "plain_toy.py").write_text(_PLAIN_LAUNCHER)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert launching.launch("plain_toy", *words) == (status, out, err)
