"""One model by three measures: the likelihood of images, answers about images, and generated images."""

import pathlib

import pytest

from tests import launching
from tests.contrib.autoregressive.tiny import TEXTS, pictures
from tests.report.conftest import csv_rows
from winobench.base.errors import InputError
from winobench.contrib.autoregressive.scorer import ImageLikelihood
from winobench.scorers import loading
from winobench.scorers.vqa_score import VQAScore

ANSWERS = {"scored_by": "answers"}


def test_an_option_chooses_answers(write_generator, one_device):
    folder = str(write_generator("janus"))
    ref = loading.check_scorer(folder, likelihood=ANSWERS)
    assert loading.check_scorer(ref, likelihood=ANSWERS).kind == ref.kind == "answers"
    scorer = loading.load_scorer(ref, likelihood=ANSWERS)
    assert isinstance(scorer, VQAScore)
    described = scorer.fingerprint()
    likelihood = ImageLikelihood.from_pretrained(folder, mesh=one_device)
    assert described["model"] == likelihood.fingerprint()["model"]
    assert described["scorer"] == "vqa_score"
    scores = scorer.score(pictures(2), TEXTS)
    assert scores.shape == (2, len(TEXTS))
    assert ((scores > 0) & (scores < 1)).all()


@pytest.mark.parametrize(
    ("model", "given", "said"),
    [
        ("janus", {**ANSWERS, "guidance": 3.0}, "guidance is an option of the likelihood"),
        ("emu3", ANSWERS, "answers nothing"),
        ("sd15", ANSWERS, "scored_by is an option of models that predict the tokens"),
    ],
)
def test_what_cannot_answer_is_refused(model, given, said, write_generator):
    name = model if model == "sd15" else str(write_generator(model))
    with pytest.raises(InputError, match=said):
        loading.load_scorer(name, likelihood=given)


@pytest.mark.slow
def test_three_measures_are_on_one_page(tmp_path, write_generator):
    words = [f"--model={write_generator('janus')}", "--config=understand:debug", "--prompts=clevr:14", "--limit=3"]
    process = launching.start("launch.understand", *words, f"--workdir={tmp_path}", cwd=tmp_path)
    ((out, _),) = launching.finish([process])
    assert out.count("$ winobench ") == 4
    page = pathlib.Path(tmp_path, "report", "report.html").read_text()
    for words in ("Does it generate what it understands?", "Answers are a third measure", "Bits a token"):
        assert words in page, words
    rows = csv_rows(tmp_path / "report" / "generation.csv")
    assert len({row["run"] for row in rows}) == 1
    for row in rows:
        assert all(0 <= float(row[f"{measure}_value"]) <= 1 for measure in ("judged", "answered", "generated"))
