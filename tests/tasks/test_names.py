"""Tasks by name: each imports its own module."""

import importlib.util
import pathlib
import re
import runpy

import pytest

from tests import launching
from winobench import tasks


def test_the_names_are_up_to_date():
    script = pathlib.Path(__file__).parents[2] / "docs" / "write_task_names.py"
    tables = list(runpy.run_path(str(script))["tables"]())
    assert len(tables) == len(tasks.packages())
    for path, content in tables:
        assert path.read_text() == content, "run python docs/write_task_names.py"
    lines = [line.split() for _, content in tables for line in content.splitlines()]
    for kinds in (("TASKS", "TEXT_TASKS"), ("DATA_SETS",), ("SOURCES",)):
        names = [name for kind, _, *declared in lines if kind in kinds for name in declared]
        assert len(names) == len(set(names))


def test_another_package_replaces_no_name(tmp_path, monkeypatch):
    (tmp_path / "names.txt").write_text("TASKS zebra winoground stripes\nTASKS\n")
    own = tasks._table(tasks.__name__)
    monkeypatch.setattr(tasks, "packages", lambda: [tasks.__name__, "zoo"])
    monkeypatch.setattr(tasks, "_table", lambda package: tmp_path / "names.txt" if package == "zoo" else own)
    modules = tasks._modules.__wrapped__()["TASKS"]
    assert (modules["winoground"], modules["stripes"]) == ("winobench.tasks.winoground", "zoo.zebra")


def test_tasks_that_need_no_prepared_data_are_ready(tmp_path):
    ready = [name for name, task in tasks.TASKS.items() if task.ready(str(tmp_path)) is None]
    assert tasks.ready_names(tasks.TASKS, str(tmp_path)) == ready


@pytest.mark.slow
def test_the_main_job_imports_at_most_35_000_lines(tmp_path):
    words = ["--config=gdbench:debug", "--limit=1", "--sampling.num_samples=1"]
    status, _, err = launching.launch_process("launch.eval", *words, cwd=tmp_path, PYTHONPROFILEIMPORTTIME="1")
    assert status == 0, err
    names = set(re.findall(r"^import time:.*\| +((?:winobench|launch|configs)\b[\w.]*)$", err, re.MULTILINE))
    paths = [pathlib.Path(importlib.util.find_spec(name).origin) for name in names]
    assert 20_000 < sum(len(path.read_text().splitlines()) for path in paths) <= 35_000
