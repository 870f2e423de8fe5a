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

# What is called with the code of an error, which the last two hand on.
_ERRORS = {
    "InputError",
    "NotJSON",
    "ImageProblem",
    "SourceError",
    "SourceProblems",
    "DivergenceError",
    "wrong",
    "_Problem",
}


def _constants(node):
    return {each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)}


def _called(call):
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", None)


def _trees(*rooms):
    for room in rooms:
        for path in sorted((launching.ROOT / room).rglob("*.py")):
            yield path, ast.parse(path.read_text())


def codes_of(tree):
    """The codes that a module gives its errors, also by way of a variable or the default of a parameter."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _called(node) in _ERRORS:
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            values += node.args[1:] if _called(node) == "wrong" and isinstance(node.func, ast.Attribute) else []
            found.update(*map(_constants, values))
        elif isinstance(node, ast.Assign):
            for target, value in _pairs(node):
                if isinstance(target, ast.Name) and target.id == "code":
                    found |= _constants(value)
        elif isinstance(node, ast.FunctionDef):
            for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
                if argument.arg == "code" and default is not None:
                    found |= _constants(default)
    return found


def _pairs(node):
    (target,) = node.targets[:1]
    if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
        return list(zip(target.elts, node.value.elts, strict=False))
    return [(target, node.value)]


@pytest.fixture(scope="module")
def codes():
    found = {}
    for path, tree in _trees("winobench", "launch", "benchmarks"):
        for code in codes_of(tree):
            found.setdefault(code, []).append(path.name)
    return found


def test_codes_are_a_few_words_with_dashes(codes):
    assert len(codes) > 100
    assert not [code for code in codes if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", code)]


def test_codes_that_tests_expect_are_those_of_the_source(codes):
    """Those that a call of `raises` has as it stands; what is in a table of cases, its test compares with the error."""
    unknown = []
    num_known = 0
    for path, tree in _trees("tests"):
        own = codes_of(tree)  # of errors that the tests themselves raise
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _called(node) == "raises" and isinstance(node.func, ast.Name):
                expected = node.args[0]
                if isinstance(expected, ast.Constant):
                    known = expected.value in codes or expected.value in own
                    num_known += known
                    unknown += [] if known else [f"{path.name}:{node.lineno}: {expected.value}"]
    assert not unknown
    assert num_known > 200


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
