import os
import stat

import pytest

from winobench import files


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
