"""A report on runs with the metric of a plug-in: what was recorded is compared, what cannot be drawn is told."""

import json
import shutil

import numpy as np
import pytest

from tests.report.conftest import csv_rows
from winobench import report
from winobench.report import analysis
from winobench.runs import reading
from winobench.runs.rows import rows_of


@pytest.fixture
def renamed(run_folders, tmp_path):
    """Two runs with metrics of a package that is not installed."""
    folders = []
    for folder in run_folders[:2]:
        copied = shutil.copytree(folder, tmp_path / folder.name)
        results = json.loads((copied / "results.json").read_text())
        for task, new in (("clevr", "mine"), ("square", "own_text"), ("relations", "mine")):
            old = "text" if task == "square" else "accuracy"
            rows = results["tasks"][task]
            results["tasks"][task] = {name.replace(old, new): entry for name, entry in rows.items()}
        (copied / "results.json").write_text(json.dumps(results))
        config = json.loads((copied / "config.json").read_text())
        for task in ("clevr", "relations"):
            config["metrics"][task] = {"name": "mine", "headline": "mine", "shown": ["mine"]}
        config["metrics"]["square"].update(name="own", shown=["own_text", "image", "group"])
        (copied / "config.json").write_text(json.dumps(config))
        folders.append(copied)
    return folders


def test_rows_are_what_the_run_recorded(renamed):
    run = reading.read_run(renamed[0])
    for task in ("clevr", "relations"):
        record = run.tasks[task]
        assert (record.metric, record.shown, record.judge) == ("mine", ("mine",), None)
        rows = {row.name: row for row in rows_of(record)}
        assert list(rows) == list(record.results)
        for name, found in rows.items():
            assert found.value == pytest.approx(record.results[name]["value"])
    # Of several parts those that the run recorded under their names.
    rows = {row.name: row for row in rows_of(run.tasks["square"]) if "/" not in row.name}
    assert list(rows) == ["image", "group"]
    for name, found in rows.items():
        assert found.value == pytest.approx(run.tasks["square"].results[name]["value"])
    assert [note for note in run.notes if "not winobench's own" in note]
    part = analysis.select(run.tasks["square"], np.array([2, 0]))
    parts = run.tasks["square"].examples.parts
    assert part.examples.parts.keys() == parts.keys() == {"text", "image", "group"}
    np.testing.assert_array_equal(part.examples.parts["group"], parts["group"][[2, 0]])


@pytest.mark.usefixtures("undrawn")
def test_they_are_compared_and_shown(renamed, tmp_path):
    page = report.write_report(renamed, tmp_path / "out", gallery_examples=3)
    found = {(row["task"], row["group"], row["metric"]) for row in csv_rows(page.parent / "differences.csv")}
    assert ("clevr", "", "mine") in found
    assert ("relations", "", "macro_mine") in found
    assert "clevr" in {row["task"] for row in csv_rows(page.parent / "gallery.csv")}
    assert "not winobench&#39;s own" in page.read_text() or "not winobench's own" in page.read_text()
