"""The public names."""

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
