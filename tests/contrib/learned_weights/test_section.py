"""Weights of timesteps that a report learns from recorded errors."""

import json

import numpy as np
import pytest

from tests.evaluation import fakes
from tests.report.conftest import Skilled, make_run
from winobench import report
from winobench.contrib.learned_weights import learning
from winobench.contrib.learned_weights.section import learned_weights_section
from winobench.metrics import timestep_weights
from winobench.report.sections.shared import ReportData
from winobench.runs import error_store, reading


class SkilledLate(Skilled):
    """Knows the answer at late timesteps, and has large errors at early ones."""

    def error_of(self, image, text, sample, salt):
        _, timestep = salt
        if timestep >= 500:
            return super().error_of(image, text, sample, salt)
        return 10 * fakes.FakeScorer.error_of(self, image, text, sample, salt)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    tasks = [fakes.text_task(count=60), fakes.square_task(count=60)]
    return make_run(SkilledLate(0.6), tmp_path_factory.mktemp("runs") / "late", chosen=tasks, num_samples=12)


def test_what_is_learned_helps_on_the_other_half(folder):
    run = reading.read_run(folder)
    learned = learning.learn(run)
    weights = timestep_weights.sample_weights(learned.curve, run.tasks["words"].timesteps)
    late = run.tasks["words"].timesteps >= 500
    assert weights[late].mean() > 5 * weights[~late].mean()
    rows = {(row.task, row.difference.name): row for row in learned.judged}
    assert {task for task, _ in rows} == {"words", "square"}
    assert rows["words", "accuracy"].learned > rows["words", "accuracy"].uniform
    for row in rows.values():
        assert row.difference.value == pytest.approx(row.learned - row.uniform)
        assert 10 < row.difference.num_examples < 110  # about half of them
    # Text and image questions of squares are both learned from.
    assert learned.num_questions > 2 * 20 + 4 * 20


@pytest.mark.usefixtures("undrawn")
def test_a_run_scored_with_them_is_read_with_them(folder, tmp_path):
    path = learning.write(run := reading.read_run(folder), learning.learn(run))
    tasks = [fakes.text_task(count=60)]
    weighted = make_run(SkilledLate(0.6), tmp_path / "run", chosen=tasks, num_samples=12, timestep_weights=str(path))
    task, plain = reading.read_run(weighted).tasks["words"], run.tasks["words"]
    assert task.results["accuracy"]["value"] > plain.results["accuracy"]["value"]
    (batch,) = reading.read_run(weighted).batches("words")
    assert batch.mean.weights.mean() == pytest.approx(1)
    np.testing.assert_array_equal(error_store.mean_scores(batch), np.stack(task.examples.scores))
    # Learning again starts from errors without weights.
    assert learning.learn(reading.read_run(weighted)).curve.edges == timestep_weights.parse(str(path)).edges
    # All of the report's sections read it; the curve against samples ends at the recorded accuracy.
    report.write_report([weighted], tmp_path / "report")
    last = (tmp_path / "report" / "samples.csv").read_text().splitlines()[-1]
    assert f"{task.results['accuracy']['value']}"[:8] in last


@pytest.mark.usefixtures("undrawn")
def test_the_section_and_its_file(folder, tmp_path):
    page = report.write_report([folder], tmp_path / "report", fit_timesteps=True)
    assert "Learned weights of timesteps" in page.read_text()
    written = json.loads((folder / learning.FILE).read_text())
    assert len(written["weights"]) == len(written["edges"]) + 1
    assert (tmp_path / "report" / "learned_weights.csv").read_text().count("\n") > 3
    assert "Learned weights" not in report.write_report([folder], tmp_path / "report").read_text()


def test_runs_that_teach_nothing_are_named(run_folders):
    direct = reading.read_run(run_folders[2])
    section = learned_weights_section(ReportData([direct], 10, 0, fit_timesteps=True))
    assert not section.tables
    assert direct.label in section.notes[0]
