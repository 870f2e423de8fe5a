import ast
import json
import os
import pathlib
import re
import time

import hypothesis
import pytest
from hypothesis import strategies as st

import winobench
from tests.expectations import names, raises
from winobench.base import json_files
from winobench.base.errors import InputError

REPOSITORY = pathlib.Path(winobench.__file__).parent.parent
TEXTS = st.text(st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**99), 10**99)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)

BAD = {
    "cut off": ('{"a": 1', ("not-json", "column")),
    "empty": ("", ("not-json", "column 1")),
    "something behind": ("{} {}", ("not-json", "column 4")),
    "deep lists": ("[" * 101 + "]" * 101, ("too-deep",)),
    "deeper than the stack, open": ('{"a":' * 200_000, ("too-deep",)),
    "a key twice": ('{"a": {"b": 1, "b": 2}}', ("repeated-key", "'b'")),
    "NaN": ('{"a": NaN}', ("not-a-json-number", "NaN")),
    "a float beyond floats": ("[1e999]", ("number-too-large", "1e999")),
    "a long number": ("[" + "9" * 101 + "]", ("number-too-large", "101")),
    "half a character, written out": (r'["\ud83d"]', ("lone-surrogate",)),
    "half a character in a text": ('["\ud83d"]', ("lone-surrogate",)),
    "Latin-1": (b'["\xfc"]', ("not-utf8", "byte 2")),
    "a line break in a text": ('["a\nb"]', ("not-json", "column 4")),
}


@pytest.mark.parametrize("name", BAD)
def test_refuses_in_one_sentence(tmp_path, name):
    content, reason = BAD[name]
    started = time.process_time()
    with raises(*reason, kind=json_files.NotJSON):
        json_files.parse(content)
    if not isinstance(content, bytes):
        content = content.encode("utf-8", "surrogatepass")
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=names("config.json", "JSON")) as error:
        json_files.read(path, "get it again")
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300 + len(str(path))
    assert time.process_time() - started < 5


@hypothesis.settings(deadline=None, max_examples=25, suppress_health_check=[hypothesis.HealthCheck.too_slow])
@hypothesis.given(VALUES)
def test_reads_what_python_writes(value):
    for text in (json.dumps(value), json.dumps(value, ensure_ascii=False, indent=1)):
        assert json_files.parse(text) == value
        assert json_files.parse(b"\xef\xbb\xbf" + text.encode()) == value
        assert json_files.parse(text, foreign=True) == value


# JSON as hostile programs write it: its signs in any order, long numbers, halves of characters, deep brackets.
SIGNS = st.lists(
    st.sampled_from(
        ["[", "]", "{", "}", ",", ":", '"', '"a"', r'"\ud83d"', r'"\ude00\ud83d"', "1", "1e400", "NaN", "null"]
    )
    | st.just("9" * 4400)
    | st.just("[" * 3000)
)


@hypothesis.given(st.text() | st.binary() | SIGNS.map("".join))
def test_any_text_is_a_value_or_one_error(text):
    for foreign in (False, True):
        try:
            value = json_files.parse(text, foreign=foreign)
        except json_files.NotJSON:
            continue
        json.dumps(value, ensure_ascii=False).encode()
        again = json_files.parse(json.dumps(value), foreign=True)
        assert json.dumps(again) == json.dumps(value)  # NaN is not equal to itself


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'"Option 1 \ud83d"', "Option 1 \ufffd"),
        (r'"\ud83d\ude00 \ude00\ud83d"', "\U0001f600 \ufffd\ufffd"),
        (b'"\xff"', "\ufffd"),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ("[1e999]", [float("inf")]),
        ("[" + "9" * 4400 + "]", [float("inf")]),
        ('["a\nb"]', ["a\nb"]),
        (r'{"\ud83d": ["\ud83d"]}', {"\ufffd": ["\ufffd"]}),
    ],
)
def test_takes_foreign_words_as_far_as_it_can(text, value):
    assert json_files.parse(text, foreign=True) == value


def test_foreign_words_have_bounds():
    with raises("too-deep", kind=json_files.NotJSON):
        json_files.parse("[" * 101 + "]" * 101, foreign=True)
    with raises("too-large", "10", kind=json_files.NotJSON):
        json_files.parse('"0123456789"', foreign=True, largest=10)


def test_as_deep_as_allowed():
    text = "[" * 100 + "]" * 100
    assert json.dumps(json_files.parse(text)) == text


def test_too_large_a_file_is_not_read(tmp_path):
    path = tmp_path / "config.json"
    with open(path, "wb") as file:
        file.truncate(json_files.LARGEST + 1)  # takes no room on disk
    with pytest.raises(InputError, match=names("config.json", "JSON", "64", "MB")):
        json_files.read(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(InputError, match=names("config.json")):
        json_files.read(tmp_path / "config.json")


def test_what_is_no_file(tmp_path):
    with pytest.raises(InputError, match=names("none.json")):
        json_files.read(tmp_path / "none.json")
    with raises("cannot-read", "Is a directory"):
        json_files.read(tmp_path)
    with pytest.raises(FileNotFoundError):
        json_files.load(tmp_path / "none.json")


def test_objects_only(tmp_path):
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(InputError, match=names("list.json", "JSON")):
        json_files.read_object(tmp_path / "list.json")


def test_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n"\u2028"\n[NaN]', encoding="utf-8")
    assert list(json_files.read_lines(path, constants=True))[:2] == [(1, {"a": 1}), (3, "\u2028")]
    with pytest.raises(InputError, match=names("4", "a.jsonl", "JSON", "NaN")):
        list(json_files.read_lines(path))
    with raises("too-large", "1", "5"):
        list(json_files.read_lines(path, largest_line=5))


def test_a_value_within_a_text():
    assert json_files.parse_at('so: {"a": "b\nc"} and more', 4) == ({"a": "b\nc"}, 16)
    with pytest.raises(json_files.NotJSON):
        json_files.parse_at('{"a":' * 50_000, 0)


@pytest.mark.parametrize("text", ["", "a", "\U0001f600", "\ud83d\ude00", "\ud83d", "a\ude00\ud83db"])
def test_well_formed(text):
    fixed = json_files.well_formed(text)
    fixed.encode("utf-8")
    assert fixed == json_files.well_formed(fixed)
    assert re.sub("[\ud800-\udfff]", "\ufffd", text) == fixed or text == "\ud83d\ude00"


def test_no_other_reader_of_json():
    others = []
    for folder in ("winobench", "launch", "configs", "benchmarks"):
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            content = path.read_text(encoding="utf-8")
            if path == pathlib.Path(json_files.__file__) or "json" not in content.replace("json_files", ""):
                continue
            for node in ast.walk(ast.parse(content)):
                name = None
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "json":
                    name = node.attr
                elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "json":
                    name = "from json import"
                elif isinstance(node, ast.Import) and any(
                    imported.name in ("orjson", "ujson", "simplejson") or (imported.name == "json" and imported.asname)
                    for imported in node.names
                ):
                    name = "another package"
                if name not in (None, "dumps", "dump"):
                    others.append(f"{path.relative_to(REPOSITORY)}:{node.lineno}: {name}")
    assert others == []
