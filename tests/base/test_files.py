import os
import pathlib
import stat

import pytest

from tests.expectations import raises
from winobench.base import files
from winobench.data.winoviz import files as winoviz_files
from winobench.data.wscplus import files as wscplus_files
from winobench.metrics import agreement
from winobench.responders import recorded


def test_replaces_the_old_content(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")
    files.write_text(path, "neu: ü\n")
    assert path.read_bytes() == "neu: ü\n".encode()
    assert os.listdir(tmp_path) == ["a.txt"]


def test_an_error_leaves_the_old_content_and_no_rest(tmp_path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def fail_halfway():
        with files.atomic_path(path) as temporary, open(temporary, "w") as file:
            file.write("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_halfway()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_usual_rights(tmp_path):
    (tmp_path / "usual").touch()
    files.write_json(tmp_path / "a.json", {"b": 1, "a": [2]})
    usual = stat.S_IMODE(os.stat(tmp_path / "usual").st_mode)
    assert stat.S_IMODE(os.stat(tmp_path / "a.json").st_mode) == usual
    assert (tmp_path / "a.json").read_text() == '{\n  "a": [\n    2\n  ],\n  "b": 1\n}\n'


@pytest.mark.parametrize("name", ["/dev/zero", "pipe", "folder", "large"])
def test_content_is_that_of_a_regular_file_of_bounded_size(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("folder")
    with open("large", "wb") as file:
        file.truncate(files.LARGEST + 1)
    with pytest.raises(OSError, match=name):
        files.content(name)
    readers = (agreement.read_ratings, wscplus_files.read, winoviz_files.read_text, recorded._read)
    for read in readers[:3] if name == "large" else readers:  # recorded answers may be larger
        with raises("cannot-read", name):
            read(pathlib.Path(name))


def test_content_is_all_of_a_file(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"abc")
    assert files.content(path, largest=3) == b"abc"
    with pytest.raises(OSError, match="2 bytes"):
        files.content(path, largest=2)
