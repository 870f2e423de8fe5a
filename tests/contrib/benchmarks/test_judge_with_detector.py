"""The verdicts of GenEval's own detector from the command line."""

import pytest

from tests import launching
from tests.contrib.benchmarks.test_geneval_detector import PROMPTS, rows, write
from tests.generation import fakes
from winobench.runs.verdicts import GENEVAL_DETECTOR, read_verdicts


@pytest.mark.slow
def test_images_are_laid_out_and_verdicts_read(tmp_path):
    run = fakes.draw(tmp_path / "run", "a", "b", prompts=PROMPTS, seeds=(0, 1))
    status, out, err = launching.launch("launch.judge", run.folder, f"--lay_out={tmp_path / 'images'}", "--of=a")
    assert (status, out.startswith("4 images for GenEval's detector")) == (0, True), err
    path = write(tmp_path / "results.jsonl", rows(tmp_path / "images"))
    status, out, err = launching.launch("launch.judge", run.folder, f"--detector={path}", "--of=a")
    assert (status, f"judged by the {GENEVAL_DETECTOR}" in out) == (0, True), err
    assert "50.0" in out
    assert len(read_verdicts(run.folder)) == 4
    status, out, err = launching.launch("launch.judge", run.folder, f"--detector={path}")
    assert (status, out) == (2, "")
    assert "has images of several models: name one of a, b" in err
    status, out, err = launching.launch("launch.judge", run.folder, "--people=study", "--model=qwen3-vl-8b")
    assert (status, "--prompts=evaluation_metadata.jsonl" in err) == (2, True), err
