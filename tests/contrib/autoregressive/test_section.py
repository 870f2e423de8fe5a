"""The section of reports on likelihoods: nats of images become bits a token."""

import html
import math

import numpy as np
import pytest

from tests.contrib.autoregressive.tiny import pictures
from tests.evaluation import fakes
from tests.report.conftest import csv_rows
from winobench import report
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.evaluation import evaluate
from winobench.tasks.base import Example

TEXTS = ("a dog", "a cat on a red dog")


@pytest.mark.parametrize("images_compete", [True, False])
def test_means_are_those_of_the_scores(tmp_path, load_generator, one_device, images_compete):
    images = [np.asarray(image) for image in pictures(2)]
    if images_compete:
        examples, shape = [Example(f"{n}", tuple(images), (text,), n) for n, text in enumerate(TEXTS)], (2, 1)
    else:
        examples, shape = [Example(f"{n}", (image,), TEXTS, n) for n, image in enumerate(images)], (1, 2)
    task = fakes.make_task(
        "a", "accuracy", shape, {"accuracy": 0.5}, lambda *_: examples, images_compete=images_compete
    )
    likelihood = ImageLikelihood(load_generator("janus"), mesh=one_device)
    evaluate.evaluate(likelihood, [task], tmp_path / "run", progress=False, model="janus")
    page = report.write_report([tmp_path / "run"], tmp_path / "report").read_text()
    assert "Bits a token" in page
    assert "No paper has numbers" in page
    (row,) = csv_rows(tmp_path / "report" / "likelihoods.csv")
    tokens = likelihood.model.family.scored
    bits = -likelihood.score(images, (*TEXTS, "")) / tokens / math.log(2)
    assert float(row["right"]) == pytest.approx(np.mean([bits[0, 0], bits[1, 1]]), abs=1e-5)
    assert float(row["wrong"]) == pytest.approx(np.mean([bits[0, 1], bits[1, 0]]), abs=1e-5)
    assert (row["tokens"], float(row["chance"])) == (str(tokens), math.log2(likelihood.model.family.codes))
    if images_compete:
        assert float(row["none"]) == pytest.approx(bits[:, 2].mean(), abs=1e-5)
    else:
        assert row["none"] == ""
    assert abs(bits[0, 0] - bits[0, 1]) > 1e-3  # a text matters


def test_other_runs_have_no_such_section(tmp_path):
    examples = [Example("0", (np.asarray(pictures(1)[0]),), TEXTS, 0)]
    task = fakes.make_task("a", "accuracy", (1, 2), {"accuracy": 0.5}, lambda *_: examples)

    class Constant:
        def fingerprint(self):
            return {"scorer": "other", "question": f"The system's prompt. {'Long. ' * 90}Does it show {{}}?"}

        def score(self, images, texts):
            return np.array([[1.0, 0.0]])

    evaluate.evaluate(Constant(), [task], tmp_path / "run", progress=False)
    page = report.write_report([tmp_path / "run"], tmp_path / "report").read_text()
    assert "Bits a token" not in page
    assert "question The system's prompt." in html.unescape(page)
    assert "Does it show {}?" in page
    assert page.count("Long.") < 15  # a setting takes a line
