"""Odd answers of servers and models, from the call to the report: nothing poisons a run. Servers are functions."""

import json
import os
import random

import pyarrow.parquet as pq
import pytest

from tests.evaluation.fakes import examples
from tests.expectations import raises
from tests.responders.api_server import KEY, anthropic_body, openai_body
from winobench import report
from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.evaluation.questions import evaluate_questions
from winobench.responders.hosted import HostedModel
from winobench.runs import endings, provenance

TASK = "winoviz_mini_single"
TEXTS = [
    "Option 1",
    "The answer is option 2.",
    "1",
    "",
    "\x00\x01\x1b[2J",
    "a\nb\r\nc\u2028d",
    "=1+1",
    "<script>alert(1)</script>",
    "𝕆ption 1 \U0001f600",
    "\u202e1 noitpO",
    KEY,
    "{" * 5000,
    '{"statement":' * 2000,
    "[[" * 3000 + "]]" * 3000,
    "Option " + "9" * 5000,
    "<think>" * 500 + "Option 1",
    '[{"statement": "The cat saw it.", "options": ["the cat", "it"], "answer": 1e999}]',
    '[{"statement": "The cat saw it.", "options": {"a": [[]]}, "Options": ["the cat", "it"], "answer": 0}]',
    "I cannot help with that.",
]
VALUES = [
    None, True, False, -1, 0, 5, 1.5, 10**18, 10**30, float("nan"), float("inf"), -0.0, [], {}, [[]], [None], "7",
    "stop", "length", [{"type": "text"}], [{"type": "text", "text": 5}], [{"type": "text", "text": "Option 1"}],
    {"a": {"b": []}},
]  # fmt: skip


def odd_body(rng, api, texts=TEXTS):
    """A body: a good one with some of its parts replaced, left out or repeated, its text damaged; or none at all."""
    text = rng.choice(texts)
    body = openai_body(text) if api == "openai" else anthropic_body(text)
    for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
        holder, key = rng.choice(list(_places(body)))
        if rng.random() < 0.2:
            del holder[key]
        else:
            holder[key] = rng.choice([*VALUES, rng.choice(TEXTS)])
    written = json.dumps(body, ensure_ascii=rng.random() < 0.5)
    match rng.randrange(12):
        case 0:  # halves of characters
            written = written.replace("O", rng.choice((r"\ud83d", r"\ude00\ud83d", "\ud83d")))
        case 1:
            written = written.replace("5", rng.choice(("9" * 4000, "9" * 5000, "1e999", "-1", "NaN")))
        case 2:
            place, more = rng.randrange(len(written)), rng.choice(('"', "{", "[" * 200_000, "}", "\x00", ",", "\ufeff"))
            written = written[:place] + more + written[place:]
        case 3:
            written = written[: rng.randrange(len(written))]
        case 4:
            others = ("", "null", "[]", "<html></html>", "[" * 200_000 + "]" * 200_000, "0" * 5000, '"\ud83d"')
            written = rng.choice(others)
    content = written.encode("utf-8", "surrogatepass")
    if rng.random() < 0.05:
        content = bytes(rng.randrange(256) if rng.random() < 0.01 else byte for byte in content)
    return content.decode("utf-8", "replace")


def _places(value):
    if isinstance(value, dict | list):
        for key, inner in list(value.items()) if isinstance(value, dict) else list(enumerate(value)):
            yield value, key
            yield from _places(inner)


@pytest.fixture(params=["openai", "anthropic"])
def api(request, monkeypatch):
    # Neither a crash of the machine nor the state of the repository is tested here, and both take most of the time.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    software = provenance.software()
    monkeypatch.setattr(provenance, "software", lambda: software)
    for name in ("OPENAI", "ANTHROPIC"):
        monkeypatch.setenv(f"{name}_API_KEY", KEY)
    return request.param


def model_that_answers(api, answer):
    """A hosted model whose server is a function; ``asked`` counts the calls."""
    model = HostedModel(f"{api}:m@http://127.0.0.1:1", concurrency=2, attempts=1, prices={"m": (1.0, 2.0)})
    model.asked = 0

    async def send(client, body, call_id):
        model.asked += 1
        return 200, answer(), {"x-request-id": "r"}

    model._server.send = send
    model._server.room = 0  # each answer is of one call
    return model


def good(api):
    return lambda: json.dumps(openai_body("Option 1") if api == "openai" else anthropic_body("Option 1"))


def check_files(folder):
    """Every file that was written can be read, and holds neither the key nor half a character."""
    for path in folder.rglob("*"):
        if path.suffix == ".json":
            json_files.read(path)
        elif path.suffix == ".jsonl":
            assert all(isinstance(row, dict) for _, row in json_files.read_lines(path))
        elif path.suffix == ".parquet":
            pq.read_table(path).to_pylist()
        if path.is_file() and path.suffix != ".png":
            content = path.read_bytes()
            assert KEY.encode() not in content
            if path.suffix != ".parquet":
                content.decode()


def test_odd_answers_to_questions(api, tmp_path):
    folder = tmp_path / "run"
    options = {"protocol": "zero_shot", "limit": 24, "progress": False, "reuse": False}
    rng = random.Random(0)
    model = model_that_answers(api, lambda: odd_body(rng, api))
    try:
        results = evaluate_questions(model, TASK, folder, **options)
        failed = results["requests"] - results["endings"][TASK]["finished"]
        assert (results["failed_calls"] or {"requests": 0})["requests"] == results["endings"][TASK]["failed"]
        assert model.asked == results["asked"] == results["requests"]
    except InputError as error:
        assert error.code in ("all-calls-failed", "incomplete-answers"), error  # noqa: PT017
        failed = model.asked
    check_files(folder)
    # The same command asks for what has failed or is incomplete, and for nothing else.
    model = model_that_answers(api, good(api))
    results = evaluate_questions(model, TASK, folder, **options)
    assert (model.asked, results["asked"], results["failed_calls"]) == (failed, failed, None)
    # And then nothing.
    model = model_that_answers(api, good(api))
    again = evaluate_questions(model, TASK, folder, **options)
    assert model.asked == 0
    assert again["tasks"] == results["tasks"]
    if api == "openai":
        report.write_report([str(folder)], folder / "report", resamples=20)
    check_files(folder)
    assert 0.02 * results["requests"] < failed < 0.8 * results["requests"]  # both kinds are there


def test_incomplete_answers_choose_nothing_and_are_asked_for_again(api, tmp_path):
    """Although they speak of an option."""
    whole, cut = openai_body("Option 1"), openai_body("Maybe Option 1", "length")
    if api == "anthropic":
        whole, cut = anthropic_body("Option 1"), anthropic_body("Maybe Option 1", stop="max_tokens")
    silent = openai_body("") if api == "openai" else anthropic_body()

    def evaluate(bodies):
        bodies = iter([json.dumps(body) for body in bodies])
        model = model_that_answers(api, lambda: next(bodies))
        options = {"protocol": "zero_shot", "limit": 2, "progress": False, "reuse": False}
        return evaluate_questions(model, TASK, tmp_path / "run", **options)

    with raises("incomplete-answers", "4", "max_tokens=128", "--api.extra_body"):
        evaluate([cut] * 4)
    results = evaluate([whole, cut, silent, {"error": "broken"}])
    counts = {"finished": 1, "cut_off": 1, "empty": 1, "filtered": 0, "tool_call": 0, "interrupted": 0}
    assert results["endings"][TASK] == counts | {"failed": 1, "unparsable": 0, "max_tokens": 128}
    rows = examples(tmp_path / "run", TASK)
    assert sorted(row["status"] for row in rows) == ["answered", "failed", "unparsable", "unparsable"]
    assert ["Maybe Option 1"] in [row["responses"] for row in rows]  # to look at
    assert results["tasks"][TASK]["unparsable"]["value"] == pytest.approx(2 / 3)
    (line,) = endings.incomplete_lines(results)
    for part in ("2 of 3", "1 cut off by max_tokens=128", "1 empty"):
        assert part in line
    results = evaluate([whole] * 3)
    assert (results["asked"], results["endings"][TASK]["finished"]) == (3, 4)
    assert endings.incomplete_lines(results) == []


def test_half_an_emoji_is_an_answer_and_a_deep_one_a_failed_call_with_its_reason(monkeypatch, tmp_path):
    """The former used to end a paid run for ever."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    whole = good("openai")()
    emoji = whole.replace("Option 1", r"Option 1 \ud83d")
    bodies = iter(['{"choices":' + "[" * 200_000 + "]" * 200_000 + "}", *[emoji] * 3])
    model = model_that_answers("openai", lambda: next(bodies))
    results = evaluate_questions(model, TASK, tmp_path / "run", protocol="zero_shot", limit=2, progress=False)
    assert results["failed_calls"]["requests"] == 1
    assert results["failed_calls"]["first"] == (
        "malformed: the body is not JSON (it nests lists or objects more than 100 deep). It was answered, so it may"
        " have been billed"
    )
    answered = [row for row in examples(tmp_path / "run", TASK) if row["status"] == "answered"]
    assert [row["responses"] for row in answered] == [["Option 1 \ufffd"]] * 3
