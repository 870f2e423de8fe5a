"""GGUF files that state more than they hold end with an error at once, whatever they state."""

import struct

import pytest

from tests.expectations import raises
from winobench.contrib.model_files import gguf_files

pytest.importorskip("gguf")
_U8, _STRING, _ARRAY = 0, 8, 9
_MANY = 2**60


def _text(text):
    return struct.pack("<Q", len(text)) + text.encode()


def _file(*parts, tensors=1, fields=1):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, fields) + b"".join(parts) + b"\0" * 256


def _array(kind, count):
    return _text("a") + struct.pack("<IIQ", _ARRAY, kind, count)


_TENSOR = _text("model.w") + struct.pack("<IQIQ", 1, 2, 0, 0)


@pytest.mark.parametrize(
    "content",
    [
        _file(_array(_U8, _MANY), _TENSOR),
        _file(_array(_STRING, _MANY), _TENSOR),
        _file(_array(_ARRAY, 1), struct.pack("<IQ", _U8, _MANY), _TENSOR),
        _file(_array(_ARRAY, 2), *[struct.pack("<IQ", _ARRAY, 2)] * 4000),
        _file(_text("a") + struct.pack("<IQ", _STRING, _MANY), _TENSOR),
        _file(struct.pack("<Q", _MANY), _TENSOR),
        _file(_TENSOR, fields=_MANY),
        _file(_TENSOR, fields=0, tensors=_MANY),
        _file(_text("model.w") + struct.pack("<IQQIQ", 2, 2**40, 2**23, 0, 0), fields=0),
        _file(_text("model.w") + struct.pack("<I", 2**31), fields=0),
        _file(_text("model.w") + struct.pack("<IQIQ", 1, 2, 0, _MANY), fields=0),
        b"GGUF",
        b"",
    ],
)
def test_counts_are_bounded_by_the_file(tmp_path, content):
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with raises("damaged-file", "model.gguf"):
        gguf_files.read(str(path))


def test_an_array_in_the_metadata_is_read(tmp_path):
    path = tmp_path / "model.gguf"
    content = _file(_array(_U8, 3), b"\1\2\3", _TENSOR)
    path.write_bytes(content)
    tensors = gguf_files.read(str(path))
    assert {name: tensor.shape for name, tensor in tensors.items()} == {"model.w": (2,)}
