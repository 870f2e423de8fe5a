"""The whole of GDBench on small data sets in the published layouts: prepared, judged with four models, reported."""

import csv
import json
import re

import jax
import pytest

from launch import prepare
from tests import launching, tiny_vision_language
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
    folder = tmp_path_factory.mktemp("data")
    sources = published_layouts.write_all(tmp_path_factory.mktemp("sources"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(word_order, "spacy_tagger", lambda **_: published_layouts.stand_in_tagger)
        patch.setattr(published_order, "nltk_tokenizer", lambda: published_layouts.stand_in_tokenizer)
        for task, source in sources.items():
            assert not prepare.prepare_tasks(task, str(source), str(folder), workers=1, allow_partial=True)
    return folder


@pytest.fixture(scope="module")
def runs(data_dir, tmp_path_factory, tiny_pipeline):
    folder = tmp_path_factory.mktemp("models")
    models = [
        tiny_pipeline,
        tiny_models.write_clip(folder / "clip"),
        tiny_models.write_blip(folder / "blip"),
        tiny_vision_language.write_vision_language(folder / "instructblip"),
    ]
    runs = tmp_path_factory.mktemp("runs")
    words = ["--config=gdbench:debug", f"--model={','.join(map(str, models))}", "--limit=2"]
    words += [f"--data_dir={data_dir}", f"--workdir={runs}"]
    devices = jax.devices()[:1]
    with pytest.MonkeyPatch.context() as patch:  # as the fixture `single_device`
        for name in ("devices", "local_devices"):
            patch.setattr(jax, name, lambda *_, **__: devices)
        status, out, err = launching.launch("launch.eval", *words, COLUMNS="80")
    assert status == 0, err
    return [runs / model.name for model in models], out


def test_every_task_has_numbers_from_every_model(runs):
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
    assert "paper" not in out  # it has no numbers of these models
    assert re.search(r"winobench report .*blip", out)


def test_one_page_of_the_four_runs(runs, tmp_path):
    folders, _ = runs
    status, _, err = launching.launch("launch.report", *folders, f"--out={tmp_path}")
    assert status == 0, err
    (page,) = tmp_path.glob("*.html")
    assert page.stat().st_size > 100_000
    with open(tmp_path / "tasks.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["task"] for row in rows} == {name for name, task in ASKED.items() if task.association is None}
    with open(tmp_path / "bias.csv", newline="") as file:
        assert {row["task"] for row in csv.DictReader(file)} == {"genderbias", "mmbias"}
    assert list(tmp_path.glob("*.png"))
