"""Groups of tasks on small sets in the published layouts: prepared, judged with two models, reported by skill."""

import csv
import json

import pytest

from tests.launch import whole
from tests.scorers import tiny_models
from winobench.tasks import TASKS, groups

# Its parts have quick tests of their own: test_groups, test_skills, tests/tasks.
pytestmark = pytest.mark.slow

GROUPS = ("compositional", "spatial", "counting", "attribute_binding", "recognition", "classification")
PREPARED = (
    *("sugarcrepe_swap_att", "cola", "coco_spatial_one", "mmvp_spatial", "vismin_counting", "mmvp_quantity"),
    *("eqbench_kubric_attr", "vismin_object", "mmvp_color", "cifar10", "stl10"),
)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory):
    return whole.prepare_newer(PREPARED, tmp_path_factory)


@pytest.fixture(scope="module")
def models(tmp_path_factory, tiny_pipeline):
    return [tiny_pipeline, tiny_models.write_clip(tmp_path_factory.mktemp("models") / "clip")]


@pytest.fixture(scope="module")
def runs(data_dir, models, tmp_path_factory):
    """The folders of the two runs."""
    tasks = f"--config.tasks={','.join(f'@{group}' for group in GROUPS)}"
    return whole.evaluate(models, data_dir, tmp_path_factory.mktemp("runs"), tasks, "--config.limit=2")[0]


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
    whole.report(runs, tmp_path)
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
    whole.evaluate(models[:1], data_dir, tmp_path / "run", config="selfbench_tables:debug")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    expected = [name for name in groups.SELF_BENCH if TASKS[name].ready(str(data_dir)) is None]
    assert list(results["tasks"]) == expected
    assert {"clevr", "cola", "mmvp_quantity"} <= set(expected)
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["identity"]["normalize"] == "none"
    assert config["identity"]["sampling"]["timesteps"] == "published"
    assert config["config"]["error"] == "l2"
