"""winobench train from the command line to the adapters, with a small random pipeline; and what it refuses."""

import functools
import json
import pathlib
import re

import pytest
import safetensors.numpy

from tests import launching
from winobench.training.validation import MEAN

FILE = "pytorch_lora_weights.safetensors"
SETTINGS = {"num_steps": 8, "validate_every": 4}

launch = functools.partial(launching.launch, "launch.train")
start = functools.partial(launching.start, "launch.train")


@pytest.fixture(scope="module")
def words(tiny_pipeline):
    of_run = [f"--config.{name}={value}" for name, value in SETTINGS.items()]
    return ["--config=hardneg:debug", f"--config.model={tiny_pipeline}", *of_run]


@pytest.fixture(scope="module")
def whole(words, tmp_path_factory):
    """The folder of a run, and what it printed. Tests must not change it."""
    cwd = tmp_path_factory.mktemp("whole")
    status, out, err = launch(*words, cwd=cwd)
    assert status == 0, err
    (workdir,) = (cwd / "runs").glob("hardneg-*")
    return workdir, out, err


def curve(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if "per_second" not in name} for row in rows]


@pytest.mark.slow  # trains
def test_from_the_command_line_to_the_adapters(words, whole):
    workdir, out, err = whole
    assert {path.name for path in workdir.parent.iterdir() if path.is_dir()} >= {"latents"}
    assert re.fullmatch(r"hardneg-debug-tiny_pipeline.*-mixed-[0-9a-f]{8}", workdir.name)
    assert {path.name for path in workdir.iterdir()} == {
        *("config.json", "metrics.jsonl", "tensorboard", "checkpoints", "lora")
    }
    assert "training: 8 steps" in err
    assert "encoding images: 14 images" in err
    assert out.splitlines()[-1].strip().startswith("winobench eval --config=gdbench")
    assert f"--config.lora=runs/{workdir.name}/lora" in out
    adapters = {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob(FILE)}
    assert set(adapters) == {pathlib.Path("lora") / FILE, pathlib.Path("lora/last") / FILE}

    lines = (workdir / "metrics.jsonl").read_text()
    status, again, err = launch(*words, cwd=workdir.parents[1])
    assert (status, again) == (0, out), err
    assert (workdir / "metrics.jsonl").read_text() == lines
    assert {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob(FILE)} == adapters

    # Other settings have another folder; in this one they are refused, and nothing is touched.
    status, out, err = launch(*words, "--config.loss.threshold=none", f"--workdir={workdir}")
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: .* holds a run with another loss\.threshold: give its settings .*\n", err)
    assert (workdir / "metrics.jsonl").read_text() == lines


@pytest.mark.slow  # launches a process that trains; tests/training has the same with the loop alone
def test_a_killed_run_ends_with_the_adapters_of_a_whole_one(words, whole, tmp_path):
    workdir = tmp_path / "killed"
    words = [*words, f"--workdir={workdir}"]
    process = start(*words, cwd=tmp_path, devices=8)  # as many as this process has
    launching.kill(process, lambda: (workdir / "checkpoints" / "4").exists())
    assert not (workdir / "checkpoints" / "8").exists()
    status, _, err = launch(*words, cwd=tmp_path)
    assert status == 0, err
    assert curve(workdir) == curve(whole[0])
    assert sum(MEAN in row for row in curve(workdir)) == 3
    for place in ("lora", "lora/last"):
        one, two = (safetensors.numpy.load_file(folder / place / FILE) for folder in (workdir, whole[0]))
        assert all((one[name] == two[name]).all() for name in two)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config=hardneg:quick"], "hardneg comes as clevr, paper, debug, not 'quick'."),
        (["--config=clevr_tiny", "--processes=auto"], "--processes is not for --config=clevr_tiny"),
        (["--config=hardneg", "--processes=here"], "'here' is neither auto nor host:port,count,number"),
        (["--config=hardneg:paper"], "coco_hardneg_train"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(words, message, tmp_path):
    launching.refuse("launch.train", *words, named=[message], cwd=tmp_path)
    assert not list(tmp_path.iterdir())


def test_without_a_config_nothing_is_trained(tmp_path):
    named = ["--config=NAME", "clevr_tiny", "hardneg", "nli"]
    launching.refuse("launch.train", named=named, cwd=tmp_path)
    launching.refuse("launch.train", "--config.seed=3", named=named, cwd=tmp_path)
    assert not list(tmp_path.iterdir())
    status, out, err = launch("--help")
    assert (status, err) == (0, "")
    assert all(name in out for name in named)
    assert "--max_minutes" in out
