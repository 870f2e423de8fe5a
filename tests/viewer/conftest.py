"""Runs of every kind to view, and a browser to view them with."""

import os
import pathlib

import pytest

from tests import wscplus_files
from tests.generation import fakes as generation_fakes
from tests.report.conftest import Skilled, WithoutSamples, make_run
from tests.viewer import browser as driver
from tests.viewer import folders
from winobench.evaluation import questions
from winobench.generation import judged
from winobench.responders.recorded import RecordedModel
from winobench.runs.verdicts import Verdict, write_verdicts


@pytest.fixture(scope="session")
def viewed(tmp_path_factory) -> list[pathlib.Path]:
    """Runs with images, of texts, and of generated images, and one that was killed. Tests must not change them."""
    root = tmp_path_factory.mktemp("viewed")
    made = [
        make_run(Skilled(0.25), root / "weak", model="clevr-tiny"),
        make_run(Skilled(0.6, weights="1"), root / "strong", model="sd21-base"),
        make_run(WithoutSamples(), root / "direct", model="clip-rn50x64"),
    ]
    for name, said in {"first": lambda number, answer: 0, "good": lambda number, answer: answer}.items():
        model = RecordedModel(f"recorded:{wscplus_files.write(root / f'data-{name}', said=said)}")
        options = {"data_dir": str(root / f"data-{name}"), "protocol": "toe", "model": name, "progress": False}
        made.append(questions.evaluate_questions(model, "wscplus", root / f"text-{name}", **options)["workdir"])
    drawn = generation_fakes.draw(root / "drawn", "one", "two")
    write_verdicts(drawn, [Verdict(one.file, one.sha256, one.number % 2 == 0) for one in drawn.records])
    judged.judge_images(drawn, generation_fakes.ImageJudge(), name="a judge", rubric="vqa_score", progress=False)
    killed = root / "killed"
    for path in folders.begin(made[0], killed)[:2]:
        folders.add(made[0], killed, path)
    return [*map(pathlib.Path, made), drawn.folder, killed]


@pytest.fixture(scope="session")
def chromium():
    """The system's Chromium, which Playwright drives."""
    if (reason := driver.missing()) is not None:
        pytest.skip(reason)
    with driver.browser() as found:
        yield found


@pytest.fixture(scope="session")
def screenshots() -> pathlib.Path | None:
    """Where to put a picture of each page: ``$WINOBENCH_SCREENSHOTS``, if it is set."""
    folder = os.environ.get("WINOBENCH_SCREENSHOTS")
    return pathlib.Path(folder) if folder else None
