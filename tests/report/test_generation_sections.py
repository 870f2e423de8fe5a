"""Sections on generated images: who judges whose, and whether models generate what they understand."""

import dataclasses

import numpy as np
import PIL.Image
import pytest

from tests.evaluation import fakes as scoring_fakes
from tests.generation import fakes
from tests.report.conftest import csv_rows
from tests.rubrics.test_geneval2 import ROWS, write
from winobench import report
from winobench.evaluation import evaluate
from winobench.generation import judged
from winobench.generation.collecting import collect_images
from winobench.generation.generate import generate_images
from winobench.prompts import grammar
from winobench.prompts.named_sets import read_prompts
from winobench.rubrics.named_rubrics import RUBRICS
from winobench.runs import judgements
from winobench.runs.image_records import ImageStore, MissingImage
from winobench.runs.image_runs import read_images
from winobench.runs.reading import read_run
from winobench.runs.verdicts import Verdict, write_verdicts
from winobench.tasks.base import SKILLS, Example

pytestmark = pytest.mark.usefixtures("undrawn")


class Judge:
    """Scores by the number of red pixels; it is the model of a fake pipeline."""

    def __init__(self, name):
        self.name = name

    kind = "judge"

    def fingerprint(self):
        return {"scorer": self.kind, "model": fakes.FakePipeline(self.name).fingerprint}

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
    generators = [fakes.generator(fakes.FakePipeline(name)) for name in ("one", "two")]
    run = generate_images(generators, grammar.make_prompts(42), tmp_path / "drawn", progress=False)
    write_verdicts(run, [Verdict(r.file, r.sha256, r.number % (2 if r.model == "one" else 3) > 0) for r in run.records])
    return run


@pytest.mark.slow
def test_a_model_that_judges_and_draws_is_a_point_for_each_skill(tmp_path, drawn):
    for name in ("one", "two", "three"):
        evaluate.evaluate(Judge(name), [scenes()], tmp_path / name, progress=False, model=name)
    page = report.write_report(
        [tmp_path / name for name in ("one", "two", "three")], tmp_path / "report", images=[drawn.folder]
    )
    assert "Does it generate what it understands?" in page.read_text()
    rows = csv_rows(tmp_path / "report" / "generation.csv")
    # Three has drawn nothing; counting is no sub-task.
    assert {row["run"] for row in rows} == {"one", "two"}
    assert len(rows) == 12
    for row in rows:
        of_model = [r for r in drawn.records if r.model == row["run"] and r.prompt.category == row["skill"]]
        expected = np.mean([r.number % (2 if row["run"] == "one" else 3) > 0 for r in of_model])
        assert float(row["generated_value"]) == pytest.approx(expected)
        assert int(row["judged_n"]) == 5
    assert (tmp_path / "report" / "generation.png").is_file()


class Asked(Judge):
    """Scores of the same weights by answers, whose right text is another one."""

    kind = "vqa_score"

    def score(self, images, texts):
        return -super().score(images, texts)


def test_answers_of_the_same_weights_are_a_third_measure(tmp_path, drawn):
    runs = {"one": Judge("one"), "one, asked": Asked("one"), "two": Judge("two"), "three, asked": Asked("three")}
    for label, judge in runs.items():
        evaluate.evaluate(judge, [scenes()], tmp_path / label, progress=False, model=label)
    prompts = read_prompts(write(tmp_path / "data.jsonl", [row | {"prompt": f"{i}"} for i, row in enumerate(ROWS * 3)]))
    generators = [fakes.generator(fakes.FakePipeline(name)) for name in ("one", "two")]
    rated = generate_images(generators, prompts, tmp_path / "rated", progress=False)
    judged.judge_images(rated, fakes.ImageJudge(), name="a judge", progress=False)
    folders = [tmp_path / label for label in runs]
    page = report.write_report(folders, tmp_path / "report", images=[drawn.folder, rated.folder])
    for words in ("Answers are a third measure", "by answers, %", "Generation and answers", "Answers and matching"):
        assert words in page.read_text(), words
    matched, answered = (read_run(tmp_path / label).tasks["clevr"].results for label in ("one", "one, asked"))
    assert matched["accuracy"]["value"] != answered["accuracy"]["value"]
    rows = csv_rows(tmp_path / "report" / "generation.csv")
    assert {row["run"] for row in rows} == {"one", "two"}  # the answers are no points of their own
    for row in rows:
        if row["run"] == "two":
            assert row["answered_value"] == ""
            continue
        for column, results in (("judged", matched), ("answered", answered)):
            entry = results[f"{row['skill']}/accuracy"]
            assert float(row[f"{column}_value"]) == pytest.approx(entry["value"])
            assert float(row[f"{column}_low"]) == pytest.approx(entry["low"])
    rows = csv_rows(tmp_path / "report" / "understanding.csv")
    of_one = [row for row in rows if row["run"] == "one"]
    assert len(of_one) == 3
    for row in of_one:
        assert float(row["answered_value"]) == pytest.approx(2 * answered["accuracy"]["value"] - 1)
        assert float(row["matching_value"]) == pytest.approx(2 * matched["accuracy"]["value"] - 1)
    # Without the run that asks, the page is as before.
    page = report.write_report([folders[0]], tmp_path / "without", images=[drawn.folder, rated.folder])
    assert "by answers" not in page.read_text()
    assert "answered_value" not in csv_rows(tmp_path / "without" / "generation.csv")[0]


def test_a_model_that_matches_and_is_judged_is_a_point_for_each_skill(tmp_path):
    """Soft-TIFA's skills against the tasks of the same skills, by hand."""
    prompts = read_prompts(write(tmp_path / "data.jsonl", [row | {"prompt": f"{i}"} for i, row in enumerate(ROWS * 3)]))
    generators = [fakes.generator(fakes.FakePipeline(name)) for name in ("one", "two")]
    drawn = generate_images(generators, prompts, tmp_path / "drawn", progress=False)
    found = judged.judge_images(drawn, fakes.ImageJudge(), name="a judge", progress=False)
    for name in ("one", "two", "three"):
        evaluate.evaluate(Judge(name), [scenes()], tmp_path / name, progress=False, model=name)
    folders = [tmp_path / name for name in ("one", "two", "three")]
    page = report.write_report(folders, tmp_path / "report", images=[drawn.folder])
    assert "Matching and generation, skill by skill" in page.read_text()
    assert "a judge (published: Qwen3-VL-8B-Instruct)" in page.read_text()
    rows = csv_rows(tmp_path / "report" / "understanding.csv")
    # Three has generated nothing. The task clevr asks for no counting.
    assert [(row["run"], row["skill"]) for row in rows] == [
        (run, skill) for run in ("one", "two") for skill in ("spatial", "attribute_binding", "recognition")
    ]
    for row in rows:
        group = {"spatial": "position", "attribute_binding": "attribute", "recognition": "object"}[row["skill"]]
        entry = found.models[row["run"]]["soft_tifa_am"][group]
        assert float(row["generation_value"]) == pytest.approx(entry["value"])
        matched = read_run(tmp_path / row["run"]).tasks["clevr"].results["accuracy"]
        assert float(row["matching_value"]) == pytest.approx(2 * matched["value"] - 1)
        assert float(row["matching_low"]) == pytest.approx(2 * matched["low"] - 1)
    assert (tmp_path / "report" / "understanding.png").is_file()
    assert {row["no_image"] for row in rows} == {""}
    # Of an earlier version of the rubric.
    judgements.write(drawn.folder / "judged" / "geneval2-a-judge", dataclasses.replace(found, version=0), [])
    with pytest.warns(UserWarning, match="version 0 and left out, since the rubric now has version 2"):
        page = report.write_report(folders, tmp_path / "again", images=[drawn.folder])
    assert "Matching and generation, skill by skill" not in page.read_text()
    # A missing image is shown next to the numbers of its model.
    first = drawn.records[0]
    with ImageStore(drawn.folder) as store:
        store.add_missing([MissingImage(first.prompt, *first.place, first.fingerprint, "filtered", "no")])
    again = read_images(drawn.folder)
    judged.judge_images(again, fakes.ImageJudge(), name="a judge", progress=False)
    page = report.write_report(folders, tmp_path / "lacking", images=[drawn.folder])
    said = f"{first.model} lacks 1 of {len(prompts)} images"
    assert said in page.read_text()
    others = generate_images([fakes.generator(fakes.FakePipeline("four"))], prompts, tmp_path / "four", progress=False)
    with pytest.warns(UserWarning, match="nothing on the images in .*four: none of its runs"):
        report.write_report(folders[:1], tmp_path / "others", images=[drawn.folder, others.folder])
    rows = csv_rows(tmp_path / "lacking" / "understanding.csv")
    assert [row["no_image"].startswith(said) for row in rows] == [row["run"] == first.model for row in rows]


def test_images_of_another_program_belong_to_the_run_of_their_models_name(tmp_path):
    prompts = read_prompts(write(tmp_path / "data.jsonl", [row | {"prompt": f"{i}"} for i, row in enumerate(ROWS * 3)]))
    (tmp_path / "files").mkdir()
    for number, prompt in enumerate(prompts):
        pixels = np.full((4, 4, 3), 20 * number, np.uint8)
        PIL.Image.fromarray(pixels).save(tmp_path / "files" / f"{prompt.id}.png")
    folders = []
    for name in ("one", "two"):
        evaluate.evaluate(Judge(name), [scenes()], tmp_path / name, progress=False, model=name)
        folders.append(tmp_path / name)
    run = collect_images(tmp_path / "files", prompts, tmp_path / "run", name="two", progress=False)
    found = judged.judge_images(run, fakes.ImageJudge(), name="a judge", progress=False)
    page = report.write_report(folders, tmp_path / "report", images=[run.folder]).read_text()
    assert "Other programs made the images of two: only the name is known." in page
    rows = csv_rows(tmp_path / "report" / "understanding.csv")
    assert {row["run"] for row in rows} == {"two"}
    spatial = next(row for row in rows if row["skill"] == "spatial")
    entry = found.models["two"]["soft_tifa_am"]["position"]
    assert float(spatial["generation_value"]) == pytest.approx(entry["value"])


@pytest.mark.parametrize("rubric", RUBRICS.values(), ids=RUBRICS)
def test_rubrics_measure_known_skills(rubric):
    assert set(rubric.skills.values()) <= SKILLS.keys()
    assert rubric.wordings.keys() == set(rubric.kinds)
    assert len(rubric.description) <= 60  # of the help's lines
