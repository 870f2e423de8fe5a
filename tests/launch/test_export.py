"""winobench export from the command line."""

import csv
import functools
import io

import pytest

import winobench
from tests import launching
from tests.evaluation import fakes
from tests.report.conftest import Skilled, make_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_run(Skilled(0.4), tmp_path_factory.mktemp("runs") / "one", chosen=[fakes.text_task()])


launch = functools.partial(launching.launch, "launch.export")


def test_text_goes_to_the_terminal_or_to_a_file(folder, tmp_path):
    run = winobench.read_run(folder)
    assert launch(folder, cwd=tmp_path) == (0, run.table("csv"), "")
    status, out, _ = launch(folder, "--groups", cwd=tmp_path)
    assert status == 0
    assert len(list(csv.DictReader(io.StringIO(out)))) == len(run.tasks["words"].results)
    assert launch(folder, "--format=latex", "--out=t.tex", cwd=tmp_path) == (0, "t.tex\n", "")
    assert (tmp_path / "t.tex").read_text() == run.table("latex")
    for name, said in (("model-card", "## Evaluation with winobench"), ("eval-results", "model-index:")):
        status, out, _ = launch(folder, f"--format={name}", cwd=tmp_path)
        assert (status, out.splitlines()[0]) == (0, said)


def test_a_training_is_skipped_by_its_kind(folder, tmp_path):
    (tmp_path / "hardneg").mkdir()
    (tmp_path / "hardneg" / "config.json").write_text('{"recipe": "hardneg", "model": "clevr-tiny"}')
    status, out, err = launch(tmp_path / "hardneg", folder)
    assert (status, out) == (0, winobench.read_run(folder).table("csv"))
    assert err.startswith("skipped: ")
    assert "is a training by the recipe 'hardneg', not an evaluation" in err


def test_a_folder_of_runs_is_its_runs(tmp_path):
    folders = [make_run(Skilled(0.4), tmp_path / "b", chosen=[fakes.text_task()]), tmp_path / "ä c"]
    tasks, workdir = "--tasks=winoviz_mini_single", f"--workdir={folders[1]}"
    text = ("--config=winoviz", "--model=recorded:example", tasks, "--limit=6", workdir)
    assert launching.launch("launch.eval", *text)[0] == 0
    (tmp_path / "no run").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{")
    status, out, err = launch(tmp_path)
    assert (status, out) == launch(*folders)[:2]
    assert {row["task"] for row in csv.DictReader(io.StringIO(out))} == {"words", "winoviz_mini_single"}
    assert (err.count("\n"), "skipped: " in err, str(tmp_path / "broken") in err) == (1, True, True)
    launching.refuse("launch.export", tmp_path / "no run", named=["config.json"])


def test_a_folder_that_is_not_a_run_is_named_and_the_others_are_written(folder, tmp_path):
    (tmp_path / "other").mkdir()
    status, out, err = launch(tmp_path / "other", folder)
    assert (status, out) == (0, winobench.read_run(folder).table("csv"))
    assert (err.count("\n"), str(tmp_path / "other") in err) == (1, True)
