"""Automatic judges: what they are asked, what they say, and that people stay apart."""

import json

import numpy as np
import pytest

from tests import launching
from tests.generation import fakes
from tests.tiny_vision_language import write_vision_language
from winobench.contrib.people import judges
from winobench.contrib.people.comparison import Comparison, sides
from winobench.generation.generate import generate_images


class RedScorer:
    """Scores a picture by its red alone, and counts its calls."""

    def __init__(self):
        self.calls = 0

    def fingerprint(self):
        return {"scorer": "red", "model": "0" * 64}

    def score(self, images, texts):
        self.calls += len(images) * len(texts)
        return np.array([[np.asarray(image)[0, 0, 0] for _ in texts] for image in images], np.float32)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    return fakes.draw(tmp_path_factory.mktemp("drawn") / "run", "a", "b", seeds=(3, 1)).folder


@pytest.fixture
def compared(drawn, tmp_path):
    return Comparison(tmp_path / "blind", *sides([str(drawn)]))


def test_a_judge_prefers_what_it_scores_higher(compared):
    scorer = RedScorer()
    found = judges.judge(compared, scorer, "red", progress=False)
    reds = [
        [fakes.colour(record.model, record.seed, record.number, record.prompt.text)[0] for record in pair.records]
        for pair in compared.pairs
    ]
    second = sum(two > one for one, two in reds)
    assert (found["all"]["second"], found["all"]["first"]) == (second, 6 - second)
    assert sum(one["first"] + one["second"] for one in found["categories"].values()) == 4
    # The same call again asks nothing.
    calls = scorer.calls
    assert judges.judge(compared, scorer, "red", progress=False) == found
    assert scorer.calls == calls == 12


def test_equal_scores_are_ties(compared):
    class Blind(RedScorer):
        def score(self, images, texts):
            return np.zeros((len(images), len(texts)), np.float32)

    found = judges.judge(compared, Blind(), "blind", progress=False)["all"]
    assert (found["first"], found["second"], found["equal"], found["share"]) == (0, 0, 6, None)


def test_judges_are_no_people(compared):
    judges.judge(compared, RedScorer(), "red", progress=False)
    assert compared.outcomes() == {}
    with compared.serve("anna", 0) as (_, labels):
        labels.add(compared.rows_for("anna")[0][0], "equal")
    results = compared.finish()
    assert list(results["raters"]) == ["anna"]
    assert results["all"]["equal"] == 1
    assert "red" not in json.dumps(results["raters"])


@pytest.mark.slow
def test_a_model_that_sees_judges_a_comparison(tmp_path):
    sees = write_vision_language(tmp_path / "sees", "blip-2")
    generators = [fakes.generator(fakes.FakePipeline(name)) for name in ("a", "b")]
    generate_images(generators, [fakes.PROMPTS[0]], tmp_path / "run", progress=False)
    words = [tmp_path / "run", "--finish", f"--judge={sees}", f"--workdir={tmp_path / 'compared'}"]
    status, out, err = launching.launch("launch.rate", *words)
    assert (status, "automatic:" in out, sees.name in out) == (0, True, True), err
    (run,) = (tmp_path / "compared" / "judges").iterdir()
    assert json.loads((run / "config.json").read_text())["identity"]["scorer"]["scorer"] == "vqa_score"
