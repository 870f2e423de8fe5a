"""Hosted models against servers that are broken or hostile: bodies without end, bytes in drops, bombs, odd answers."""

import contextlib
import gzip
import json
import os
import socket
import threading
import time
import zlib

import pytest

from tests.expectations import raises
from tests.responders import api_server
from tests.responders.api_server import KEY, anthropic_body, openai_body, question, questions
from winobench.base.errors import InputError
from winobench.responders import hosted
from winobench.responders.hosted import HostedModel
from winobench.runs.requests import Generation, Turn

GOOD = {"openai": openai_body("Option 1"), "anthropic": anthropic_body("Option 1")}


@contextlib.contextmanager
def serving(behaviour):
    """The address of a server that reads each request and leaves the answer to ``behaviour(connection, number)``."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()
    calls = []

    def received(connection):
        # Who hangs up before the end is no longer waited for: an endless loop would slow all tests that follow.
        part = connection.recv(65536)
        if not part:
            raise ConnectionResetError
        return part

    def answer(connection):
        with connection, contextlib.suppress(OSError):
            request = b""
            while b"\r\n\r\n" not in request:
                request += received(connection)
            head, _, body = request.partition(b"\r\n\r\n")
            length = int(next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))[15:])
            while len(body) < length:
                body += received(connection)
            calls.append(head)
            behaviour(connection, len(calls), ended)

    def accept():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", calls
    finally:
        ended.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def whole(body, *headers):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = ["HTTP/1.1 200 OK", "Content-Type: application/json", f"Content-Length: {len(content)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + content


def sending(head, piece, seconds=0.0):
    def behaviour(connection, number, ended):
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + head)
        while not ended.wait(seconds):
            connection.sendall(piece)

    return behaviour


def bomb(connection, number, ended):
    packed = zlib.compressobj(wbits=31)
    content = packed.compress(bytes(2**26)) + packed.flush()
    connection.sendall(whole(content, "Content-Encoding: gzip"))


LARGE = {
    "endless": sending(b"\r\n", b" " * 65536),
    "declared": sending(b"Content-Length: 1000000000000\r\n\r\n", b" " * 65536),
    "chunks": sending(b"Transfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + b" " * 65536 + b"\r\n"),
    "bomb": bomb,
}
SLOW = {
    "body": sending(b"Content-Length: 100000\r\n\r\n", b" ", 0.05),
    "no length": sending(b"Connection: close\r\n\r\n", b" ", 0.05),
    "headers": sending(b"X-Header: ", b"x", 0.05),
    "nothing": lambda connection, number, ended: ended.wait(60),
}


@pytest.fixture(params=["openai", "anthropic"])
def api(request, monkeypatch):
    api_server.set_keys(monkeypatch)
    return request.param


def make(api, address, **options):
    return HostedModel(f"{api}:m@{address}", **{"first_wait": 0.01, "timeout": 20.0, "attempts": 2, **options})


@pytest.mark.parametrize("behaviour", LARGE)
def test_too_large_an_answer_is_one_failed_call(api, behaviour, monkeypatch):
    monkeypatch.setattr(hosted.api.Api, "largest_answer", 2**20)
    with serving(LARGE[behaviour]) as (address, calls):
        model = make(api, address)
        ((index, raw),) = model.ask(questions(1))
    assert index == 0
    assert raw["error"]["kind"] == "unusable"
    assert raw["error"]["message"] == "the answer has more than 1 MB. It may have been billed"
    assert len(calls) == 1  # each attempt may cost money


@pytest.mark.parametrize("behaviour", SLOW)
def test_a_call_that_takes_too_long_is_given_up(api, behaviour):
    with serving(SLOW[behaviour]) as (address, calls):
        model = make(api, address, timeout=0.1)
        started = time.monotonic()
        ((_, raw),) = model.ask(questions(1))
        assert time.monotonic() - started < 30  # where the servers would keep it for ever, on a machine however busy
    assert raw["error"] == {"kind": "timeout", "message": "no whole answer within 0.1 s", "attempts": 2} or (
        behaviour == "nothing" and raw["error"]["kind"] == "timeout"
    )
    assert len(calls) <= 2


def test_headers_without_end_are_a_failed_call(api):
    endless = sending(b"", b"X-Header: " + b"x" * 1000 + b"\r\n")
    with serving(endless) as (address, _):
        ((_, raw),) = make(api, address, timeout=5).ask(questions(1))
    assert raw["error"]["kind"] in ("connection", "timeout")


def test_answers_after_a_late_one_are_whole(api):
    def behaviour(connection, number, ended):
        if number == 2:
            ended.wait(60)
        connection.sendall(whole(GOOD[api]))

    with serving(behaviour) as (address, _):
        model = make(api, address, timeout=0.25, concurrency=1, attempts=8)  # a busy machine may be late by itself, too
        raws = dict(model.ask(questions(4)))
        assert [model.read(question("?"), raws[index]).text for index in range(4)] == ["Option 1"] * 4
        assert max(raw["attempts"] for raw in raws.values()) > 1


@pytest.mark.parametrize(
    ("packed", "headers", "text"),
    [
        (lambda content: content, [], "Option 1"),
        (gzip.compress, ["Content-Encoding: gzip"], "Option 1"),
        (lambda content: gzip.compress(content)[:-30], ["Content-Encoding: gzip"], None),
        (lambda content: b"no gzip", ["Content-Encoding: gzip"], None),
        (lambda content: content, ["Content-Encoding: br"], None),
        # JSON is in UTF-8, whatever a header says; some of Python's codecs would make lone surrogates.
        (lambda content: content, ["Content-Type: application/json; charset=unicode_escape"], "Option 1"),
        (lambda content: content.replace(b"Option 1", b"Option 1 \xff"), [], "Option 1 \ufffd"),
    ],
)
def test_packed_and_oddly_coded_answers(api, packed, headers, text):
    content = packed(json.dumps(GOOD[api]).encode())
    with serving(lambda connection, *_: connection.sendall(whole(content, *headers))) as (address, _):
        model = make(api, address, attempts=1)
        ((_, raw),) = model.ask(questions(1))
        if text is None:
            assert raw["error"]["kind"] == "unusable" or json.loads(raw["body"]) is None
        else:
            assert model.read(question("?"), raw).text == text


def escaped(text):
    return "".join(f"\\u{ord(letter):04x}" if number % 2 else letter for number, letter in enumerate(text))


@pytest.mark.parametrize(
    "hide",
    [
        lambda key: key,
        escaped,
        lambda key: "".join(f"\\u{ord(letter):04X}" for letter in key),
        lambda key: key[:9] + escaped(key[9:]),
    ],
)
def test_the_key_is_blanked_however_it_is_written(api, hide):
    hidden = json.dumps({**GOOD[api], "x-debug": "KEY"}).replace("Option 1", "the key is KEY").replace("KEY", hide(KEY))
    head = f"x-request-id: {KEY}"
    with serving(lambda connection, *_: connection.sendall(whole(hidden.encode(), head))) as (address, _):
        model = make(api, address)
        ((_, raw),) = model.ask(questions(1))
        response = model.read(question("?"), raw)
    assert response.text == "the key is [key]"
    for kept in (json.dumps(raw), json.dumps(json.loads(raw["body"]))):
        assert KEY not in kept
        assert KEY[4:20] not in kept


def test_a_key_in_parts_is_blanked_where_they_meet(api):
    parts = [{"type": "text", "text": "key: " + KEY[:10]}, {"type": "text", "text": KEY[10:]}]
    body = openai_body(parts) if api == "openai" else {**anthropic_body(), "content": parts}
    model = make(api, "http://127.0.0.1:1")
    assert model.read(question("?"), {"body": json.dumps(body)}).text == "key: [key]"


@pytest.mark.parametrize("status", [404, 500])
@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"message": "half \\ud83d", "code": ["\\ud83d"]}}',
        b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"error": {"message": "' + b"x" * 300_000 + b'\\u001b[2J\\n\\n"}}',
        b'{"error": {"message": 1' + b"0" * 5000 + b"}}",
        b"\xff\xfe\x00",
        b"",
    ],
)
def test_odd_words_about_an_error_are_one_line(api, status, body):
    head = f"HTTP/1.1 {status} Odd\r\nContent-Length: {len(body)}\r\n".encode()
    head += b"Retry-After-Ms: 1\r\n\r\n"
    with serving(lambda connection, *_: connection.sendall(head + body)) as (address, _):
        model = make(api, address, attempts=2)
        try:
            ((_, raw),) = model.ask(questions(1))
        except InputError as error:
            message = str(error)
        else:
            message = raw["error"]["message"]
    assert len(message) < 600
    assert message.isprintable()
    message.encode()


@pytest.mark.parametrize(
    "value", ["inf", "-inf", "nan", "9" * 400, "1e999", "Fri, 31 Dec 99999 23:59:59 GMT", "9" * 400 + "d", "-1", "²"]
)
def test_odd_waits_are_read(value):
    assert hosted.api.requested_wait({"retry-after": value, "retry-after-ms": value}) >= 0
    assert hosted.api.requested_wait({"retry-after": value}) >= 0


@pytest.mark.parametrize(
    "usage",
    [None, [], "12", {"prompt_tokens": "7"}, *({name: value for name in
        ("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens")} for value in
        (-1, 1.5, float("nan"), float("inf"), True, 10**60, {}, None))],
)  # fmt: skip
def test_odd_numbers_of_tokens_are_not_known_ones(api, usage):
    model = make(api, "http://127.0.0.1:1", prices={"m": (1.0, 1.0)})
    response = model.read(question("?"), {"body": json.dumps({**GOOD[api], "usage": usage})})
    assert (response.text, response.output_tokens) == ("Option 1", None)
    assert model.cost(response) is None


def test_a_number_of_tokens_of_thousands_of_digits_does_not_cost_the_answer(api):
    body = json.dumps(GOOD[api]).replace('_tokens": 5', '_tokens": ' + "9" * 5000)
    model = make(api, "http://127.0.0.1:1", prices={"m": (1.0, 1.0)})
    response = model.read(question("?"), {"body": body})
    assert (response.text, response.output_tokens, model.cost(response)) == ("Option 1", None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": float("nan")}, ("out-of-range", "nan", "0")),
        ({"timeout": float("inf")}, ("out-of-range", "inf", "86,400")),
        ({"first_wait": -1.0}, ("out-of-range", "first_wait", "0")),
        ({"longest_wait": float("nan")}, ("out-of-range", "longest_wait", "0")),
        ({"concurrency": True}, ("out-of-range", "concurrency", "True")),
        ({"attempts": 10**9}, ("out-of-range", "1,000")),
        ({"extra_body": {"x": float("nan")}}, ("not-json", "extra_body", "NaN")),
        ({"extra_body": {"x": "\ud83d"}}, ("not-json", "extra_body")),
        ({"extra_body": [1]}, ("not-json", "extra_body")),
        ({"base_url": "http://127.0.0.1:1/v1\nx"}, ("bad-url", "URL")),
        ({"base_url": 5}, ("bad-url", "URL")),
        ({"prices": {"m": (float("nan"), 1.0)}}, ("out-of-range", "price", "nan")),
    ],
)
def test_options_that_cannot_be_are_one_sentence(api, options, message):
    with raises(*message) as error:
        HostedModel(f"{api}:m", **{"base_url": "http://127.0.0.1:1/v1", **options})
    str(error.value).encode()
    assert "\n" not in str(error.value)


def test_texts_that_cannot_be_sent_are_one_sentence_before_anything_is_asked(api):
    with raises("lone-surrogate"):
        list(make(api, "http://127.0.0.1:1").ask([*questions(2), Generation((Turn("user", "\ud83d"),))]))


@pytest.mark.parametrize("value", ["a\nb", "a\0b", "é\u4e2d"])
@pytest.mark.parametrize("variable", ["OPENAI_ORG_ID", "OPENAI_PROJECT_ID"])
def test_headers_that_cannot_be_sent_are_one_sentence_at_once(monkeypatch, variable, value):
    monkeypatch.setattr(os, "environ", {**os.environ, variable: value})  # the system's own table takes no NUL
    wanted = raises("cannot-connect")
    with serving(lambda *_: None) as (url, calls), wanted:
        list(make("openai", url, attempts=8).ask(questions(2)))
    assert not calls


def test_a_proxy_that_cannot_be_is_one_sentence(api, monkeypatch):
    monkeypatch.setenv("https_proxy", "nonsense://x")
    with raises("cannot-connect"):
        HostedModel(f"{api}:m")
