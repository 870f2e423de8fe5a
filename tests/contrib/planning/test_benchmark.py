"""The benchmarks of an accelerator, on a CPU."""

import importlib
import json
import time

import pytest
import torch

from benchmarks import gpu, scorer
from tests.expectations import raises
from winobench.base.errors import InputError


@pytest.mark.slow
def test_a_small_model(tmp_path, capsys):
    path = tmp_path / "figures.json"
    gpu.main(["--models=clevr-tiny", "--dtype=float32", "--batch_size=2", "--rounds=2", "--torch", f"--output={path}"])
    ours, theirs = json.loads(path.read_text())["results"]
    assert (ours["model"], ours["batch_size"], ours["bound"]) == ("clevr-tiny", 2, None)
    assert (theirs["model"], theirs["batch_size"], theirs["temporaries_gb"]) == ("clevr-tiny, torch", 2, None)
    for row in (ours, theirs):
        fastest, median, slowest = row["milliseconds"]
        assert 0 < fastest <= median <= slowest
    shown = capsys.readouterr().out
    assert "| clevr-tiny | 2 |" in shown
    assert "| clevr-tiny, torch | 2 |" in shown


@pytest.mark.slow
def test_everything_in_small(tmp_path, capsys, monkeypatch):
    """One of the benchmarks, in its own process. Most have slow tests themselves."""
    chosen = [item for item in gpu.ITEMS if item.name == "image_encoder"]
    monkeypatch.setattr(gpu, "ITEMS", (*chosen, gpu.Item("left_out", 60, "gpu")))
    gpu.main(["--all", str(tmp_path), "--tiny"])
    ends = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert list(ends) == ["image_encoder"]
    assert ends["image_encoder"].startswith("measured in"), ends
    [row] = json.loads((tmp_path / "image_encoder.json").read_text())["results"]
    assert row["model"] == "clevr-tiny, images"
    assert row["passes_per_second"] > 0


@pytest.mark.parametrize("words", [words for item in gpu.ITEMS for words in (item.words, item.tiny) if words])
def test_the_options_of_each_benchmark(words, monkeypatch):
    """Each benchmark takes them, and finds no GPU or begins to measure."""

    class Begun(Exception):
        pass

    def begin(*arguments, **options):
        raise Begun

    name, *options = words.split()
    module = importlib.import_module(f"benchmarks.{name}")
    for function in ("measure", "changed", "benchmark"):
        monkeypatch.setattr(module, function, begin, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(scorer, "write_pipeline", lambda *arguments: None)
    with pytest.raises((Begun, InputError)) as raised:
        module.main(options)
    assert getattr(raised.value, "code", "missing-package") == "missing-package"


def test_a_failure_ends_nothing_else(tmp_path, monkeypatch):
    """One has figures, one fails, one takes too long, and the time of the call ends before the last."""
    package = tmp_path / "benchmarks"
    package.mkdir()
    for name, body in {
        "__init__": "",
        "fails": "raise SystemExit('no such GPU')",
        "waits": "import time; print('waiting', flush=True); time.sleep(60)",
        "works": "import sys; open(sys.argv[1].removeprefix('--output='), 'w').write('{}')",
    }.items():
        (package / f"{name}.py").write_text(body)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "done.json").write_text("{}")
    items = [("done", 9, "fails"), ("bad", 9, "fails"), ("long", 0.5, "waits"), ("good", 9, "works")]
    begin = time.monotonic()
    ends = gpu.run_all(tmp_path, 30, items)
    assert time.monotonic() - begin < 20
    assert ends["done"] == "measured before"
    assert ends["bad"] == "failed, as it ended with 1: no such GPU"
    assert ends["long"].startswith("failed, as it took more than 0 s: ")
    assert ends["good"].startswith("measured in ")
    # The next call begins with what no call has tried.
    begun = []
    monkeypatch.setattr(gpu, "_run", lambda words, folder, name, limit: begun.append(name) or "failed")
    gpu.run_all(tmp_path, 30, [*items, ("new", 9, "works")])
    assert begun == ["new", "bad", "long"]
    assert gpu.run_all(tmp_path, 0, items)["bad"] == "not begun: run the command again"


def test_no_rounds():
    with raises("out-of-range", "--rounds"):
        gpu.main(["--rounds=0"])


def test_torch_has_one_family():
    with raises("unknown-family", "flux1-dev"):
        gpu.measure_torch("flux1-dev", "bfloat16", 1, 1)
