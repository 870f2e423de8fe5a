"""Names of devices that are not available."""

import pytest

from tests.expectations import raises
from winobench.base.accelerators import ACCELERATORS
from winobench.planning import topologies


@pytest.mark.parametrize(
    ("text", "name", "shape"),
    [("v5e:4x4", "v5e", (4, 4)), ("v5p:2x2x1", "v5p", (2, 2, 1)), ("h100:8", "h100", (8,)), ("l4", "l4", (1,))],
)
def test_names(text, name, shape):
    assert topologies.parse(text) == (ACCELERATORS[name], shape)


@pytest.mark.parametrize(
    "text", ["", "h1000:8", "h100:0", "h100:8x8", "v5e:4", "v5p:2x2", "v5e:4x", "h100:-1", "l4: 1"]
)
def test_names_without_sense(text):
    with raises("unknown-accelerator"):
        topologies.parse(text)


def test_too_many():
    with raises("too-many-devices", "8,192"):
        topologies.parse("h100:10000")


def test_without_a_compiler(monkeypatch):
    monkeypatch.setattr(topologies.importlib.util, "find_spec", lambda name: None)
    with raises("missing-package", "libtpu", "winobench[tpu]"):
        topologies.find("v5e:2x2")
    with raises("missing-package", "CUDA"):
        topologies.find("h100:8")
