"""Groups of tasks on small sets in the published layouts: prepared, judged with two models, reported by skill."""

import csv
import functools
import json

import pytest

from launch import prepare
from tests import launching
from tests.scorers import tiny_models
from tests.tasks import newer_layouts
from winobench.tasks import TASKS, groups

# Its parts have quick tests of their own: test_groups, test_skills, tests/tasks.
pytestmark = pytest.mark.slow

GROUPS = ("compositional", "spatial", "counting", "attribute_binding", "recognition", "classification")
PREPARED = (
    *("sugarcrepe_swap_att", "cola", "coco_spatial_one", "mmvp_spatial", "vismin_counting", "mmvp_quantity"),
    *("eqbench_kubric_attr", "vismin_object", "mmvp_color", "cifar10", "stl10"),
)

launch = functools.partial(launching.launch, COLUMNS="80")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for task in PREPARED:
        source = newer_layouts.WRITERS[task](tmp_path_factory.mktemp(task))
        assert not prepare.prepare_tasks(task, str(source), str(folder), workers=1, allow_partial=True)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_pipeline):
    return [tiny_pipeline, tiny_models.write_clip(tmp_path_factory.mktemp("models") / "clip")]


@pytest.fixture(scope="module")
def runs(data_dir, models, tmp_path_factory):
    """The folders of the two runs."""
    folder = tmp_path_factory.mktemp("runs")
    words = [
        *("--config=gdbench:debug", f"--config.model={','.join(map(str, models))}", f"--config.data_dir={data_dir}"),
        *(f"--config.tasks={','.join(f'@{group}' for group in GROUPS)}", "--config.limit=2", f"--workdir={folder}"),
    ]
    status, _, err = launch("launch.eval", *words, cwd=folder)
    assert status == 0, err
    return [folder / name for name in (models[0].name, "clip")]


def test_each_task_of_the_groups_is_asked_once(runs, data_dir):
    ready = {
        name: task
        for name, task in TASKS.items()
        if task.ready(str(data_dir)) is None and set(task.skills) & set(GROUPS)
    }
    asked = {name for name, task in ready.items() if not task.when_named}
    assert set(PREPARED) < asked
    for run in runs:
        results = json.loads((run / "results.json").read_text())
        assert results["failed"] == {}
        assert results["tasks"].keys() == asked


def test_the_page_has_a_radar_by_skill(runs, tmp_path):
    status, _, err = launch("launch.report", *runs, f"--out={tmp_path}", cwd=tmp_path)
    assert status == 0, err
    with open(tmp_path / "skills.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == len(GROUPS) * len(runs)
    assert {row["skill"] for row in rows} == set(GROUPS)
    assert (tmp_path / "skills.png").stat().st_size > 10_000
    (page,) = tmp_path.glob("*.html")
    text = page.read_text()
    _, found, section = text.partition('id="skills"')
    assert found
    # The chart itself, before the next section.
    assert "<svg" in section.partition("<section")[0]


def test_self_benchs_tables(data_dir, models, tmp_path):
    """Its data sets that are ready, in its settings."""
    words = ["--config=selfbench_tables:debug", f"--config.model={models[0]}", f"--config.data_dir={data_dir}"]
    status, _, err = launch("launch.eval", *words, f"--workdir={tmp_path / 'run'}", cwd=tmp_path)
    assert status == 0, err
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    expected = [name for name in groups.SELF_BENCH if TASKS[name].ready(str(data_dir)) is None]
    assert list(results["tasks"]) == expected
    assert {"clevr", "cola", "mmvp_quantity"} <= set(expected)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["identity"]["normalize"] == "none"
    assert config["identity"]["sampling"]["timesteps"] == "published"
    assert config["config"]["error"] == "l2"
