"""The page by real requests: what it shows, that clicks last, and who may ask."""

import http.client
import json
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest

from tests.expectations import names, raises
from tests.wscplus_items import fakes
from winobench.errors import InputError
from winobench.wscplus_items import annotate
from winobench.wscplus_items.items import to_json

ROOT = pathlib.Path(__file__).parents[2]
ITEMS = fakes.items()
IDS = [item.id for item in ITEMS]


def ask(server, method, path, body=None, headers=(), port=None):
    """A request to the page's server: status and text."""
    connection = http.client.HTTPConnection("127.0.0.1", port or server.server_port, timeout=10)
    kind = {"Content-Type": "application/json"} if body is not None else {}
    text = json.dumps(body) if isinstance(body, dict) else body
    connection.request(method, path, text, {**kind, **dict(headers)})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def click(server, item, label):
    return ask(server, "POST", "/label", {"item": item, "label": label})


@pytest.fixture
def opened(tmp_path):
    with annotate.Annotations(tmp_path, "anna") as annotations, annotate.serve(ITEMS, annotations, 0) as server:
        yield annotations, server


def test_the_page_and_its_items(opened):
    _, server = opened
    assert server.server_address[0] == "127.0.0.1"
    status, page = ask(server, "GET", "/")
    assert status == 200
    assert "annotator anna" in page
    # Nothing is loaded from elsewhere.
    assert "http://" not in page
    assert "https://" not in page
    assert "src=" not in page
    status, text = ask(server, "GET", "/items")
    content = json.loads(text)
    assert (status, content["annotator"], content["labels"]) == (200, "anna", {})
    assert sorted(item["id"] for item in content["items"]) == sorted(IDS)
    # No generator, template or query: they could sway the judgement.
    assert {key for item in content["items"] for key in item} == {"id", "type", "sentences"}
    assert ask(server, "GET", "/other")[0] == 404
    assert ask(server, "POST", "/other", {})[0] == 404


def test_clicks_are_on_disk_before_they_are_answered(opened):
    annotations, server = opened
    assert click(server, IDS[0], "valid")[0] == 200
    lines = annotations.path.read_text().splitlines()
    assert [json.loads(line)["label"] for line in lines] == ["valid"]
    click(server, IDS[1], "semi-valid")
    click(server, IDS[0], "invalid")  # the last one counts
    click(server, IDS[1], None)  # taken back
    assert len(annotations.path.read_text().splitlines()) == 4
    labels = {IDS[0]: "invalid"}
    assert json.loads(ask(server, "GET", "/items")[1])["labels"] == labels
    assert annotate.read_annotations(annotations.path.parent) == {"anna": labels}


def test_a_restart_goes_on(tmp_path):
    for number, labels in enumerate((["valid", "invalid"], ["semi-valid"])):
        with annotate.Annotations(tmp_path, "anna") as annotations, annotate.serve(ITEMS, annotations, 0) as server:
            for place, label in enumerate(labels):
                click(server, IDS[2 * number + place], label)
    # A kill in the middle of a line: the click was not answered, and does not count.
    with (tmp_path / "anna.jsonl").open("a") as file:
        file.write('{"item": "abc", "lab')
    expected = {IDS[0]: "valid", IDS[1]: "invalid", IDS[2]: "semi-valid"}
    assert annotate.read_annotations(tmp_path) == {"anna": expected}
    with annotate.Annotations(tmp_path, "anna") as annotations:
        assert annotations.labels == expected
        annotations.add(IDS[3], "valid")
    assert annotate.read_annotations(tmp_path)["anna"] == {**expected, IDS[3]: "valid"}


def test_people_do_not_see_each_others_labels(tmp_path):
    with (
        annotate.Annotations(tmp_path, "anna") as anna,
        annotate.Annotations(tmp_path, "ben") as ben,
        annotate.serve(ITEMS, anna, 0) as first,
        annotate.serve(ITEMS, ben, 0) as second,
    ):
        click(first, IDS[0], "valid")
        assert json.loads(ask(second, "GET", "/items")[1])["labels"] == {}
        orders = [[one["id"] for one in json.loads(ask(s, "GET", "/items")[1])["items"]] for s in (first, second)]
    assert orders[0] == orders[1] != IDS
    assert annotate.read_annotations(tmp_path) == {"anna": {IDS[0]: "valid"}, "ben": {}}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        ({"item": "nobody", "label": "valid"}, {}, 400),
        ({"item": IDS[0], "label": "good"}, {}, 400),
        ({"label": "valid"}, {}, 400),
        ("[1]", {}, 400),
        ("no json", {}, 400),
        ({"item": IDS[0], "label": "valid"}, {"Content-Type": "text/plain"}, 400),
        ({"item": IDS[0], "label": "valid", "more": "x" * 20_000}, {}, 400),
        ({"item": IDS[0], "label": "valid"}, {"Origin": "http://evil.example"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Origin": "http://127.0.0.1:1"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Host": "evil.example"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Host": "[localhost"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Host": "x@127.0.0.1"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Host": "127.0.0.1:80@evil.example"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Host": "127.0.0.1.evil.example"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Host": "localhost", "Origin": "https://localhost"}, 403),
        ({"item": IDS[0], "label": "valid"}, {"Host": "localhost", "Origin": "null"}, 403),
        ({"item": [[]], "label": {}}, {}, 400),
        ({"item": IDS[0], "label": True}, {}, 400),
        ({"item": IDS[0], "label": "valid"}, {"Host": "localhost:8765", "Origin": "http://localhost:8765"}, 200),
    ],
)
def test_what_is_no_click_is_refused(opened, body, headers, status):
    annotations, server = opened
    assert ask(server, "POST", "/label", body, headers)[0] == status
    assert bool(annotations.labels) == (status == 200)


def test_a_full_disk_is_told(opened, monkeypatch):
    annotations, server = opened
    click(server, IDS[0], "valid")
    with monkeypatch.context() as patched:
        patched.setattr(annotate.os, "fsync", _fail)
        status, text = click(server, IDS[1], "valid")
    assert (status, "No space left" in text) == (500, True)
    assert annotations.labels == {IDS[0]: "valid"}
    assert click(server, IDS[1], "invalid")[0] == 200
    assert annotate.read_annotations(annotations.path.parent)["anna"] == {IDS[0]: "valid", IDS[1]: "invalid"}


def _fail(descriptor):
    raise OSError(28, "No space left on device")


def test_a_killed_server_has_lost_nothing(tmp_path):
    (tmp_path / "items.json").write_text(json.dumps([to_json(item) for item in ITEMS]))
    program = """if True:
        import json, sys, threading
        from winobench.wscplus_items import annotate, items
        found = [items.from_json(one) for one in json.load(open("items.json"))]
        with annotate.Annotations(".", "anna") as annotations, annotate.serve(found, annotations, 0) as server:
            print(server.server_port, flush=True)
            threading.Event().wait()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}
    )
    try:
        port = int(process.stdout.readline())
        for item in IDS[:3]:
            assert ask(None, "POST", "/label", {"item": item, "label": "valid"}, port=port)[0] == 200
        with pytest.raises(InputError, match=names("'anna'")):
            annotate.Annotations(tmp_path, "anna").__enter__()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert annotate.read_annotations(tmp_path) == {"anna": dict.fromkeys(IDS[:3], "valid")}


def test_bad_input(tmp_path, opened):
    _, server = opened
    for name in ("", "../anna", "a b", "x" * 41):
        with raises("bad-name"):
            annotate.Annotations(tmp_path, name)
    with (
        raises("port-not-free", str(server.server_port)),
        annotate.Annotations(tmp_path, "ben") as ben,
        annotate.serve(ITEMS, ben, server.server_port),
    ):
        pass
    (tmp_path / "carl.jsonl").write_text('{"item": "a", "label": "fine"}\n')
    with pytest.raises(InputError, match=names("carl.jsonl", "1")):
        annotate.read_annotations(tmp_path)
    (tmp_path / "file").write_text("")
    with raises("cannot-write"), annotate.Annotations(tmp_path / "file", "anna"):
        pass


@pytest.mark.parametrize("path", ["/", "/items", "/absent", "//[", "/?x=1"])
def test_no_other_page_can_frame_or_read_this_one(opened, path):
    _, server = opened
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read().decode()
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    policy = answer.headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    if body.startswith("<!"):
        (nonce,) = re.findall(r'<script nonce="([^"]+)">', body)
        assert f"script-src 'nonce-{nonce}'" in policy
        assert body.count("<script") == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST /label HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
        + b"9" * 5000
        + b"\r\n\r\n",
        b"POST /label HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n"
        + b"[" * 9000,
        b"POST /label HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        + b'"\\ud800"x',
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
    ],
    ids=range(8),
)
def test_odd_requests_are_answered_and_write_nothing_to_the_terminal(opened, capfd, raw):
    annotations, server = opened
    with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as connection:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert b" 200 " not in answer.partition(b"\r\n")[0]
    assert ask(server, "GET", "/items")[0] == 200
    assert annotations.labels == {}
    said = capfd.readouterr()
    assert said.out + said.err == ""


def test_a_fault_of_the_server_is_one_line(opened, capfd, monkeypatch):
    _, server = opened

    def broken(name):
        raise RuntimeError("broken")

    monkeypatch.setattr(annotate, "page", broken)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(server, "GET", "/")
    assert capfd.readouterr().err == "error: a request to the page failed (RuntimeError: broken)\n"


@pytest.mark.parametrize(
    "line",
    [
        b'{"item": {"a": 1}, "label": "valid"}',
        b'{"item": 5, "label": "valid"}',
        b'{"item": "a", "label": ["valid"]}',
        b"[" * 100_000,
        b'{"item": "a", "label": ' + b"9" * 5000 + b"}",
        b'"valid"',
        b"\xff",
    ],
)
def test_a_line_that_is_no_label_is_named(line):
    with pytest.raises(InputError, match=names("anna.jsonl", "1")):
        annotate._labels(line, pathlib.Path("anna.jsonl"))
