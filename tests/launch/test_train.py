"""winobench train from the command line to the adapters, with a small random pipeline; and what it refuses."""

import functools
import json
import pathlib
import re

import pytest

from tests import launching

FILE = "pytorch_lora_weights.safetensors"

launch = functools.partial(launching.launch, "launch.train")


@pytest.mark.slow  # trains
def test_from_the_command_line_to_the_adapters(tiny_pipeline, tmp_path):
    """That a killed run ends with the same adapters is in tests/training: test_loop and test_hardneg."""
    words = ["--config=hardneg:debug", f"--model={tiny_pipeline}", "--loss.kind=hard_text"]
    status, out, err = launch(*words, cwd=tmp_path)
    assert status == 0, err
    (workdir,) = (tmp_path / "runs").glob("hardneg-*")
    assert {path.name for path in workdir.parent.iterdir() if path.is_dir()} >= {".latents"}
    assert re.fullmatch(r"hardneg-debug-tiny_pipeline.*-hard_text-[0-9a-f]{8}", workdir.name)
    assert {path.name for path in workdir.iterdir()} == {
        *("config.json", "metrics.jsonl", "tensorboard", "checkpoints", "lora")
    }
    assert "training: 4 steps" in err
    assert "encoding images: 14 images" in err
    assert out.splitlines()[-1].strip().startswith("winobench eval --config=gdbench")
    assert f"--lora=runs/{workdir.name}/lora" in out
    adapters = {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob(FILE)}
    assert set(adapters) == {pathlib.Path("lora") / FILE, pathlib.Path("lora/last") / FILE}

    lines = (workdir / "metrics.jsonl").read_text()
    status, again, err = launch(*words, "--name=mine", cwd=tmp_path)
    assert (status, again) == (0, out), err
    assert json.loads((workdir / "config.json").read_text())["name"] == "mine"
    assert (workdir / "metrics.jsonl").read_text() == lines
    assert {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob(FILE)} == adapters

    # Other settings have another folder; in this one they are refused, and nothing is touched.
    status, out, err = launch(*words, "--loss.threshold=none", f"--workdir={workdir}")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: .* holds a run with another loss\.threshold: give its settings .*\n", err)
    assert (workdir / "metrics.jsonl").read_text() == lines


def test_without_a_config_nothing_is_trained(tmp_path):
    named = ["--config=NAME", "hardneg"]
    launching.refuse("launch.train", named=named, cwd=tmp_path)
    launching.refuse("launch.train", "--seed=3", named=named, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
    status, out, err = launch("--help")
    assert (status, err) == (0, "")
    assert all(name in out for name in named)
    assert "--max_minutes" in out
