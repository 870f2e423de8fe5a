"""The page's server by real requests: what it shows, that clicks last, and who may ask."""

import contextlib
import json
import pathlib
import re
import socket
from unittest import mock

import pytest

from tests.expectations import raises
from tests.web.asking import ask, ask_for_all, click
from winobench import web
from winobench.contrib.people import judging
from winobench.contrib.people.judging import labels as labels_module

ROOT = pathlib.Path(__file__).parents[4]
CHOICES = ("left", "right")
ITEMS = [{"id": "first", "text": "one"}, {"id": "second", "text": "two"}]
HTML = "<!doctype html><title>page</title><script>show()</script>"


def page(labels):
    return judging.Page(HTML, ITEMS, labels, {"one": b"PNG"}.get)


@pytest.fixture
def opened(tmp_path):
    with judging.Labels(tmp_path, "anna", CHOICES) as labels, judging.serve(page(labels), 0) as server:
        yield labels, server


def test_the_page_its_items_and_pictures(opened):
    _, server = opened
    assert server.server_address[0] == "127.0.0.1"
    status, html = ask(server, "GET", "/")
    assert (status, html.startswith("<!doctype html><title>page</title><script nonce=")) == (200, True)
    status, text = ask(server, "GET", "/items")
    assert (status, json.loads(text)) == (200, {"person": "anna", "items": ITEMS, "labels": {}})
    status, content, headers = ask_for_all(server, "GET", "/pictures/one")
    assert (status, content, headers["Content-Type"]) == (200, b"PNG", "image/png")
    for path in ("/other", "/pictures/two", "/pictures/../one", "/pictures/"):
        assert ask(server, "GET", path)[0] == 404
    assert ask(server, "POST", "/other", {})[0] == 404


def test_clicks_are_on_disk_before_they_are_answered(opened):
    labels, server = opened
    assert click(server, "first", "left")[0] == 200
    assert [json.loads(line)["label"] for line in labels.path.read_text().splitlines()] == ["left"]
    click(server, "second", "left")
    click(server, "first", "right")
    click(server, "second", None)
    assert json.loads(ask(server, "GET", "/items")[1])["labels"] == {"first": "right"}
    assert judging.read_labels(labels.path.parent, CHOICES) == {"anna": {"first": "right"}}


def test_people_do_not_see_each_others_labels(tmp_path):
    with (
        judging.Labels(tmp_path, "anna", CHOICES) as anna,
        judging.Labels(tmp_path, "ben", CHOICES) as ben,
        judging.serve(page(anna), 0) as first,
        judging.serve(page(ben), 0) as second,
    ):
        click(first, "first", "left")
        assert json.loads(ask(second, "GET", "/items")[1])["labels"] == {}
        # One person's address does not open another one's page.
        assert ask(second, "GET", "/items", token=first.token)[0] == 403


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"item": "nobody", "label": "left"}, {}, 400),
        ("no json", {}, 400),
        ({"item": "first", "label": "left"}, {"Content-Type": "text/plain"}, 400),
        ({"item": "first", "label": "left", "more": "x" * 20_000}, {}, 400),
        ({"item": "first", "label": "left"}, {"Origin": "http://evil.example"}, 403),
        ({"item": "first", "label": "left"}, {"Host": "evil.example"}, 403),
        ({"item": "first", "label": "left"}, {"Host": "x@127.0.0.1"}, 403),
        ({"item": "first", "label": "left"}, {"Host": "127.0.0.1:80@evil.example"}, 403),
        ({"item": "first", "label": "left"}, {"Host": "localhost", "Origin": "https://localhost"}, 403),
        ({"item": "first", "label": True}, {}, 400),
        ({"item": "first", "label": "left"}, {"Host": "localhost:8765", "Origin": "http://localhost:8765"}, 200),
    ],
)
def test_what_is_no_click_is_refused(opened, body, headers, status):
    labels, server = opened
    assert ask(server, "POST", "/label", body, headers)[0] == status
    assert bool(labels.labels) == (status == 200)


def test_nothing_is_shown_and_no_click_counts_without_the_token(opened):
    labels, server = opened
    for token in ("", "wrong", "%00", "x" * 5_000, f"{server.token}&token={server.token}"):
        for path in ("/", "/items", "/pictures/one"):
            assert ask(server, "GET", path, token=token)[0] == 403
        assert ask(server, "POST", "/label", {"item": "first", "label": "left"}, token=token)[0] == 403
    assert labels.labels == {}


def test_a_full_disk_is_told(opened, monkeypatch):
    labels, server = opened
    click(server, "first", "left")
    with monkeypatch.context() as patched:
        patched.setattr(labels_module.os, "fsync", mock.Mock(side_effect=OSError(28, "No space left on device")))
        status, text = click(server, "second", "left")
    assert (status, "No space left" in text) == (500, True)
    assert labels.labels == {"first": "left"}
    assert click(server, "second", "right")[0] == 200
    assert judging.read_labels(labels.path.parent, CHOICES)["anna"] == {"first": "left", "second": "right"}


def test_a_port_that_is_taken_is_named(tmp_path, opened):
    _, server = opened
    with (
        raises("port-not-free", str(server.server_port), "--port"),
        judging.Labels(tmp_path, "ben", CHOICES) as ben,
        judging.serve(page(ben), server.server_port),
    ):
        pass


def test_two_people_have_pages_at_the_same_time(tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setattr(web.server, "PORT", taken.getsockname()[1])
        with contextlib.ExitStack() as stack:
            people = [stack.enter_context(judging.Labels(tmp_path, name, CHOICES)) for name in ("anna", "ben")]
            servers = [stack.enter_context(judging.serve(page(labels))) for labels in people]
            ports = {taken.getsockname()[1], *(server.server_port for server in servers)}
            assert len(ports) == 3
            assert [f":{server.server_port}/" in server.address for server in servers] == [True, True]
            assert [ask(server, "GET", "/")[0] for server in servers] == [200, 200]


@pytest.mark.parametrize("path", ["/", "/items", "/absent"])
def test_no_other_page_can_frame_or_read_this_one(opened, path):
    _, server = opened
    _, content, headers = ask_for_all(server, "GET", path)
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    if content.startswith(b"<!"):
        (nonce,) = re.findall(r'<script nonce="([^"]+)">', content.decode())
        assert f"script-src 'nonce-{nonce}'" in policy


POST = b"POST /label?token=TOKEN HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "


@pytest.mark.parametrize(
    "raw",
    [
        b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"9" * 5000 + b"\r\n\r\n",
        POST + b"9000\r\n\r\n" + b"[" * 9000,
        POST + b'9\r\n\r\n"\\ud800"x',
        b"GET /?token=TOKEN HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"\x00\xff\r\n\r\n",
        b"GET /?token=TOKEN HTTP/9.9\r\n\r\n",
    ],
    ids=range(7),
)
def test_odd_requests_are_answered_and_write_nothing_to_the_terminal(opened, capfd, raw):
    labels, server = opened
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(raw.replace(b"TOKEN", server.token.encode()))
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert ask(server, "GET", "/items")[0] == 200
    assert labels.labels == {}
    said = capfd.readouterr()
    assert said.out + said.err == ""


def test_a_fault_of_the_server_is_one_line(tmp_path, capfd):
    broken = mock.Mock(side_effect=RuntimeError("broken"))
    with (
        judging.Labels(tmp_path, "anna", CHOICES) as labels,
        judging.serve(judging.Page(HTML, ITEMS, labels, broken), 0) as server,
    ):
        assert ask(server, "GET", "/pictures/one")[0] == 500
    assert capfd.readouterr().err == "error: a request to the page failed (RuntimeError: broken)\n"
