"""python -m launch.train from the command line to the adapters, with a small random pipeline; and what it refuses."""

import functools
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
import safetensors.numpy

from launch import configuration
from tests import launching
from winobench.training.validation import MEAN

ROOT = pathlib.Path(__file__).parents[2]
FILE = "pytorch_lora_weights.safetensors"


launch = functools.partial(launching.launch, "launch.train")
_launch_process = functools.partial(launching.launch_process, "launch.train")
_command = functools.partial(launching.command, "launch.train")
_environment = launching.environment


@pytest.mark.slow  # three launches, the first trains
def test_from_the_command_line_to_the_adapters(tiny_pipeline, tmp_path):
    words = ["--config=hardneg:debug", f"--config.model={tiny_pipeline}"]
    status, out, err = launch(*words, cwd=tmp_path)
    assert status == 0, err
    assert {path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()} >= {"latents"}
    (workdir,) = (tmp_path / "runs").glob("hardneg-*")
    assert re.fullmatch(r"hardneg-debug-tiny_pipeline.*-mixed-[0-9a-f]{8}", workdir.name)
    assert {path.name for path in workdir.iterdir()} == {
        *("config.json", "metrics.jsonl", "tensorboard", "checkpoints", "lora")
    }
    assert "training: 4 steps" in err
    assert "encoding images: 14 images" in err
    assert out.splitlines()[-1].strip().startswith("python -m launch.eval --config=gdbench")
    assert f"--config.lora=runs/{workdir.name}/lora" in out
    adapters = {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob(FILE)}
    assert set(adapters) == {pathlib.Path("lora") / FILE, pathlib.Path("lora/last") / FILE}

    # The same again has nothing to do, and says the same.
    lines = (workdir / "metrics.jsonl").read_text()
    status, again, err = launch(*words, cwd=tmp_path)
    assert (status, again) == (0, out), err
    assert (workdir / "metrics.jsonl").read_text() == lines
    assert {path.relative_to(workdir): path.read_bytes() for path in workdir.rglob(FILE)} == adapters

    # Other settings have another folder; in this one they are refused, and nothing is touched.
    status, out, err = launch(*words, "--config.loss.threshold=none", f"--workdir={workdir}", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: .* holds a run with another loss\.threshold: give its settings .*\n", err)
    assert (workdir / "metrics.jsonl").read_text() == lines


@pytest.mark.slow  # three launches; tests/training has the same with the loop alone
def test_a_killed_run_ends_with_the_adapters_of_a_whole_one(tiny_pipeline, tmp_path):
    words = ["--config=hardneg:debug", f"--config.model={tiny_pipeline}", "--config.num_steps=12"]
    words += ["--config.checkpoint_every=2", "--config.validate_every=4", "--config.accumulate=2"]
    status, _, err = _launch_process(*words, f"--workdir={tmp_path / 'whole'}")
    assert status == 0, err
    workdir = tmp_path / "killed"
    process = subprocess.Popen(
        _command(*words, f"--workdir={workdir}"), cwd=ROOT, env=_environment(), stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 300
        while not (workdir / "checkpoints" / "4").exists() and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait(timeout=10) == -signal.SIGKILL
    finally:
        process.kill()
    assert not (workdir / "checkpoints" / "12").exists()
    status, _, err = _launch_process(*words, f"--workdir={workdir}")
    assert status == 0, err

    def curve(folder):
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return [{name: value for name, value in row.items() if "per_second" not in name} for row in rows]

    assert curve(workdir) == curve(tmp_path / "whole")
    assert sum(MEAN in row for row in curve(workdir)) == 4
    for place in ("lora", "lora/last"):
        one, two = (safetensors.numpy.load_file(folder / place / FILE) for folder in (workdir, tmp_path / "whole"))
        assert all((one[name] == two[name]).all() for name in two)


@pytest.mark.slow  # starts three processes that each compile the step
def test_two_processes_train_as_one(tiny_pipeline, tmp_path):
    words = ["--config=hardneg:debug", f"--config.model={tiny_pipeline}", "--config.batch_size=8"]
    with socket.socket() as s:
        s.bind(("localhost", 0))
        address = f"localhost:{s.getsockname()[1]}"
    environment = _environment(devices=2)
    processes = [
        subprocess.Popen(
            _command(*words, f"--workdir={tmp_path / 'two'}", f"--processes={address},2,{number}"),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=500) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert "step 4, the last" in outputs[0][0]
    assert "exported" not in outputs[1][0]
    status, _, err = _launch_process(*words, f"--workdir={tmp_path / 'one'}")
    assert status == 0, err
    one, two = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    assert [row["step"] for row in two] == [row["step"] for row in one]
    errors = [[row["positive_error"] for row in rows if "loss" in row] for rows in (one, two)]
    np.testing.assert_allclose(*errors, rtol=1e-4)  # sums of four parts in another order
    assert [row[MEAN] for row in two if MEAN in row] == [row[MEAN] for row in one if MEAN in row]


@pytest.mark.slow  # compiles a whole step for two of them
def test_a_run_that_diverges_is_told_of_in_one_line(tiny_pipeline, tmp_path):
    words = ["--config=hardneg:debug", f"--config.model={tiny_pipeline}", "--config.validate_every=none"]
    words += ["--config.optimizer.learning_rate=100", "--config.optimizer.clip_norm=none", "--config.lora.alpha=1e6"]
    words += ["--config.checkpoint_every=100"]
    words += ["--config.optimizer.warmup_steps=0", "--config.loss.kind=none"]
    status, out, err = launch(*words, f"--workdir={tmp_path / 'run'}", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1] == (
        "error: training: the loss at step 3 is nan; there is no checkpoint in"
        f" {tmp_path / 'run' / 'checkpoints'} yet: lower the learning rate."
    )
    assert not list((tmp_path / "run").rglob(FILE))
    assert not list((tmp_path / "run" / "checkpoints").iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--config=hardneg:quick"], "hardneg comes as clevr, paper, debug, not 'quick'."),
        (["--config=hardneg", "--config.lora.rnk=2"], "no field 'lora.rnk': did you mean --config.lora.rank"),
        (["--config=hardneg", "--config.loss.kind=hard"], "kind is 'hard', but it must be one of none, random_text"),
        (["--config=hardneg", "--config.model=sd21base"], "nor one of sd21-base"),
        (["--config=clevr_tiny", "--processes=auto"], "--processes is not for --config=clevr_tiny"),
        (["--config=hardneg", "--processes=here"], "joined by auto or host:port,count,number, not by 'here'"),
        (["--config=hardneg:paper"], "coco_hardneg_train"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(words, message, tmp_path):
    status, out, err = launch(*words, cwd=tmp_path)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert message in err
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def help_text():
    """What --help prints, then the status, then which of the heavy packages were imported."""
    code = (
        "import sys, runpy\nsys.argv = ['train', '--config=hardneg', '--help']\ntry:\n"
        "    runpy.run_module('launch.train', run_name='__main__')\nexcept SystemExit as end:\n    print(end.code)\n"
        "print([name for name in ('jax', 'flax', 'transformers') if name in sys.modules])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout


def test_help_imports_nothing_heavy(help_text):
    assert help_text.splitlines()[-2:] == ["0", "[]"]
    assert "--config.loss.threshold" in help_text
    assert "--max_minutes" in help_text


def test_the_commands_of_the_help_use_known_names(help_text):
    commands = re.findall(r"python -m launch\.train (.*)", help_text)
    assert len(commands) >= 9
    for command in commands:
        (spec,) = re.findall(r"--config=(\S+)", command)
        config = configuration.load(spec, launcher="train")
        assert set(re.findall(r"--config\.(\S+)=", command)) <= set(configuration.flat(config))
