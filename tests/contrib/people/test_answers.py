"""Odd and long answers of models that write items."""

import random

import pytest

from tests.contrib.people.wscplus_items import fakes
from tests.evaluation.test_odd_answers import TEXTS, api, check_files, good, model_that_answers, odd_body  # noqa: F401
from tests.tasks.test_long_answers import check_reader
from winobench.contrib.people.wscplus_items import parsing, prompts, run

WRITTEN = [
    *TEXTS,
    fakes.written(*fakes.PAIRS[:2]),
    fakes.written(*fakes.PAIRS[2:4]).replace('"answer": 0', '"answer": 1e999'),
    fakes.written(*fakes.PAIRS[2:4]).replace('"options"', '"options": {"a": [[]]}, "Options"'),
    fakes.REFUSAL,
]


def test_odd_answers_with_items(api, tmp_path):  # noqa: F811
    folder, rng, requests = tmp_path / "run", random.Random(0), 30
    asked = prompts.make_prompts(["toe"], ["wdq", "ambiguous"], requests=requests)
    model = model_that_answers(api, lambda: odd_body(rng, api, WRITTEN))
    run.generate({"m": lambda: model}, asked, folder, progress=False)
    failed = run.check(folder)["failed"]
    assert model.asked == 2 * requests
    check_files(folder)
    model = model_that_answers(api, good(api))
    run.generate({"m": lambda: model}, asked, folder, progress=False)
    assert model.asked == failed
    assert run.check(folder)["failed"] == 0
    check_files(folder)


@pytest.mark.parametrize(("length", "seconds"), [(10_000, 2), pytest.param(1_000_000, 4, marks=pytest.mark.slow)])
def test_a_short_text_again_and_again(length, seconds):
    check_reader(lambda text: parsing.parse(text, "traditional"), length, seconds)


def test_protocols_that_write_items():
    prompts.make_prompts(
        ("cot", "tot", "coe", "toe"), ("wdq",), offensive=False, batch=(1,), requests=1, temperature=1.0, max_tokens=1
    )
