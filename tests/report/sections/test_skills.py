"""Macro means by skill, over tasks of several data sets."""

import numpy as np
import pytest

from tests.evaluation import fakes
from tests.report.conftest import Skilled, make_run
from winobench import read_run
from winobench.report.sections.shared import ReportData
from winobench.report.sections.skills import skill_means, skill_section

CLEVR = fakes.text_task("clevr", 8, ("spatial", "recognition_color"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs; the second one lacks the spatial task of Self-Bench."""
    chosen = [CLEVR, fakes.square_task("colorswap"), fakes.text_task("clevr_spatial_selfbench")]
    folder = tmp_path_factory.mktemp("runs")
    first = make_run(Skilled(0.3), folder / "a", chosen=chosen, num_samples=4)
    second = make_run(Skilled(0.7, weights="1"), folder / "b", chosen=chosen[:2], num_samples=4)
    return [read_run(first), read_run(second)]


def test_each_task_weighs_the_same(runs):
    found = {mean.skill: mean for mean in skill_means(ReportData(runs[:1], 10, 0))}
    assert {skill: mean.tasks for skill, mean in found.items()} == {
        "compositional": ("clevr", "colorswap"),
        "spatial": ("clevr", "clevr_spatial_selfbench"),
        "attribute_binding": ("clevr", "colorswap"),
    }
    results = {name: task.results for name, task in runs[0].tasks.items()}
    clevr, colorswap = results["clevr"]["accuracy"], results["colorswap"]["group"]
    assert clevr["n"] != colorswap["n"]
    mean = found["compositional"]
    np.testing.assert_allclose(mean.values, [(clevr["value"] + colorswap["value"]) / 2])
    above = [(clevr["value"] - 1 / 2) / (1 / 2), (colorswap["value"] - 1 / 6) / (5 / 6)]
    np.testing.assert_allclose(mean.above, [sum(above) / 2])


def test_only_tasks_of_every_run_are_counted(runs):
    assert {mean.skill for mean in skill_means(ReportData(runs, 10, 0))} == {"compositional", "attribute_binding"}
    section = skill_section(ReportData(runs, 10, 0))
    assert section.panels == []
    assert len(section.records["skills.csv"]) == 2 * 2
    (table,) = section.tables
    assert [len(row.cells) for row in table.rows] == [3, 3]


def test_three_skills_make_a_chart(runs, tmp_path):
    section = skill_section(ReportData(runs[:1], 10, 0))
    section.write_files(tmp_path)
    assert (tmp_path / "skills.png").stat().st_size > 1000
    lines = (tmp_path / "skills.csv").read_text().splitlines()
    assert lines[0] == "run,skill,value,above_chance,num_tasks,tasks"
    assert len(lines) == 1 + 3


def test_runs_with_one_task_of_a_skill_have_no_section(tmp_path):
    run = read_run(make_run(Skilled(0.3), tmp_path / "run", chosen=[CLEVR], num_samples=4))
    assert skill_section(ReportData([run], 10, 0)) is None
