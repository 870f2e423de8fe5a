"""VQAScore of hosted models, against the server of `tests.responders.api_server`."""

import re

import numpy as np
import pytest
from PIL import Image

from tests.evaluation import fakes
from tests.expectations import raises
from tests.responders import api_server
from tests.responders.api_server import likely_body, openai_error
from winobench.base import registry
from winobench.data import question_texts
from winobench.evaluation.evaluate import evaluate
from winobench.responders import hosted
from winobench.responders.vqa_score import HostedVQAScore
from winobench.scorers import loading

PROBABILITIES = {"a dog": 0.75, "a cat": 0.125}


def likely(prompt):
    (text,) = (part["text"] for part in prompt if part["type"] == "text")
    shown = re.fullmatch(r'Does this figure show "(.*)"\? Please answer yes or no\.', text)
    yes = PROBABILITIES.get(shown[1], 0.5) if shown else 0.625
    return likely_body("Yes", Yes=yes - 0.0625, yes=0.0625, No=0.25)


@pytest.fixture
def server(server):
    server.answer = likely
    return server


def make(server, folder=None, api="openai", score="probability", **options):
    url = f"{server.address}/v1" if api == "openai" else server.address
    api_options = {"first_wait": 0.01, "attempts": 1, "concurrency": 2, **options}
    return HostedVQAScore.from_pretrained(f"{api}:m@{url}", api=api_options, score=score, folder=folder)


def test_a_score_is_the_probability_of_yes_and_is_asked_for_once(server, tmp_path):
    image = Image.new("RGB", (4, 4), "red")
    image.save(tmp_path / "red.png")
    images, texts = [tmp_path / "red.png", np.asarray(image), fakes.image(3)], ["a dog", "a cat"]
    expected = np.broadcast_to(np.float32([0.75, 0.125]), (3, 2))
    np.testing.assert_allclose(make(server, tmp_path / "kept").score(images, texts), expected, rtol=1e-6)
    # The array is written as the very file that the image has.
    assert len(server.calls) == 4
    again = make(server, tmp_path / "kept", score="log_odds")
    np.testing.assert_allclose(again.score(images, texts), np.log(expected / 0.25), rtol=1e-6)
    assert len(server.calls) == 4
    assert again.spent().startswith("0 calls")
    assert (make(server).match_threshold, again.match_threshold) == (0.5, 0)
    # Recorded runs are found by it.
    assert again.fingerprint() == {
        **hosted.HostedModel(f"openai:m@{server.address}/v1").fingerprint(),
        "scorer": "hosted_vqa_score",
        "scoring_version": 2,
        "score": "log_odds",
        "question": 'Does this figure show "{}"? Please answer yes or no.',
    }


def test_an_evaluation_keeps_answers_in_its_folder_and_runs_beside_it_use_them(server, tmp_path):
    task = fakes.text_task(count=3)
    first = evaluate(make(server, prices={"m": (1, 1)}), [task], tmp_path / "a", progress=False)
    calls = len(server.calls)
    assert calls == first["passes"] == 12
    assert len(list((tmp_path / "a" / "answers").glob("part-*.jsonl"))) == 1
    evaluate(make(server, score="log_odds"), [task], tmp_path / "b", progress=False)
    assert len(server.calls) == calls
    evaluate(make(server, score="log_odds"), [task], tmp_path / "c", progress=False, reuse=False)
    assert len(server.calls) == 2 * calls


def test_calls_that_fail_end_the_run_which_then_asks_for_them_alone(server, tmp_path):
    task = fakes.text_task(count=3)
    server.script = ["ok", (500, {}, openai_error("broken"))]
    with raises("calls-failed", "1 questions got no answer", "broken"):
        evaluate(make(server), [task], tmp_path / "run", progress=False)
    assert len(server.calls) == 12
    results = evaluate(make(server), [task], tmp_path / "run", progress=False)
    assert (len(server.calls), results["passes"]) == (13, 12)


def test_a_question_has_one_call_for_all_its_answers(server, tmp_path):
    texts = [question_texts.join("Is it red?\nPlease answer Yes or No.", answer) for answer in ("Yes", "No")]
    server.answer = lambda _: likely_body("Yes", Yes=0.75, No=0.25)
    scorer = make(server, tmp_path)
    np.testing.assert_allclose(scorer.score([fakes.image(1)], texts), [[0.75, 0.25]], rtol=1e-6)
    assert server.prompts[0][0]["text"] == "Is it red?\nPlease answer Yes or No."
    assert len(server.calls) == 1
    with raises("cannot-answer"):
        scorer.score([fakes.image(1)], [question_texts.join("Which?", "A")])


def test_without_log_probabilities_answers_vote(server, tmp_path):
    said = iter(["Yes.", "No", "yes", "I cannot tell"])
    server.answer = lambda _: next(said)
    scorer = make(server, tmp_path, "anthropic", votes=4, concurrency=1)
    np.testing.assert_allclose(scorer.score([fakes.image(1)], ["a dog"]), [[0.5]], rtol=1e-6)
    assert scorer.spent() == "4 calls; 60 tokens read, 20 written"


def test_an_incomplete_vote_is_no_score_and_is_asked_for_again(server, tmp_path):
    bodies = [api_server.anthropic_body("Yes, I", stop="max_tokens"), *(api_server.anthropic_body("Yes"),) * 2]
    server.script = [(200, {}, body) for body in bodies]
    with raises("calls-failed", "max_tokens"):
        make(server, tmp_path, "anthropic", votes=3, concurrency=1).score([fakes.image(1)], ["a dog"])
    server.answer = lambda _: "no"
    scorer = make(server, tmp_path, "anthropic", votes=3, concurrency=1)
    np.testing.assert_allclose(scorer.score([fakes.image(1)], ["a dog"]), [[2 / 3]], rtol=1e-6)
    assert len(server.calls) == 4


@pytest.mark.parametrize("fields", [{"content": None, "reasoning_content": "Yes"}, {"content": "<think>"}])
def test_log_probabilities_of_a_thought_are_no_score(server, tmp_path, fields):
    body = likely_body("Yes", **{fields["content"] or "Yes": 0.75, "No": 0.25})
    body["choices"][0]["message"] |= fields
    server.answer = lambda _: body
    with raises("calls-failed", "thought", "logprobs"):
        make(server, tmp_path).score([fakes.image(1)], ["a dog"])


def test_a_hosted_model_is_a_scorer_by_its_name(server):
    scorer = loading.load_scorer(f"openai:m@{server.address}/v1", hosted={"votes": 3, "logprobs": None})
    assert isinstance(scorer, HostedVQAScore)
    assert scorer.fingerprint()["votes"] == 3
    assert {loading.resolve(f"{api}:m").kind for api in hosted.APIS} == {registry.HOSTED}
    with raises("option-of-others", "diffusion"):
        loading.check_scorer("anthropic:claude-x", diffusion={"lora": "x"})
    with raises("option-of-others", "revision"):
        loading.load_scorer("openai:x", revision="main")
