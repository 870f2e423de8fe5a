"""Hosted models against a server on this machine that speaks the real protocols and fails in the ways of real ones."""

import datetime
import email.utils
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest
from absl import logging

from tests.expectations import raises
from tests.responders.api_server import (
    KEY,
    anthropic_body,
    anthropic_error,
    openai_body,
    openai_error,
    question,
    questions,
)
from winobench.base import registry
from winobench.base.errors import InputError
from winobench.responders import hosted
from winobench.responders.hosted import HostedModel
from winobench.runs import responses
from winobench.runs.requests import Generation, Options, Responder, Turn

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(params=["openai:small-1@{}/v1", "anthropic:claude-small-1@{}"], ids=["openai", "anthropic"])
def name(request, server):
    return request.param.format(server.address)


def make(name, **options):
    return HostedModel(name, **{"first_wait": 0.01, "timeout": 5.0, "concurrency": 3, **options})


def ask(model, requests):
    return dict(model.ask(requests))


def texts(model, requests):
    return {index: model.read(requests[index], raw).text for index, raw in model.ask(requests)}


def test_every_request_is_answered_once(server, name):
    model, requests = make(name), questions(12)
    assert isinstance(model, Responder)
    found = list(model.ask(requests))
    assert sorted(index for index, _ in found) == list(range(12))
    for index, raw in found:
        response = model.read(requests[index], raw)
        assert response.text == f"1; because of question {index}"
        assert (response.output_tokens, response.finish) == (5, "stop")
        assert response.input_tokens == (12 if model.api == "openai" else 15)
        assert (raw["status"], raw["attempts"]) == (200, 1)
        assert raw["request_id"].startswith("req_")
        json.dumps(raw)
    assert sorted(server.prompts) == sorted(f"question {index}" for index in range(12))


def test_what_is_sent(server):
    turns = (Turn("system", "One."), Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"))
    request = Generation(turns, max_tokens=7, temperature=0.5, sample=2)
    ask(make(f"openai:m@{server.address}/v1", seed=10, extra_body={"reasoning_effort": "low"}), [request])
    path, headers, body = server.calls.pop()
    roles = [{"role": turn.role, "content": turn.text} for turn in turns]
    assert (path, headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    fields = {"max_tokens": 7, "temperature": 0.5, "seed": 12, "reasoning_effort": "low"}
    assert body == {"model": "m", "messages": roles, **fields}
    options = {"max_tokens_field": "max_completion_tokens", "send_temperature": False}
    ask(make(f"openai:m@{server.address}/v1", **options), [request])
    assert server.calls.pop()[2] == {"model": "m", "messages": roles, "max_completion_tokens": 7}
    ask(make("anthropic:c", base_url=server.address), [request])
    path, headers, body = server.calls.pop()
    assert path == "/v1/messages"
    assert KEY in (headers.get("x-api-key"), headers.get("authorization", "").removeprefix("Bearer "))
    assert body == {"model": "c", "messages": roles[1:], "system": "One.", "max_tokens": 7, "temperature": 0.5}
    ask(make("anthropic:c", base_url=server.address, send_temperature=False), [question("d")])
    assert "temperature" not in server.calls.pop()[2]


def test_the_providers_own_servers_are_the_default(server, monkeypatch):
    model = HostedModel("openai:gpt-4o-mini")
    assert model.fingerprint()["base_url"] == "https://api.openai.com/v1"
    assert model.fingerprint()["max_tokens_field"] == "max_completion_tokens"
    assert HostedModel("anthropic:claude-x").fingerprint()["base_url"] == "https://api.anthropic.com"
    monkeypatch.setenv("OPENAI_BASE_URL", "localhost:8000/v1")
    with raises("bad-url", "OPENAI_BASE_URL", "http://"):
        make("openai:m")
    monkeypatch.setenv("OPENAI_BASE_URL", f"{server.address}/v1/")
    model = HostedModel("openai:gpt-4o-mini")
    assert model.fingerprint()["base_url"] == f"{server.address}/v1"
    assert model.fingerprint()["max_tokens_field"] == "max_tokens"


def test_no_more_calls_at_a_time_than_allowed(server, name):
    server.seconds = 0.02
    assert len(ask(make(name, concurrency=3), questions(20))) == 20
    assert server.most == 3


def test_answers_that_nobody_has_taken_hold_back_new_calls(server, name):
    found = make(name, concurrency=2).ask(questions(20))
    next(found)
    time.sleep(0.1)
    assert len(server.calls) <= 2
    found.close()
    time.sleep(0.05)
    assert len(server.calls) <= 2


@pytest.mark.parametrize("trouble", [408, 409, 429, 500, "reset", "close", "cut"])
def test_passing_trouble_is_tried_again(server, name, trouble):
    server.script = [(trouble, {}, openai_error("busy")) if isinstance(trouble, int) else trouble] * 2
    model = make(name, concurrency=1)
    raws = ask(model, questions(2))
    assert [raws[index]["attempts"] for index in range(2)] == [3, 1]
    assert len(server.calls) == 4
    # A server that knows the header can tell a second attempt from a second question.
    keys = [headers["idempotency-key"] for _, headers, _ in server.calls]
    assert keys[0] == keys[1] == keys[2] != keys[3]


def test_silence_is_tried_again(server, name):
    server.script = ["silence"]
    assert ask(make(name, concurrency=1, timeout=0.1, attempts=8), questions(1))[0]["attempts"] > 1


@pytest.mark.parametrize(("header", "value"), [("Retry-After", "0.15"), ("retry-after-ms", "150")])
def test_calls_at_the_same_time_wait_as_the_server_wishes(server, name, header, value):
    server.script = [(429, {header: value}, openai_error("slow down", "rate_limit_exceeded"))] * 2
    server.seconds = 0.02
    raws = ask(make(name, concurrency=2), questions(2))
    assert [raw["attempts"] for raw in raws.values()] == [2, 2]
    assert all(moment - server.times[0] >= 0.15 for moment in server.times[2:])


def test_a_wait_that_is_too_long_ends_the_run(server, name):
    server.script = [(429, {"Retry-After": "7200"}, openai_error("daily limit"))]
    with raises("rate-limited", "7200"):
        ask(make(name, concurrency=1), questions(3))
    assert len(server.calls) == 1


def test_what_fails_for_good_is_no_answer(server, name):
    server.script = [(500, {}, openai_error("broken"))] * 3 + [(400, {}, anthropic_error("prompt is too long"))]
    server.script += [(503, {"x-should-retry": "false"}, openai_error("gone"))]
    raws = ask(make(name, concurrency=1, attempts=3), questions(4))
    assert raws[0] == {"error": {"kind": "server", "message": "broken", "attempts": 3}}
    assert raws[1] == {"error": {"kind": "blocked", "message": "prompt is too long", "attempts": 1}}
    assert raws[2] == {"error": {"kind": "server", "message": "gone", "attempts": 1}}
    assert "error" not in raws[3]
    assert len(server.calls) == 6


def test_a_server_that_is_down_ends_the_run(server, name):
    server.script = [(502, {}, "<html>Bad gateway</html>")] * 100
    found = []
    with raises("all-calls-failed", "4"):
        found.extend(make(name, concurrency=1, attempts=2, failures_in_a_row=4).ask(questions(50)))
    assert len(found) == 4
    assert len(server.calls) == 8


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (401, openai_error(f"Incorrect API key provided: {KEY}."), ("key-refused",)),
        (403, openai_error("not in your country"), ("account-refused",)),
        (404, openai_error("The model `x` does not exist", "model_not_found"), ("no-such-model", "404")),
        (429, openai_error("You exceeded your quota", "insufficient_quota"), ("no-credit",)),
        (400, anthropic_error("Your credit balance is too low"), ("no-credit",)),
        (307, "", ("server-moved", "URL")),
        (200, {"error": {"message": f"Incorrect API key provided: {KEY}.", "code": 401}}, ("key-refused",)),
        (400, anthropic_error("`temperature` is deprecated."), ("field-refused", "send_temperature", "False")),
    ],
)
def test_errors_that_every_call_would_meet_end_the_run(server, name, status, body, message):
    server.script = [(status, {"Location": "http://127.0.0.2/"} if status == 307 else {}, body)] * 100
    with raises(*message) as raised:
        ask(make(name, concurrency=2), questions(50))
    assert len(server.calls) <= 4
    assert KEY not in str(raised.value)
    assert "\n" not in str(raised.value)


def test_answers_under_way_are_kept_when_the_run_ends(server, name):
    model = make(name, concurrency=2)
    server.script = [(401, {}, openai_error("no"))]
    server.seconds = 0.1
    found = model.ask(questions(10))
    taken = []
    with raises("key-refused"):
        taken.extend(found)
    assert len(taken) == len(server.answered) >= 1


def refusing(field):
    other = "max_tokens" if field == "max_completion_tokens" else "max_completion_tokens"
    words = f"Unsupported parameter: '{field}' is not supported with this model. Use '{other}' instead."
    return (400, {}, openai_error(words, "unsupported_parameter"))


def test_the_limit_is_sent_in_the_field_that_the_server_takes(server):
    model = make(f"openai:m@{server.address}/v1", concurrency=1, attempts=1)
    before = model.fingerprint()
    server.script = [refusing("max_tokens")]
    assert all("error" not in raw for raw in ask(model, questions(3)).values())
    fields = [sorted({"max_tokens", "max_completion_tokens"} & set(body)) for _, _, body in server.calls]
    assert fields == [["max_tokens"], *[["max_completion_tokens"]] * 3]
    assert model.fingerprint() == before
    server.script = [refusing("max_completion_tokens")]  # and there is no way back
    with raises("field-refused", "field max_completion_tokens"):
        ask(model, questions(1))


def test_a_field_that_is_asked_for_is_not_changed(server):
    model = make(f"openai:m@{server.address}/v1", concurrency=1, max_tokens_field="max_tokens")
    server.script = [refusing("max_tokens")]
    with raises("field-refused", "field max_tokens", "--api.max_tokens_field=max_completion_tokens"):
        ask(model, questions(1))


@pytest.mark.parametrize("form", ["malformed", "html", "no choices"])
def test_a_malformed_body_is_handed_on_as_it_is(server, name, form):
    if form == "no choices" and name.startswith("anthropic"):
        form = (200, {}, {"id": "msg_1", "type": "message"})
    server.script = [form]
    model, requests = make(name, concurrency=1), questions(2)
    raws = ask(model, requests)
    with pytest.raises(ValueError, match="the body"):
        model.read(requests[0], raws[0])
    assert model.read(requests[1], raws[1]).text is not None
    assert len(server.calls) == 2


def test_an_incomplete_answer_is_asked_for_again_a_few_times(server, name):
    server.script = [(200, {}, openai_body("") if name.startswith("openai") else anthropic_body())] * 4
    model, requests = make(name, concurrency=1), questions(2)
    raws = ask(model, requests)
    response = model.read(requests[0], raws[0])
    assert (response.text, response.ending, response.output_tokens) == (None, "empty", 5)
    assert [raws[index]["attempts"] for index in (0, 1)] == [3, 2]
    assert len({headers["idempotency-key"] for _, headers, _ in server.calls}) == 5  # else a server may repeat itself


THOUGHT = openai_body("", "length", reasoning_content="Let me look")
THOUGHTS = {
    "field": THOUGHT,
    "other field": openai_body(None, "length", reasoning="Let me look"),
    "tags": openai_body("<think>Let me look", "length"),
    "usage": openai_body("So", "length") | {"usage": {"completion_tokens_details": {"reasoning_tokens": 15}}},
    "nothing": openai_body("", "length"),
    "no reason": openai_body("", None),
}


def thinking(tokens, cut=THOUGHT):
    """A reply, and a list of the limits that came, for a model that needs so many tokens."""
    limits = []

    def reply(body):
        limits.append(body["max_tokens"])
        is_whole = limits[-1] >= tokens
        usage = {**cut["usage"], "completion_tokens": min(tokens, limits[-1])}
        return 200, {**(openai_body("Yes", reasoning_content="...") if is_whole else cut), "usage": usage}

    return reply, limits


def own(server, **options):
    return make(f"openai:m@{server.address}/v1", **{"concurrency": 1, **options})


@pytest.mark.parametrize("cut", THOUGHTS.values(), ids=THOUGHTS)
def test_thoughts_have_room_from_the_first_answer_on_that_shows_them(server, cut):
    server.reply, limits = thinking(900, cut)
    model = own(server)
    assert texts(model, questions(3)) == dict.fromkeys(range(3), "Yes")
    assert limits == [16, 4112, 4112, 4112]
    assert [raw["max_tokens"] for raw in ask(model, questions(1)).values()] == [4112]


def test_what_takes_more_than_its_room_is_cut_off_after_two_calls(server):
    server.reply, limits = thinking(9000)
    model = own(server)
    (raw,) = ask(model, questions(1)).values()
    assert (model.read(question("?"), raw).ending, limits) == ("cut_off", [16, 4112])


@pytest.mark.parametrize("order", [("thinks", "explains"), ("explains", "thinks")])
def test_an_answer_without_thoughts_is_cut_off_at_its_own_limit_whenever_it_comes(server, order):
    sentence = "The image shows a dog that runs. " * 30

    def reply(body):
        if body["messages"][-1]["content"] == "thinks":
            return thinking(900)[0](body)
        is_whole = body["max_tokens"] >= 200
        found = openai_body(sentence if is_whole else sentence[:60], "stop" if is_whole else "length")
        return 200, {**found, "usage": {"completion_tokens": 200 if is_whole else 16}}

    server.reply = reply
    model, requests = own(server), [question(word) for word in order]
    raws = ask(model, requests)
    endings = {word: model.read(requests[index], raws[index]).ending for index, word in enumerate(order)}
    assert endings == {"thinks": "finished", "explains": "cut_off"}


@pytest.mark.parametrize(
    ("most", "asked", "ending"),
    [(3000, [16, 4112, 1040, 4112, 1040], "finished"), (500, [16, 4112, 1040, 16, 4112, 1040, 16], "cut_off")],
)
def test_a_server_with_a_lower_limit_gets_less_room(server, most, asked, ending):
    answer, limits = thinking(900)

    def reply(body):
        if body["max_tokens"] > most:
            limits.append(body["max_tokens"])
            return 400, openai_error(f"This model's maximum context length is {most} tokens.")
        return answer(body)

    server.reply = reply
    model = own(server)
    raws = ask(model, questions(2))
    assert [model.read(question("?"), raws[index]).ending for index in range(2)] == [ending] * 2
    assert limits == asked


def test_a_limit_of_ones_own_has_no_room(server):
    server.reply, limits = thinking(900)
    raws = ask(own(server, extra_body={"max_completion_tokens": 300}), questions(1))
    assert (limits, "max_tokens" in raws[0]) == ([16], False)
    server.reply = None
    budget = {"thinking": {"type": "enabled", "budget_tokens": 8000}}
    ask(make(f"anthropic:m@{server.address}", extra_body=budget), questions(1))
    assert server.calls[-1][2]["max_tokens"] == 8016


def test_a_text_that_a_model_refuses_is_an_answer_which_is_not_asked_for_again(server, name):
    server.script = ["refusal"]
    model, requests = make(name, concurrency=1), questions(2)
    raws = ask(model, requests)
    response = model.read(requests[0], raws[0])
    assert (response.text, response.ending, response.output_tokens) == (None, "filtered", 5)
    assert [raws[index]["attempts"] for index in (0, 1)] == [1, 1]


@pytest.mark.parametrize(
    ("body", "attempts", "message"),
    [
        ({"error": {"message": "overloaded", "code": 502}}, 3, "overloaded"),
        ({**openai_body("Option 1"), "error": "no upstream"}, 3, "no upstream"),
        ({"choices": [{**openai_body("1")["choices"][0], "error": {"message": "x", "code": "429"}}]}, 3, "x"),
        (openai_body("1", "error"), 3, "the answer ended in an error"),
        ({"error": {"message": "too long", "code": 400}}, 1, "too long"),
        (anthropic_error("Overloaded", "overloaded_error"), 3, "Overloaded"),
        ({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "slow down"}}, 3, "slow down"),
        ({"errors": [{"message": "first"}, {"message": "second"}]}, 3, "first"),
        ({"detail": "Not Found"}, 3, "Not Found"),
        ({"code": 40001, "msg": "bad key"}, 3, "bad key"),
    ],
)
def test_an_error_in_a_body_of_status_200_is_a_failed_call(server, name, body, attempts, message):
    model, requests = make(name, concurrency=1, attempts=3), questions(2)
    server.script = [(200, {}, body)] * attempts
    raws = ask(model, requests)
    assert (raws[0]["error"]["message"], raws[0]["error"]["attempts"]) == (message, attempts)
    assert model.read(requests[1], raws[1]).text is not None
    with pytest.raises(ValueError, match=message):  # what earlier versions have recorded
        model.read(requests[0], {"body": json.dumps(body)})


NO_ERROR = {"error": None, "errors": [], "base_resp": {"status_code": 0}, "msg": "success"}
THOUGHT = {"type": "thinking", "thinking": "..."}
TOOL = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "Option 1"}}]


@pytest.mark.parametrize(
    ("api", "body", "text", "ending"),
    [
        ("openai", openai_body([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab", "finished"),
        ("openai", {**openai_body("x"), **NO_ERROR}, "x", "finished"),
        ("openai", openai_body("x", None), "x", "finished"),
        ("openai", openai_body("x", reasoning_content="y"), "x", "finished"),
        ("openai", openai_body("<think>y</think> x"), "<think>y</think> x", "finished"),
        ("openai", openai_body("cut of", "length"), None, "cut_off"),
        ("openai", openai_body("cut of", "MAX_TOKENS"), None, "cut_off"),
        ("openai", openai_body(None, "length", reasoning="Option 1"), None, "cut_off"),
        ("openai", {**openai_body("x", None), "usage": {"completion_tokens": 16}}, None, "cut_off"),
        ("openai", openai_body(" \n\u200b"), None, "empty"),
        ("openai", openai_body("", reasoning_content="Option 1"), None, "empty"),
        ("openai", openai_body("<think>Option 1"), None, "empty"),
        ("openai", openai_body("Option 1</think>\n"), None, "empty"),
        ("openai", openai_body([{"type": "image_url", "image_url": {"url": "x"}}]), None, "empty"),
        ("openai", openai_body("Option 1", "SAFETY"), None, "filtered"),
        ("openai", openai_body(None, refusal="I cannot say Option 1"), None, "filtered"),
        ("openai", openai_body(None, tool_calls=TOOL), None, "tool_call"),
        ("openai", openai_body("Option 1 is", "abort"), None, "interrupted"),
        ("anthropic", anthropic_body("a", "b"), "ab", "finished"),
        ("anthropic", anthropic_body("a", stop="stop_sequence"), "a", "finished"),
        ("anthropic", anthropic_body("a", stop="max_tokens"), None, "cut_off"),
        ("anthropic", anthropic_body(), None, "empty"),
        ("anthropic", anthropic_body("a", stop="refusal"), None, "filtered"),
        ("anthropic", {**anthropic_body(), "content": [{"type": "tool_use"}]}, None, "tool_call"),
        ("anthropic", anthropic_body("a", stop="pause_turn"), None, "interrupted"),
        ("anthropic", {**anthropic_body(), "content": [THOUGHT, *anthropic_body("a")["content"]]}, "a", "finished"),
    ],
)
def test_reading(server, api, body, text, ending):
    response = make(f"{api}:m@{server.address}").read(question("?"), {"body": json.dumps(body)})
    assert (response.text, response.ending) == (text, ending)


def chunk(*, finish=None, logprobs=None, **delta):
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
    return {"id": "c", "object": "chat.completion.chunk", "choices": [choice]}


def streamed(*chunks, line="\n", done=True):
    events = [f"data: {json.dumps(one, ensure_ascii=False)}{line}{line}" for one in chunks]
    return "".join([*events, f"data: [DONE]{line}{line}" * done])


USAGE = {"id": "c", "choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}}
WHOLE = (chunk(role="assistant", content=""), chunk(content="Option\u2028 "), chunk(content="1"), chunk(finish="stop"))


@pytest.mark.parametrize(
    ("body", "text", "ending"),
    [
        ("\ufeff" + json.dumps(openai_body("x")), "x", "finished"),
        (streamed(*WHOLE, USAGE), "Option\u2028 1", "finished"),
        (streamed(*WHOLE, USAGE, line="\r\n", done=False), "Option\u2028 1", "finished"),
        ("\ufeff: comment\n\n" + streamed(*WHOLE), "Option\u2028 1", "finished"),
        ("event: message\n" + streamed(*WHOLE), "Option\u2028 1", "finished"),
        (streamed(openai_body("x")), "x", "finished"),
        (streamed(*WHOLE[:-1], done=False), None, "interrupted"),
        (streamed(*WHOLE[:-1], chunk(finish="length")), None, "cut_off"),
        (streamed(chunk(reasoning_content="Hm"), chunk(finish="stop")), None, "empty"),
    ],
)
def test_reading_streams_that_were_not_asked_for(server, body, text, ending):
    response = own(server).read(question("?"), {"body": body})
    assert (response.text, response.ending) == (text, ending)
    if "USAGE" in body or '"usage"' in body:
        assert response.input_tokens == 12


def test_an_error_in_a_stream_is_a_failed_call(server):
    server.script = [(200, {}, streamed(WHOLE[0], {"error": {"message": "overloaded", "code": 503}}))]
    assert ask(own(server), questions(1))[0]["attempts"] == 2
    for body in (streamed(), streamed({"type": "message_start", "message": {}}), "data: {"):
        with pytest.raises(ValueError, match="the body"):
            own(server).read(question("?"), {"body": body})


@pytest.mark.parametrize("api", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        '{"choices": [1], "content": [1]}',
        '{"choices": [{"message": {"content": 3}}], "content": [{"type": "text"}]}',
        '{"choices": [{"finish_reason": "stop"}], "content": "text"}',
    ],
)
def test_reading_what_is_malformed(server, api, body):
    with pytest.raises(ValueError, match=r"bod|content|text|message"):
        make(f"{api}:m@{server.address}").read(question("?"), {"body": body})
    with pytest.raises(ValueError, match="no body"):
        make(f"{api}:m@{server.address}").read(question("?"), {"error": {}})


def test_a_provider_is_a_class_and_nothing_more(server, monkeypatch):
    monkeypatch.setitem(hosted.APIS, "other", None)  # the class registers itself, and leaves after the test

    class Other(hosted.providers.openai.OpenAI, provider="other"):
        default_url, key_variable, url_variable = f"{server.address}/v1", "OTHER_API_KEY", "OTHER_BASE_URL"
        own_limit = "max_tokens"

    with raises("no-key", "OTHER_API_KEY"):
        make("other:m")
    monkeypatch.setenv("OTHER_API_KEY", KEY)
    model = make("other:m", seed=1)
    assert texts(model, questions(1)) == {0: "1; because of question 0"}
    assert (model.api, model.fingerprint()["api"], registry.api_of("other:m")) == ("other",) * 3
    assert "other:MODEL" in hosted.model_names()
    assert server.calls[0][2]["max_tokens"] == 16


def test_costs():
    assert hosted.cost("gpt-4o-mini", 1_000_000, 100_000) == pytest.approx(0.15 + 0.06)
    assert hosted.cost("claude-haiku-4-5-20251001", 0, 1000) == pytest.approx(0.005)
    assert hosted.cost("some-model", 10, 10) is None
    assert hosted.cost("gpt-4o-audio-preview", 10, 10) is None
    assert hosted.cost("gpt-4o", None, 10) is None
    assert hosted.cost("gpt-4o", 1_000_000, 0, {"gpt-4o": (1.0, 2.0)}) == 1.0


def test_prices_are_those_of_the_providers_own_servers(server):
    request, raw = question("?"), {"body": json.dumps(openai_body("x"))}
    own, other = HostedModel("openai:gpt-4o-mini"), make(f"openai:gpt-4o-mini@{server.address}/v1")
    priced = make(f"openai:gpt-4o-mini@{server.address}/v1", prices={"gpt-4o-mini": [1, 1]})
    assert own.cost(own.read(request, raw)) == pytest.approx((12 * 0.15 + 5 * 0.6) / 1e6)
    assert other.cost(other.read(request, raw)) is None
    assert priced.cost(priced.read(request, raw)) == pytest.approx(17e-6)


def test_failed_attempts_are_in_the_log(server, name, caplog):
    caplog.set_level("INFO")
    server.script = [(500, {}, openai_error("broken")), "reset", (400, {}, openai_error("odd"))]
    ask(make(name, concurrency=1), questions(2))
    words = [record.message.partition(": attempt ")[2] for record in caplog.records if "attempt" in record.message]
    assert [line.split(": ")[:2] for line in words] == [
        ["1 of 8", "server"],
        ["2 of 8", "connection"],
        ["3 of 8", "blocked"],
    ]
    assert ["Trying again" in line for line in words] == [True, True, False]


def test_the_key_is_nowhere(server, name, tmp_path, caplog, capfd, monkeypatch):
    monkeypatch.setenv("OPENAI_LOG", "debug")
    caplog.set_level("DEBUG")
    before = logging.get_verbosity()
    logging.set_verbosity(logging.DEBUG)
    echo = openai_error(f"who is {KEY}?")
    server.script = [(500, {}, echo), (429, {"Retry-After": "0"}, echo), "reset", (400, {}, echo)]
    server.answer = lambda prompt: f"your key is {KEY}"
    model, requests = make(name, concurrency=1), questions(4)
    try:
        with responses.ResponseStore(tmp_path / "responses") as store:
            for index, raw in model.ask(requests):
                key = responses.key(model.fingerprint(), requests[index])
                if "error" in raw:
                    store.fail(key, requests[index], raw["error"], 0.0)
                else:
                    store.add(key, requests[index], raw, raw["seconds"])
                    assert model.read(requests[index], raw).text == "your key is [key]"
        server.script = [(401, {}, openai_error(f"wrong: {KEY}"))]
        with pytest.raises(InputError) as raised:
            ask(model, questions(1))
    finally:
        logging.set_verbosity(before)
    assert len(store) == 3
    written = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) == 2
    shown = [str(raised.value), json.dumps(model.fingerprint()), caplog.text, *capfd.readouterr(), repr(model)]
    assert "who is [key]?" in "".join(shown)
    assert not [text for text in written + shown if KEY in text]


def test_what_a_server_shows_of_a_wrong_key_is_not_written(server, name, caplog):
    server.script = [(401, {}, openai_error(f"Incorrect API key provided: {KEY[:8]}****{KEY[-4:]}."))]
    with raises("key-refused") as raised:
        ask(make(name), questions(1))
    assert "refused: the key is not accepted" in caplog.text
    assert KEY[-4:] not in caplog.text + str(raised.value)


def test_a_stand_in_for_a_key_is_not_blanked(server, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "EMPTY")
    server.answer = lambda prompt: "the set is EMPTY"
    model = make(f"openai:m@{server.address}/v1")
    assert texts(model, questions(1)) == {0: "the set is EMPTY"}


def test_a_server_of_ones_own_needs_no_key(server, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    assert len(ask(make(f"openai:m@{server.address}/v1"), questions(1))) == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("gpt-4o", {}, ("unknown-api",)),
        ("openai:x@http://", {}, ("bad-url", "http://")),
        ("openai:x@127.0.0.1:80/v1", {}, ("bad-url", "http://")),
        ("openai:x@ws://h/v1", {}, ("bad-url", "http://")),
        ("openai:http://h/v1", {}, ("bad-url", "http://")),
        ("openai:x@http://h:port/v1", {}, ("bad-url", "http://h:port/v1")),
        ("openai:x@http://a/v1", {"base_url": "http://b/v1"}, ("bad-url", "'http://b/v1'")),
        *(
            (f"openai:x@https://n.openai.azure.com/{path}", {}, ("bad-url", "https://n.openai.azure.com/openai/v1"))
            for path in (
                "openai/deployments/x?api-version=2024-10-21",
                "openai/deployments/x/chat/completions",
                "openai?api-version=preview",
            )
        ),
        ("openai:x@https://n.services.ai.azure.com/models?api-version=1", {}, ("bad-url", "/openai/v1")),
        ("openai:x@https://gateway/v1?api-version=1", {}, ("bad-url", "gateway", "api-version")),
        ("openai:x@https://host/v1?key=secret", {}, ("bad-url", "host", "query")),
        ("openai:x@https://me:secret@host/v1", {}, ("bad-url", "host", "password")),
        ("openai:x", {"attempts": 1.5}, ("out-of-range", "1,000")),
        ("openai:x", {"max_tokens_field": "limit"}, ("unknown-name", "max_tokens", "max_completion_tokens")),
        ("anthropic:x", {"seed": 1}, ("option-of-others", "seed", "OpenAI's")),
        ("openai:x", {"prices": {"x": (1.0,)}}, ("out-of-range", "price", "(1.0,)")),
        ("openai:x", {"prices": {"x": "12"}}, ("out-of-range", "price", "'12'")),
        *(
            ("openai:x@http://127.0.0.1:9/v1", {"extra_body": {field: "x"}}, ("reserved-field", "extra_body", field))
            for field in ("messages", "model", "system", "stream", "n")
        ),
    ],
)
def test_bad_names_and_options(server, name, options, message):
    with raises(*message) as raised:
        HostedModel(name, **options)
    assert "secret" not in str(raised.value)


def test_names_may_hold_marks(server):
    for name in ("claude-x@20240229", "@cf/meta/llama-3-8b", "ft:gpt-4o:org::id", "llama3:8b@q4@http://h/v1"):
        plain = name.removesuffix("@http://h/v1")
        models = [make(f"openai:{name}"), make(f"openai:{plain}@http://h/v1")]
        assert {(model.api, model.model) for model in models} == {("openai", plain)}
        assert models[1].base_url == "http://h/v1"
    assert registry.api_of("anthropic:claude-x") == "anthropic"
    assert not registry.api_of("recorded:x.csv")
    assert not registry.api_of("openai")


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_missing_key(monkeypatch, api):
    variable = f"{api.upper()}_API_KEY"
    monkeypatch.delenv(f"{api.upper()}_BASE_URL", raising=False)
    monkeypatch.delenv(variable, raising=False)
    with raises("no-key", variable):
        HostedModel(f"{api}:x")
    monkeypatch.setenv(variable, "“sk-0123456789abcdef”")
    with raises("bad-key", variable) as raised:
        HostedModel(f"{api}:x")
    assert "0123" not in str(raised.value)


@pytest.mark.parametrize("api", ["openai", "anthropic"])
def test_a_missing_client(server, monkeypatch, api):
    monkeypatch.setitem(sys.modules, api, None)
    with raises("missing-package", api, "'winobench[api]'"):
        HostedModel(f"{api}:x")


def test_importing_is_light():
    code = "import sys, winobench.responders.hosted; print({'openai', 'anthropic', 'jax', 'torch'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


def test_other_kinds_are_refused(server, name):
    with raises("kind-not-answered"):
        ask(make(name), [Options((Turn("user", "a"),), ("b", "c"))])


def test_a_late_system_turn(server):
    request = Generation((Turn("user", "a"), Turn("system", "b"), Turn("user", "c")))
    with raises("system-turn-not-first"):
        ask(make(f"anthropic:c@{server.address}"), [request])


def test_an_interrupt_takes_what_is_under_way_and_no_more(server, name):
    server.seconds = 0.15
    found, taken = make(name, concurrency=2).ask(questions(20)), []
    # The second round of calls is under way.
    main = threading.main_thread().ident
    threading.Timer(0.25, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        taken.extend(found)
    assert sorted(f"question {index}" for index, _ in taken) == sorted(server.prompts)
    assert 2 <= len(server.calls) <= 6


@pytest.mark.parametrize("num", [1, 20])
def test_an_interrupt_while_an_answer_is_stored_loses_nothing(server, name, num):
    server.seconds = 0.05
    found, taken = make(name, concurrency=3).ask(questions(num)), []

    def take():
        for index, _ in found:
            if not taken:
                signal.raise_signal(signal.SIGINT)
            taken.append(f"question {index}")

    with pytest.raises(KeyboardInterrupt):
        take()
    assert sorted(taken) == sorted(server.prompts)
    assert 1 <= len(taken) <= 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_is_not_held_back(server, name):
    asked = make(name).ask(questions(5))
    next(asked)
    signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    asked.close()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


_RUN = """
import sys
from tests.responders.api_server import questions
from winobench.responders.hosted import HostedModel
from winobench.runs import responses
model, requests = HostedModel(sys.argv[1], concurrency=4, first_wait=0.01), questions(30)
keys = [responses.key(model.fingerprint(), request) for request in requests]
with responses.ResponseStore(f"{sys.argv[2]}/responses") as store:
    missing = [index for index, key in enumerate(keys) if key not in store]
    for number, raw in model.ask([requests[index] for index in missing]):
        store.add(keys[missing[number]], requests[missing[number]], raw, raw["seconds"])
    print(len(store))
"""


def _start(name, folder):
    return subprocess.Popen([sys.executable, "-c", _RUN, name, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True)


def _stored(folder):
    return sum(path.read_bytes().count(b"\n") for path in folder.glob("responses/part-*.jsonl"))


def test_a_killed_run_asks_for_nothing_twice(server, tmp_path):
    name = f"openai:small-1@{server.address}/v1"
    process = _start(name, tmp_path)
    patience = time.monotonic() + 30
    while _stored(tmp_path) < 7 and time.monotonic() < patience:
        time.sleep(0.005)
    server.holds.clear()  # what is asked from now on is not answered
    # Answers that are on their way are stored; then all four calls wait for the server.
    while _stored(tmp_path) < len(server.answered) or server.held < 4:
        assert time.monotonic() < patience
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    stored = _stored(tmp_path)
    assert 7 <= stored < 30
    before = list(server.answered)
    assert len(before) == stored
    server.answer = lambda prompt: "second run"
    calls = len(server.calls)
    # The calls that were held when the kill came are gone with their connections.
    process = _start(name, tmp_path)
    while len(server.calls) < calls + 4:
        assert time.monotonic() < patience
        time.sleep(0.005)
    server.holds.set()
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (0, "30\n")
    second = server.prompts[calls:]
    assert len(second) == len(set(second)) == 30 - stored
    assert not set(second) & set(before)


def test_waits_in_headers():
    date = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=30)
    for headers, least, most in (
        ({"retry-after": "7"}, 7, 7),
        ({"retry-after": "7", "retry-after-ms": "6500"}, 6.5, 6.5),
        ({"retry-after": email.utils.format_datetime(date, usegmt=True)}, 25, 30),
        ({"retry-after": "soon"}, 0, 0),
        ({}, 0, 0),
    ):
        assert least <= hosted.api.requested_wait(headers) <= most, headers
