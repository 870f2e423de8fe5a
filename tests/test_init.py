"""The public names."""

import inspect
import re
import subprocess
import sys

import pytest

import winobench
from tests.expectations import names
from winobench.diffusion import families


def test_every_public_name_is_there():
    for name in winobench.__all__:
        assert getattr(winobench, name) is not None
    assert dir(winobench) == sorted(winobench.__all__)


def _documented():
    """(name, object) of the public functions and classes, and of the classes' own public methods."""
    for name in winobench.__all__:
        thing = getattr(winobench, name)
        if inspect.isfunction(thing) or inspect.isclass(thing):
            yield name, thing
        for method, function in vars(thing).items() if inspect.isclass(thing) else ():
            function = getattr(function, "__func__", function)
            if not re.match("_|build$", method) and inspect.isfunction(function) and function.__name__ != "<lambda>":
                yield f"{name}.{method}", function


def test_public_names_are_documented_by_the_names_of_their_arguments():
    things = dict(_documented())
    assert len(things) > 100
    assert [name for name, thing in things.items() if not thing.__doc__] == []
    for name, function in things.items():
        section = re.search(r"^ *Args:\n(.*?)(?=\n *\n|\Z)", inspect.getdoc(function), re.DOTALL | re.MULTILINE)
        if section is not None and inspect.isfunction(function):
            lines = inspect.cleandoc("\n" + section[1]).splitlines()
            named = [
                each.strip(" *`") for line in lines if line[0] != " " for each in line.partition(":")[0].split(",")
            ]
            assert set(named) <= set(inspect.signature(function).parameters), name


def test_every_family_is_public():
    classes = {place.partition(":")[2] for place in families.FAMILIES.values()}
    assert classes <= set(winobench.__all__)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match=names("'nonsense'")):
        winobench.nonsense  # noqa: B018


def test_importing_winobench_imports_nothing_heavy():
    code = "import sys, winobench; print([m for m in ('jax', 'numpy', 'flax', 'transformers') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_transformers_without_torch_gives_no_advice():
    """Advice on torch looked like a failure: it was the first line of the first run."""
    code = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
if sys.argv[1:]:
    import winobench
import transformers
"""
    alone, with_winobench = (
        subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True).stderr
        for words in ([], ["winobench"])
    )
    assert "PyTorch was not found" in alone
    assert with_winobench == ""
