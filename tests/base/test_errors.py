"""Errors have codes that are stable over rewording, and that tests do not invent."""

import ast
import copy
import pickle
import re

import pytest

from launch import configuration
from tests import launching
from tests.expectations import raises
from winobench import InputError
from winobench.base.json_files import NotJSON
from winobench.data.sources import SourceProblems


def test_codes_are_a_few_words_with_dashes():
    codes = set()
    for room in ("winobench", "launch", "benchmarks"):
        for text in (path.read_text() for path in (launching.ROOT / room).rglob("*.py")):
            tree = ast.parse(text if re.search(r"\bcode\s*=", text) else "")
            keywords = [each for each in ast.walk(tree) if isinstance(each, ast.keyword)]
            for value in (each.value for each in keywords if each.arg == "code"):
                codes |= {each.value for each in ast.walk(value) if isinstance(each, ast.Constant)} - {None}
    assert len(codes) > 100
    assert not [code for code in codes if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", code)]


@pytest.mark.parametrize("make", [pickle.dumps, copy.copy])
@pytest.mark.parametrize(
    "error",
    [
        InputError("the file x is torn: mend it", code="torn-file"),
        NotJSON("byte 3 is not UTF-8", cut_off=True, code="not-utf8"),
        SourceProblems("2 of 3 images", ["a.png: is empty"], code="unusable-images"),
        InputError("an error without a code"),
    ],
)
def test_errors_cross_processes_with_their_codes(error, make):
    made = make(error)
    found = pickle.loads(made) if isinstance(made, bytes) else made
    assert type(found) is type(error)
    assert (str(found), vars(found)) == (str(error), vars(error))


def test_the_code_is_not_in_the_message():
    error = InputError("the file x is torn: mend it", code="torn-file")
    assert str(error) == "the file x is torn: mend it"
    assert "torn-file" not in repr(error)
    assert InputError("without").code is None


def test_raises_tells_errors_apart():
    with raises("torn-file", "x") as caught:
        raise InputError("the file x is torn: mend it", code="torn-file")
    assert caught.value.args == ("the file x is torn: mend it",)
    for wrong in (
        InputError("the file x is torn: mend it", code="no-such-file"),
        InputError("the file y is torn: mend it", code="torn-file"),
        InputError("the file x is torn:\nmend it", code="torn-file"),
    ):
        with pytest.raises(AssertionError), raises("torn-file", "x"):
            raise wrong
    with pytest.raises(ValueError, match="x is torn"), raises("torn-file", "x"):
        raise ValueError("the file x is torn")
    with pytest.raises(AssertionError), raises("not-utf8", kind=NotJSON):
        raise NotJSON("an odd byte")


def test_a_launcher_shows_no_code(capsys):
    def fail(_):
        raise InputError("the file x is torn: mend it", code="torn-file")

    with pytest.raises(SystemExit):
        configuration._guarded(fail, None)
    assert "torn-file" not in "".join(capsys.readouterr())
