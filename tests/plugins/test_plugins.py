"""Tasks and scorers of another package, found through its entry points once it is installed."""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest

from tests import launching
from tests.expectations import raises
from winobench import Example, metrics, tasks
from winobench.base import registry
from winobench.evaluation import contracts, plan

PACKAGE = pathlib.Path(__file__).parent / "package"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder that the package has been installed into by pip."""
    site = tmp_path_factory.mktemp("site")
    source = shutil.copytree(PACKAGE, tmp_path_factory.mktemp("source") / "package")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(site), str(source)], check=True, timeout=300)
    return site


def forget():
    tasks._plugged_in.cache_clear()
    registry.plugged_in.cache_clear()
    metrics.METRICS.__dict__.pop("_plugged_in", None)


@contextlib.contextmanager
def installed(site):
    """The package can be imported within the block, as if this process had begun with it."""
    with mock.patch.object(sys, "path", [str(site), *sys.path]):
        forget()
        yield
    forget()


@pytest.mark.slow
def test_an_installed_package_is_listed_and_a_broken_one_takes_nothing_away(site, tmp_path):
    broken = tmp_path / "site" / "broken-1.dist-info"
    broken.mkdir(parents=True)
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1\n")
    (broken / "entry_points.txt").write_text("[winobench.tasks]\nbroken = no_such_module:TASK\n")
    paths = os.pathsep.join(map(str, (site, broken.parent, launching.ROOT)))
    status, out, err = launching.launch_process(
        "launch.eval", "--list_tasks=brightness", cwd=tmp_path, PYTHONPATH=paths
    )
    assert status == 0
    assert "brightness (version 1)\n    Is a plain grey picture bright or dark?\n" in out
    assert "data: ready, 16 questions" in out
    cause = "the entry point 'broken' (no_such_module:TASK) of the package broken adds no tasks: ModuleNotFoundError"
    assert cause in err
    assert "brightness" not in err
    words = ["--tasks=brokn", "--limit=1"]
    status, out, err = launching.launch_process("launch.eval", *words, cwd=tmp_path, PYTHONPATH=paths)
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: task 'brokn' is unknown: ")
    assert cause in err.splitlines()[-1]
    with installed(site):
        status, out, err = launching.launch("launch.eval", "--list_models", cwd=tmp_path)
    assert (status, err) == (0, "")
    assert re.search(r"^  brightness-scorer +ready +plugged in \(winobench_brightness:", out, re.M)


WORDS = ["--config=gdbench", "--tasks=brightness,brightness_failures", "--model=brightness-scorer"]
WORDS += ["--workdir=run"]


@pytest.fixture(scope="module")
def evaluated(site, tmp_path_factory):
    """The folder that holds the run of both tasks, and what the launch printed."""
    folder = tmp_path_factory.mktemp("evaluated")
    with installed(site):
        status, out, err = launching.launch("launch.eval", *WORDS, cwd=folder)
    assert status == 0, err
    return folder, out


def test_its_task_is_evaluated_with_its_scorer(site, evaluated):
    folder, out = evaluated
    results = json.loads((folder / "run" / "results.json").read_text())
    assert results["tasks"]["brightness"]["accuracy"]["value"] == 1.0
    assert results["tasks"]["brightness"]["accuracy"]["n"] == 16
    assert results["tasks"]["brightness"]["dark/accuracy"]["n"] == 8
    assert results["passes"] == 32
    assert "brightness" in out
    with installed(site):
        status, _, err = launching.launch("launch.eval", *WORDS, "--error=l2", cwd=folder)
    assert status == 2
    assert err == "error: error is an option of diffusion models, but 'brightness-scorer' is none: leave it out\n"


def test_its_metric_is_counted_recorded_and_reported(site, evaluated):
    folder, out = evaluated
    found = json.loads((folder / "run" / "results.json").read_text())["tasks"]["brightness_failures"]
    assert {name: (entry["value"], entry["chance"]) for name, entry in found.items()} == {
        "failures": (0.0, 0.5),
        "dark/failures": (0.0, 0.5),
    }
    assert "failures" in out
    config = json.loads((folder / "run" / "config.json").read_text())
    expected = {"name": "failures", "headline": "failures", "shown": ["failures"], "higher_is_better": False}
    assert config["metrics"]["brightness_failures"] == expected
    for is_installed in (True, False):
        with installed(site) if is_installed else contextlib.nullcontext():
            status, _, err = launching.launch("launch.report", "run", f"--out=page-{is_installed}", cwd=folder)
        assert status == 0, err
        page = (folder / f"page-{is_installed}" / "report.html").read_text()
        # No failure is the best there is, though 0 is below what chance gives.
        assert "brightness-scorer is above chance on 2 of 2 measures" in page
        assert ("nor that of an installed package" in page) == (not is_installed)


class _Entry:
    def __init__(self, name, load):
        self.name, self.value, self.load = name, f"package:{name}", load


def _raising(error):
    def fail(*_):
        raise error

    return fail


@pytest.fixture
def plugged_in(monkeypatch):
    """A function that plugs in entry points; the tasks are read again."""

    def plug_in(*entries):
        monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: list(entries))
        forget()

    yield plug_in
    monkeypatch.undo()
    forget()


def test_a_broken_metric_is_left_out(plugged_in):
    plugged_in(_Entry("five", lambda: 5), _Entry("accuracy", lambda: metrics.ACCURACY), _Entry("broken", lambda: 1 / 0))
    with pytest.warns(UserWarning, match="adds no metric") as told:
        assert set(metrics.METRICS) == metrics.METRICS.data.keys()
    assert [str(one.message).partition(": ")[2] for one in told] == [
        "ValueError: there is a metric 'accuracy' already",
        "ZeroDivisionError: division by zero",
        "TypeError: 5 is not a winobench.metrics.Metric",
    ]


def test_a_metric_that_is_missing_names_the_plug_in_that_failed(plugged_in, tmp_path):
    plugged_in(_Entry("broken", lambda: 1 / 0))
    task = dataclasses.replace(tasks.get_task("clevr_image"), metric="mine")
    with pytest.warns(UserWarning, match="adds no metric"), raises("broken-plug-in", "'mine'", "ZeroDivisionError"):
        contracts.check_task(task)


@pytest.mark.parametrize("fields", [{"shape": (0, 2)}, {"shape": "12"}, {"version": "one"}])
def test_a_task_with_fields_of_other_types_is_left_out(plugged_in, fields):
    task = dataclasses.replace(tasks.get_task("clevr_image"), name="odd", **fields)
    plugged_in(_Entry("odd", lambda: task))
    with pytest.warns(UserWarning, match=f"'odd'.*{next(iter(fields))}"):
        assert "odd" not in tasks.TASKS


def test_a_fingerprint_that_is_no_text_is_refused(plugged_in):
    """Recorded errors would be taken for those of other data."""
    task = dataclasses.replace(
        tasks.get_task("clevr_image"), name="odd", data_fingerprint=lambda *_: b"x", count=_raising(SystemExit(3))
    )
    plugged_in(_Entry("odd", lambda: task))
    with raises("broken-plug-in", "'odd'", "b'x'"):
        tasks.get_task("odd").data_fingerprint(None, None)
    assert tasks.get_task("odd").count(None) is None


@pytest.mark.parametrize("error", [SystemExit(0), ImportError("no module 'x'")])
def test_a_plug_in_that_fails_on_import_takes_nothing_away(plugged_in, error):
    plugged_in(_Entry("odd", _raising(error)), _Entry("none", lambda: None), _Entry("number", lambda: [5]))
    with pytest.warns(UserWarning, match="adds no tasks") as caught:
        assert "clevr" in tasks.TASKS
    assert [str(warning.message).split("'")[1] for warning in caught] == ["none", "number", "odd"]
    with pytest.warns(UserWarning, match="adds no metric"):
        assert set(metrics.METRICS) == metrics.METRICS.data.keys()
    with raises("broken-plug-in", "'odd'", type(error).__name__):
        registry.make_plugged_in("odd")
    plugged_in(_Entry("empty", lambda: lambda: None))
    with raises("broken-plug-in", "'empty'", "None"):
        registry.make_plugged_in("empty")


def _load(data_dir, limit):
    return [Example("one", (np.zeros((8, 8, 3), np.uint8),), ("a", "b"))]


@pytest.mark.parametrize(
    ("load", "code", "word"),
    [
        (_raising(SystemExit(3)), "broken-plug-in", "SystemExit"),
        (lambda *_: None, "bad-example", "None"),
        (lambda *_: [None], "bad-example", "None"),
        (lambda *_: (1 / zero for zero in (0,)), "broken-plug-in", "ZeroDivisionError"),
    ],
)
def test_a_task_that_does_not_load_fails_alone(plugged_in, load, code, word):
    task = dataclasses.replace(tasks.get_task("clevr_image"), name="odd", load=load, ready=_raising(OSError("gone")))
    plugged_in(_Entry("odd", lambda: task))
    found = tasks.get_task("odd")
    assert "gone" in found.ready(None)
    sound = dataclasses.replace(tasks.get_task("clevr_image"), name="sound", load=_load)
    failed = {}
    made = plan.make_plan([found, sound], data_dir=None, limit=1, normalize="none", failed=failed)
    assert list(made.questions) == ["sound"]
    assert failed["odd"].code == code
    assert "'odd'" in str(failed["odd"])
    assert word in str(failed["odd"])
