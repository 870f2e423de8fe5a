"""Self-Bench on scenes of our own grammar: candidates, groups, and runs without such scenes."""

import itertools

import pytest

from tests.expectations import raises
from tests.generation import fakes
from tests.report.conftest import csv_rows, draw_nothing
from tests.report.test_generation_sections import Judge
from winobench.contrib.datasets import clevr_selfbench
from winobench.evaluation import evaluate
from winobench.prompts import grammar
from winobench.report.page import write_report
from winobench.runs.verdicts import Verdict, write_verdicts
from winobench.tasks import tasks_from


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose verdicts each test writes."""
    folder = tmp_path_factory.mktemp("drawn") / "run"
    return fakes.draw(folder, "a", "b", prompts=grammar.make_prompts(14), seeds=(1,))


def test_candidates_of_each_category():
    content = {"objects": [{"color": "red", "shape": "cube"}, {"color": "blue", "shape": "sphere"}]}
    prompt = grammar.Prompt("x", "A red cube and a blue sphere.", "pair_binding_color", content)
    assert clevr_selfbench.candidates(prompt)[1] == "A blue cube and a red sphere."
    for many in grammar.make_prompts(700):
        texts = clevr_selfbench.candidates(many)
        assert texts[0] == many.text
        assert len(texts) == len(set(texts)) == clevr_selfbench._SKILLS[many.category][0], many


def test_a_run_is_a_set_of_tasks(run):
    rows = [(record, record.prompt.text == "A red object.") for record in run.records]
    write_verdicts(run, [Verdict(record.file, record.sha256, correct) for record, correct in rows])
    tasks = {task.name: task for task in tasks_from([f"clevr_selfbench:{run.folder}"])}
    assert len(tasks) == 7
    task = tasks["clevr_selfbench_recognition_color"]
    assert (task.shape, task.chance, task.count(None)) == ((1, 8), {"accuracy": 1 / 8}, 4)
    for example in task.load(None, None):
        red = example.texts[example.target] == "A red object."
        generator = example.id.split("/")[0]
        assert example.groups == ((generator, f"{generator}, correct") if red else (generator,))
    with raises("named-twice", "'a'"):
        tasks_from([f"clevr_selfbench:{run.folder}"] * 2)


def test_prompts_must_say_what_they_want(tmp_path):
    run = fakes.draw(tmp_path / "run")
    with raises("no-content", "--prompts=clevr"):
        tasks_from([f"clevr_selfbench:{run.folder}"])


@pytest.mark.slow
def test_scorers_and_generators(tmp_path, run, monkeypatch):
    draw_nothing(monkeypatch)
    write_verdicts(run, [Verdict(r.file, r.sha256, r.number % (2 if r.model == "a" else 3) > 0) for r in run.records])
    for name in ("one", "two"):
        evaluate.evaluate(Judge(name), f"clevr_selfbench:{run.folder}", tmp_path / name, progress=False, model=name)
    page = write_report([tmp_path / "one", tmp_path / "two"], tmp_path / "report")
    assert "Whose images are understood" in page.read_text()
    rows = csv_rows(tmp_path / "report" / "generators.csv")
    generators = [f"{generator}{kept}" for generator in ("a", "b") for kept in ("", ", correct")]
    assert {(row["scorer"], row["generator"]) for row in rows} == set(itertools.product(("one", "two"), generators))
    whole = [row for row in rows if row["generator"] == "a" and row["task"] == "clevr_selfbench_spatial"]
    assert [int(row["n"]) for row in whole] == [2, 2]
