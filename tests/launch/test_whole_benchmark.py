"""The whole of GDBench on small data sets in the published layouts: prepared, judged with four models, reported."""

import csv
import json
import re

import pytest

from launch import prepare
from tests import tiny_vision_language
from tests.launch import whole
from tests.scorers import tiny_models
from tests.tasks import published_layouts
from winobench.data import published_order, word_order
from winobench.tasks import TASKS

# Its parts have quick tests of their own: test_eval, test_report, tests/tasks.
pytestmark = pytest.mark.slow

# Those that are asked whenever their data are there; of newer data sets none are.
ASKED = {
    name: task
    for name, task in TASKS.items()
    if not task.when_named and (task.source is None or name in published_layouts.GDBENCH)
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    """Every published task of GDBench, prepared from what the tests write."""
    folder = tmp_path_factory.mktemp("data")
    sources = published_layouts.write_all(tmp_path_factory.mktemp("sources"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_order, "spacy_tagger", lambda **_: published_layouts.stand_in_tagger)
        patch.setattr(published_order, "nltk_tokenizer", lambda: published_layouts.stand_in_tokenizer)
        for task, source in sources.items():
            assert not prepare.prepare_tasks(task, str(source), str(folder), workers=1, allow_partial=True)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_pipeline):
    folder = tmp_path_factory.mktemp("models")
    return [
        tiny_pipeline,
        tiny_models.write_clip(folder / "clip"),
        tiny_models.write_blip(folder / "blip"),
        tiny_vision_language.write_vision_language(folder / "instructblip"),
    ]


@pytest.fixture(scope="module")
def runs(data_dir, models, tmp_path_factory):
    """The folders of the four runs, and what the one command printed."""
    return whole.evaluate(models, data_dir, tmp_path_factory.mktemp("runs"), "--config.limit=2")[:2]


def test_every_task_has_numbers_from_every_model(runs, data_dir):
    folders, out = runs
    for folder in folders:
        results = json.loads((folder / "results.json").read_text())
        assert results["failed"] == {}
        assert results["tasks"].keys() == ASKED.keys()
        config = json.loads((folder / "config.json").read_text())
        is_diffusion = folder is folders[0]
        assert [one["num_samples"] for one in config["rounds"]] == [2 if is_diffusion else 1]
        assert (config["rounds"][0]["timesteps"] is None) != is_diffusion
        assert {path.stem for path in (folder / "examples").iterdir()} == ASKED.keys()
        assert {path.stem for path in (folder / "gallery").iterdir()} == ASKED.keys()
    for name, task in ASKED.items():
        tables = 1 if task.association is None else 2
        assert len(re.findall(rf"^ {name} *$", out, re.MULTILINE)) == 4 * tables
    assert "paper" in out
    assert re.search(r"python -m launch\.report .*blip", out)


def test_a_second_look_needs_no_pass(runs, data_dir, models):
    """Fewer samples and no normalisation, from the errors of the run beside."""
    folders, _ = runs
    words = ["--config.limit=2", "--config.normalize=none", "--config.sampling.num_samples=1"]
    words += ["--config.sampling.num_bias_samples=1"]
    _, _, err = whole.evaluate(models[:1], data_dir, folders[0].parent / "again", *words)
    results = json.loads((folders[0].parent / "again" / "results.json").read_text())
    assert results["computed_passes"] == 0 < results["passes"]
    assert "0 passes to do" in err


def test_one_page_of_the_four_runs(runs, tmp_path):
    folders, _ = runs
    whole.report(folders, tmp_path)
    (page,) = tmp_path.glob("*.html")
    assert page.stat().st_size > 100_000
    with open(tmp_path / "tasks.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == {name for name, task in ASKED.items() if task.association is None}
    with open(tmp_path / "bias.csv", newline="") as file:
        assert {row["task"] for row in csv.DictReader(file)} == {"genderbias", "mmbias"}
    assert list(tmp_path.glob("*.png"))


def test_tasks_whose_data_are_damaged_are_left_out(runs, data_dir, models, tmp_path):
    """One sentence for each of them, numbers for the others, and the exit status says that not all went well."""
    for task, place in (("pets", "examples"), ("winoground", "images")):
        (path, *_) = sorted((data_dir / task / place).rglob("*.array_record*"))
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))
    names = "--config.tasks=pets,svo_subj,winoground"
    words = [f"--config.model={models[1]}", f"--config.data_dir={data_dir}", names, f"--workdir={tmp_path / 'run'}"]
    status, out, _ = whole.launch("launch.eval", "--config=gdbench:debug", *words, cwd=tmp_path)
    assert status == 2
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert list(results["tasks"]) == ["svo_subj"]
    assert list(results["failed"]) == ["pets", "winoground"]
    for task, reason in results["failed"].items():
        assert re.search(rf"is damaged or missing: prepare the data again with .*--task={task}", reason)
    assert "not evaluated" in out
