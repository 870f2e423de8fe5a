"""Sections on generated images: who judges whose, and whether models generate what they understand."""

import itertools

import numpy as np
import pytest

from tests.evaluation import fakes as scoring_fakes
from tests.generation import fakes
from tests.report.conftest import csv_rows
from winobench import report
from winobench.evaluation import evaluate
from winobench.generation.generate import draw_pictures
from winobench.prompts import grammar
from winobench.runs.verdicts import Verdict, write_verdicts
from winobench.tasks.base import Example

pytestmark = pytest.mark.usefixtures("undrawn")


class Judge:
    """Scores by the number of red pixels; it is the model of a fake pipeline."""

    def __init__(self, name):
        self.name = name

    def fingerprint(self):
        return {"scorer": "judge", "model": fakes.FakePipeline(self.name).fingerprint}

    def score(self, images, texts):
        return np.array([[float(np.asarray(image)[0, 0, 0]) * (len(text) % 7) for text in texts] for image in images])


def scenes():
    """A task like clevr: two captions of an image, by sub-task."""
    skills = [name for name in grammar.CATEGORIES if name != "counting"]
    rng = np.random.default_rng(0)
    examples = [
        Example(f"{skill}-{n}", (rng.integers(0, 255, (4, 4, 3), np.uint8),), (f"a{'b' * n}", "other one"), 0, (skill,))
        for skill in skills
        for n in range(5)
    ]
    return scoring_fakes.make_task("clevr", "accuracy", (1, 2), {"accuracy": 0.5}, lambda data_dir, limit: examples)


@pytest.fixture
def drawn(tmp_path):
    drawers = [fakes.drawer(fakes.FakePipeline(name)) for name in ("one", "two")]
    run = draw_pictures(drawers, grammar.make_prompts(42), tmp_path / "drawn", progress=False)
    write_verdicts(
        run.folder, [Verdict(r.file, r.sha256, r.number % (2 if r.model == "one" else 3) > 0) for r in run.records]
    )
    return run


@pytest.mark.slow
def test_a_model_that_judges_and_draws_is_a_point_for_each_skill(tmp_path, drawn):
    for name in ("one", "two", "three"):
        evaluate.evaluate(Judge(name), [scenes()], tmp_path / name, progress=False, model=name)
    page = report.write_report(
        [tmp_path / name for name in ("one", "two", "three")], tmp_path / "report", drawn=[drawn.folder]
    )
    assert "Does it generate what it understands?" in page.read_text()
    rows = csv_rows(tmp_path / "report" / "generation.csv")
    # Three has drawn nothing; counting is no sub-task.
    assert {row["run"] for row in rows} == {"one", "two"}
    assert len(rows) == 12
    for row in rows:
        of_model = [r for r in drawn.records if r.model == row["run"] and r.prompt.category == row["skill"]]
        expected = np.mean([r.number % (2 if row["run"] == "one" else 3) > 0 for r in of_model])
        assert float(row["drawn_value"]) == pytest.approx(expected)
        assert int(row["judged_n"]) == 5
    assert (tmp_path / "report" / "generation.png").is_file()


@pytest.mark.slow
def test_scorers_and_drawers(tmp_path, drawn):
    for name in ("one", "two"):
        evaluate.evaluate(Judge(name), f"clevr_selfbench:{drawn.folder}", tmp_path / name, progress=False, model=name)
    page = report.write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "report")
    assert "Whose images are understood" in page.read_text()
    rows = csv_rows(tmp_path / "report" / "drawers.csv")
    drawers = [f"{drawer}{kept}" for drawer in ("one", "two") for kept in ("", ", correct")]
    assert {(row["scorer"], row["drawer"]) for row in rows} == set(itertools.product(("one", "two"), drawers))
    whole = [row for row in rows if row["drawer"] == "one" and row["task"] == "clevr_selfbench_spatial"]
    assert [int(row["n"]) for row in whole] == [6, 6]
