"""The benchmark of an accelerator, on what there is here."""

import json

import pytest

from benchmarks import gpu
from tests.expectations import raises


@pytest.mark.slow
def test_a_small_model(tmp_path, capsys):
    path = tmp_path / "figures.json"
    gpu.main(["--models=clevr-tiny", "--dtype=float32", "--batch_size=2", "--rounds=2", f"--output={path}"])
    [found] = json.loads(path.read_text())["results"]
    assert (found["model"], found["batch_size"], found["bound"]) == ("clevr-tiny", 2, None)
    fastest, median, slowest = found["milliseconds"]
    assert 0 < fastest <= median <= slowest
    assert "| clevr-tiny | 2 |" in capsys.readouterr().out


def test_no_rounds():
    with raises("out-of-range", "--rounds"):
        gpu.main(["--rounds=0"])
