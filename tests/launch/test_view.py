"""The viewer from the command line: its address, its end, and what it refuses."""

import signal

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
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out.strip(), err) == (0, "", "")
