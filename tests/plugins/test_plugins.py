"""Tasks and scorers of another package, found through its entry points once it is installed."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests import launching

PACKAGE = pathlib.Path(__file__).parent / "package"
ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that the package has been installed into by pip."""
    site = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source")
    for path in PACKAGE.iterdir():
        if path.is_file():
            (source / path.name).write_bytes(path.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, timeout=300)
    return site


def _launch(site, *words, cwd):
    paths = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "launch.eval", *words],
        env=launching.environment(PYTHONPATH=paths),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_an_installed_package_is_listed(site, tmp_path):
    status, out, err = _launch(site, "--list_tasks", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert "brightness (version 1)\n    Is a plain grey picture bright or dark?\n" in out
    assert "data: ready, 16 examples" in out
    status, out, err = _launch(site, "--list_models", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert "brightness-scorer" in out
    assert "plugged in (winobench_brightness:BrightnessScorer)" in out


def test_its_task_is_evaluated_with_its_scorer(site, tmp_path):
    words = ["--config=gdbench", "--config.tasks=brightness", "--config.model=brightness-scorer", "--workdir=run"]
    status, out, err = _launch(site, *words, cwd=tmp_path)
    assert status == 0, err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["tasks"]["brightness"]["accuracy"]["value"] == 1.0
    assert results["tasks"]["brightness"]["accuracy"]["n"] == 16
    assert results["tasks"]["brightness"]["dark/accuracy"]["n"] == 8
    assert results["passes"] == 32
    assert "brightness" in out
    status, _, err = _launch(site, *words, "--config.error=l2", cwd=tmp_path)
    assert status == 2
    assert err == "error: error is an option of diffusion models, but 'brightness-scorer' is none: leave it out\n"


def test_a_broken_package_takes_no_other_task_away(site, tmp_path):
    broken = tmp_path / "site" / "broken-1.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_text("[winobench.tasks]\nbroken = no_such_module:TASK\n")
    both = os.pathsep.join([str(site), str(tmp_path / "site")])
    status, out, err = _launch(both, "--list_tasks", cwd=tmp_path)
    assert status == 0
    assert "brightness (version 1)" in out
    assert "the entry point 'broken' (no_such_module:TASK) adds no tasks: ModuleNotFoundError" in err
