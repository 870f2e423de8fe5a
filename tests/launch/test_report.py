"""winobench report from the command line to the page, without JAX."""

import functools
import json
import pathlib
import shlex
import shutil

import pytest

from launch import configuration, reproduce
from tests import launching
from tests.evaluation import fakes
from tests.report.conftest import Skilled, make_run
from winobench.runs import reading
from winobench.runs.run import Run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(
        Skilled(0.4), tmp_path_factory.mktemp("runs") / "one", chosen=[fakes.text_task(), fakes.square_task()]
    )


launch = functools.partial(launching.launch, "launch.report")


def test_one_run_and_two(folder, tmp_path):
    status, out, err = launch(folder, "--gallery=3", cwd=tmp_path)
    assert status == 0, err
    path = folder / "report" / "report.html"
    assert out.startswith(f"{path} (0.")
    assert "samples.csv" in out
    assert f"winobench report {folder.name} --gallery=3" in path.read_text()
    assert str(folder) not in path.read_text()

    other = shutil.copytree(folder, tmp_path / "other")
    status, out, err = launch(folder, other, "--resamples=10", "--seed=3", cwd=tmp_path)
    assert status == 0, err
    assert out.startswith("report/report.html")
    assert "seed 3" in (tmp_path / "report" / "report.html").read_text()


def test_tables_as_latex_and_markdown(folder, tmp_path):
    for name, suffix in (("latex", "tex"), ("markdown", "md")):
        status, out, err = launch(folder, f"--format={name}", "--gallery=0", "--out=out", cwd=tmp_path)
        assert status == 0, err
        assert f"tasks.{suffix}" in out
        files = sorted(path.name for path in (tmp_path / "out").iterdir())
        assert f"tasks.{suffix}" in files
        assert "tasks.csv" in files
        assert [file for file in files if file.endswith((".tex", ".md")) and not file.endswith(suffix)] == []
        page = (tmp_path / "out" / "report.html").read_text()
        assert f'<a href="tasks.{suffix}">' in page
    assert "| **Words** |" in (tmp_path / "out" / "tasks.md").read_text()


def test_what_is_no_finished_run_is_skipped_with_a_line(folder, tmp_path):
    runs_folder = tmp_path / "runs"
    shutil.copytree(folder, runs_folder / "good")
    results = pathlib.Path(shutil.copytree(folder, runs_folder / "changed")) / "results.json"
    changed = json.loads(results.read_text())
    changed["tasks"]["square"]["group"]["n"] += 1
    results.write_text(json.dumps(changed))
    (pathlib.Path(shutil.copytree(folder, runs_folder / "half")) / "results.json").unlink()
    for name in ("empty", "captions", "drawn", "other"):
        (runs_folder / name).mkdir()
    (runs_folder / "captions" / "captions.jsonl").write_text("{}")
    (runs_folder / "drawn" / "config.json").write_text('{"kind": "pictures"}')
    (runs_folder / "other" / "config.json").write_text("[]")
    (runs_folder / "notes.txt").write_text("mine")
    (runs_folder / "link").symlink_to(runs_folder / "good")
    status, out, err = launch(*sorted(runs_folder.iterdir()), "--gallery=0", cwd=tmp_path)
    assert status == 0, err
    assert out.startswith(f"{runs_folder / 'good'}/report/report.html")
    skipped = ["captions", "changed", "drawn", "empty", "half", "link", "notes.txt", "other"]
    for name, line in zip(skipped, err.strip().splitlines(), strict=True):
        assert line.startswith("skipped: ")
        assert name in line
    status, out, err = launch(runs_folder / "empty", runs_folder / "half", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: none of the 2 folders is a finished run")
    status, _, err = launch(runs_folder / "good", runs_folder / "goof", cwd=tmp_path)
    assert (status, len(err.splitlines())) == (2, 1)


def test_the_command_of_a_run_gives_its_config():
    words = {"model": "sd21-base", "sampling.num_samples": "48", "limit": "none", "sampling.timestep_range": "10,990"}
    wanted = configuration.plain(configuration.load("gdbench", words.items()))
    run = Run(pathlib.Path(), "one", {"config": json.loads(json.dumps(wanted))}, {}, {}, {}, [])
    command = shlex.split(reproduce.eval_command(run).replace("\\\n", " "))
    assert command[:3] == ["winobench", "eval", "--config=gdbench"]
    overrides = [word.removeprefix("--").split("=", 1) for word in command[3:]]
    assert configuration.plain(configuration.load("gdbench", overrides)) == wanted
    assert {field for field, _ in overrides} == set(words)


def test_a_run_that_no_launcher_made_has_no_command(folder):
    assert reproduce.eval_command(reading.read_run(folder)) is None
