"""Tasks and scorers of another package, found through its entry points once it is installed."""

import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests import launching
from winobench import metrics

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


def _launch(site, *words, cwd, launcher="eval"):
    paths = os.pathsep.join([str(site), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", f"launch.{launcher}", *words],
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


def test_its_metric_is_counted_recorded_and_reported(site, tmp_path):
    words = ["--config=gdbench", "--config.tasks=brightness_failures", "--config.model=brightness-scorer"]
    status, out, err = _launch(site, *words, "--workdir=run", cwd=tmp_path)
    assert status == 0, err
    found = json.loads((tmp_path / "run" / "results.json").read_text())["tasks"]["brightness_failures"]
    assert {name: (entry["value"], entry["chance"]) for name, entry in found.items()} == {
        "failures": (0.0, 0.5),
        "dark/failures": (0.0, 0.5),
    }
    assert "failures" in out
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["metrics"]["brightness_failures"] == {
        "name": "failures",
        "headline": "failures",
        "shown": ["failures"],
        "higher_is_better": False,
    }
    for sites, is_installed in ((site, True), (tmp_path, False)):
        status, _, err = _launch(sites, "run", f"--out=page-{is_installed}", cwd=tmp_path, launcher="report")
        assert status == 0, err
        page = (tmp_path / f"page-{is_installed}" / "report.html").read_text()
        # No failure is the best there is, though 0 is below what chance gives.
        assert "brightness-scorer is above chance on 1 of 1 measures" in page
        assert ("nor that of an installed package" in page) == (not is_installed)


def test_a_broken_metric_is_left_out(site, tmp_path, monkeypatch):
    class Entry:
        name, value = "broken", "broken:METRIC"

        def __init__(self, load):
            self.load = load

    entries = [Entry(lambda: 5), Entry(lambda: metrics.ACCURACY), Entry(lambda: 1 / 0)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: entries)
    registry = metrics.Metrics(metrics.METRICS.data)
    with pytest.warns(UserWarning, match="adds no metric") as told:
        assert list(registry) == [
            "accuracy",
            "macro_accuracy",
            "recall",
            "winoground",
            "all_true",
            "own_texts",
            "all_answers",
        ]
    assert [str(one.message).partition(": ")[2] for one in told] == [
        "TypeError: 5 is no winobench.metrics.Metric",
        "ValueError: there is a metric 'accuracy' already",
        "ZeroDivisionError: division by zero",
    ]


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
