"""Runs print in a few lines, and as tables."""

import csv
import io
import pathlib

import pytest

import winobench
from tests.expectations import raises
from tests.report.conftest import HOSTILE
from winobench.prompts.prompt_files import Prompt
from winobench.runs.image_runs import GeneratingModel, Images
from winobench.runs.run import Run, TaskRun


@pytest.fixture(scope="module")
def run(run_folders):
    return winobench.read_run(run_folders[0])


def test_it_prints_in_a_few_lines(run):
    lines = repr(run).splitlines()
    assert lines[0] == f"<Run of clevr-tiny, 6 tasks, in {run.path}>"
    entry = run.tasks["clevr"].results["accuracy"]
    numbers = [f"{100 * entry[key]:.1f}" for key in ("value", "low", "high")]
    assert lines[1] == "  clevr: accuracy {}% ({} to {})".format(*numbers)
    assert lines[-1] == "  and 2 more tasks: print(run.table())"
    assert len(lines) == 6
    assert len(repr(run.tasks)) < 1_000
    assert "16 examples" in repr(run.tasks["clevr"])
    assert len(repr(run.tasks["clevr"].examples)) < 100


def test_a_table_has_a_row_a_result(run):
    rows = list(csv.DictReader(io.StringIO(run.table("csv", groups=True))))
    assert {(row["task"], f"{row['group']}/{row['metric']}".lstrip("/")) for row in rows} == {
        (task, name) for task, record in run.tasks.items() for name in record.results
    }
    for row in rows:
        entry = run.tasks[row["task"]].results[f"{row['group']}/{row['metric']}".lstrip("/")]
        assert float(row["value"]) == entry["value"]
        assert int(row["n"]) == entry["n"]
    assert not any(row["group"] for row in csv.DictReader(io.StringIO(run.table("csv"))))
    text = run.table()
    assert "clevr" in text
    assert f"{100 * run.tasks['clevr'].results['accuracy']['value']:.1f}%" in text  # effect sizes are in it, too
    assert f"{run.tasks['mmbias'].results['Even-Odd']['value']:.2f} " in text
    assert HOSTILE not in run.table("markdown", groups=True)
    assert r"\begin{tabular}{llrrrrr}" in run.table("latex")
    with raises("unknown-name", "'html'"):
        run.table("html")


def test_a_notebook_shows_the_table(run):
    page = run._repr_html_()
    assert "<table>" in page
    assert "clevr" in page
    assert "<script" not in page
    hostile = Run(pathlib.Path("<b>"), "", {"model": HOSTILE}, {}, {}, {HOSTILE: "why"}, [])
    assert "<script" not in hostile._repr_html_()
    assert "<b>" not in hostile._repr_html_()
    assert "1 failed one" in repr(hostile)


def test_proportions_alone_have_their_unit_above():
    entry = {"value": 0.5, "low": 0.25, "high": 0.75, "chance": None, "n": 1_000, "ties": 0}
    record = TaskRun("one", {"accuracy": entry}, "accuracy", ("accuracy",), 1.0, {}, None, None, None, True)
    run = Run(pathlib.Path("folder"), "", {"model": "m"}, {}, {"one": record}, {}, [])
    assert run.table().splitlines()[2].split() == ["one", "accuracy", "50.0", "25.0", "to", "75.0", "1,000"]
    assert run.table().splitlines()[0].split()[2] == "%"
    assert repr(record) == "<TaskRun one: accuracy 50.0% (25.0 to 75.0), no table of examples>"
    many = Run(pathlib.Path("folder"), "", {"model": "m"}, {}, {f"t{n}": record for n in range(60)}, {}, [])
    assert "and 20 more rows" in many._repr_html_()
    assert len(repr(many).splitlines()) == 6


def test_images_print_in_a_line():
    models = tuple(GeneratingModel(f"m{number}", f"m{number}", None, None, {}) for number in range(5))
    prompts = tuple(Prompt(str(number), "a cat") for number in range(1_000))
    images = Images(pathlib.Path("folder"), models, prompts, (0, 1), (), {})
    assert repr(images) == ("<Images of m0, m1, m2 and 2 more: 0 images, 1,000 prompts, 2 seeds, in folder>")
