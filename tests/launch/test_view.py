"""The viewer from the command line: its address, its end, and what it refuses."""

import signal

import pytest

from tests import launching
from tests.web.asking import Address, ask_for_all


def test_it_prints_its_address_and_ends_quietly(tmp_path):
    (tmp_path / "runs").mkdir()
    process = launching.start("launch.view", "runs", "--port=0", cwd=tmp_path)
    try:
        address, *said = process.stdout.readline().split()
        assert said == ["shows", "runs"]
        assert "Ctrl-C" in process.stdout.readline()
        status, _, headers = ask_for_all(Address.parse(address), "GET", "/")
        assert (status, headers["Location"]) == (303, "./")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, out.strip(), err) == (0, "", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no folder is named"),
        (["absent"], "absent does not exist: name a folder"),
        (["file"], "file is a file: name a folder"),
        ([".", "--port=1", "--bundle=site"], "leave out --port"),
        ([".", "--bundle="], "--bundle"),
        ([".", "--prot=1"], "did you mean --port?"),
        ([".", "--bundle=site"], "hold no run"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, words, said):
    (tmp_path / "file").write_text("")
    launching.refuse("launch.view", *words, named=[said], cwd=tmp_path)
    assert not (tmp_path / "site").exists()
