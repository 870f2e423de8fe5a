"""The local server by real requests: who may ask, what a browser is told, and what ends a connection."""

import contextlib
import http.client
import os
import socket
import time

import pytest
from starlette.responses import Response
from starlette.routing import Route

from tests.expectations import raises
from tests.web.asking import ask_for_all
from winobench import web

POST = b"POST /sent?token=TOKEN HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CONTENT = bytes(range(256)) * 1024


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = tmp_path_factory.mktemp("served") / "file"
    path.write_bytes(CONTENT)
    return path


@contextlib.contextmanager
def serving(place, **options):
    async def sent(request):
        try:
            return web.json_answer(await web.short_json(request))
        except ValueError as error:
            return web.json_answer({"error": str(error)}, 400)

    def broken(request):
        raise RuntimeError("broken")

    routes = [
        Route("/", lambda request: Response("page")),
        Route("/file", lambda request: web.file_answer(os.open(place, os.O_RDONLY), "text/plain")),
        Route("/value", lambda request: web.content_answer(b"{}", "application/json")),
        Route("/sent", sent, methods=["POST"]),
        Route("/broken", broken),
    ]
    with web.serve(routes, 0, **options) as server:
        yield server


@pytest.fixture(scope="module")
def server(place):
    with serving(place) as running:
        yield running


@pytest.fixture(scope="module")
def with_cookie(place):
    with serving(place, cookie=True) as running:
        yield running


def large(folder, size):
    place = folder / "large"
    place.write_bytes(b"")
    os.truncate(place, size)
    return place, size


def plain(server, path, headers=(), method="GET", body=None):
    """A request without a token in its address."""
    connection = web_connection(server)
    connection.request(method, path, body, dict(headers))
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content, answer.headers


def web_connection(server):
    return http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)


def raw(server, request):
    """What the server sends until it ends the connection."""
    with socket.create_connection(server.server_address, timeout=10) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def test_it_listens_on_this_computer_alone(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/?token={server.token}"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "localhost", "Origin": "http://localhost"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "x@127.0.0.1"}, 403),
        ({"Host": "127.0.0.1:80@evil.example"}, 403),
        ({"Host": "127.0.0.1:"}, 403),
        ({"Host": ""}, 403),
        ({"Origin": "null"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "localhost", "Origin": "https://localhost"}, 403),
        ({"Host": "localhost:1", "Origin": "http://localhost:2"}, 403),
    ],
)
def test_hosts_and_origins(server, headers, status):
    assert ask_for_all(server, "GET", "/", headers=headers)[0] == status


@pytest.mark.parametrize("name", ["Host", "Origin"])
def test_a_header_twice_is_refused(server, name):
    lines = f"Host: localhost\r\n{name}: http://evil.example" if name == "Origin" else "Host: evil.example"
    request = f"GET /?token={server.token} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\nConnection: close\r\n\r\n"
    assert b" 200 " not in raw(server, request.encode()).partition(b"\r\n")[0]


def test_without_a_cookie_every_address_needs_the_token(server):
    for token in ("", "wrong", "%00", "x" * 5_000, f"{server.token}&token={server.token}"):
        assert ask_for_all(server, "GET", "/file", token=token)[0] == 403
    assert plain(server, "/file", {"Cookie": f"{server.cookie}={server.token}"})[0] == 403


def test_the_printed_address_gives_a_cookie(with_cookie):
    server = with_cookie
    status, _, headers = ask_for_all(server, "GET", "/")
    assert (status, headers["Location"]) == (303, "./")
    cookie, *rules = headers["Set-Cookie"].split("; ")
    assert {rule.lower() for rule in rules} == {"httponly", "path=/", "samesite=strict"}
    assert plain(server, "/", {"Cookie": cookie})[:2] == (200, b"page")
    assert plain(server, "/file", {"Cookie": cookie})[1] == CONTENT
    assert ask_for_all(server, "GET", "/file")[0] == 200
    for other in ("", "winobench=1", f"{server.cookie}=wrong", f"winobench_1={server.token}"):
        assert plain(server, "/file", {"Cookie": other})[0] == 403
    assert ask_for_all(server, "GET", "/file", headers={"Cookie": cookie}, token="wrong")[0] == 403


@pytest.mark.parametrize("site", ["same-origin", "none", "same-site", "cross-site"])
def test_a_cookie_does_not_help_other_servers_of_this_computer(with_cookie, site):
    cookie = f"{with_cookie.cookie}={with_cookie.token}"
    found = plain(with_cookie, "/file", {"Cookie": cookie, "Sec-Fetch-Site": site})[0]
    assert found == (200 if site in ("same-origin", "none") else 403)


@pytest.mark.parametrize("path", ["/", "/file", "/absent", "/broken", "/?token=wrong&"])
def test_every_answer_has_the_headers(server, path, capfd):
    _, _, headers = ask_for_all(server, "GET", path)
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Server"] is None


def test_a_fault_is_one_line(server, capfd):
    status, content, _ = ask_for_all(server, "GET", "/broken")
    assert (status, b"terminal" in content) == (500, True)
    assert capfd.readouterr().err == "error: a request to the page failed (RuntimeError: broken)\n"


@pytest.mark.parametrize(
    ("wanted", "status", "expected"),
    [
        (None, 200, CONTENT),
        ("bytes=0-3", 206, CONTENT[:4]),
        ("bytes=1000-", 206, CONTENT[1000:]),
        ("bytes=-8", 206, CONTENT[-8:]),
        (f"bytes=-{10 * len(CONTENT)}", 206, CONTENT),
        ("bytes=5-999999999", 206, CONTENT[5:]),
        ("bytes=999999999-", 416, b""),
        ("bytes=" + ",".join(f"{k}-" for k in range(5_00)), 200, CONTENT),
        ("bytes=0-0,-1", 200, CONTENT),
        ("bytes=x-y", 400, None),
        ("lines=1-2", 400, None),
    ],
)
def test_ranges(server, wanted, status, expected):
    found, content, headers = ask_for_all(server, "GET", "/file", headers={} if wanted is None else {"Range": wanted})
    assert found == status
    if expected is not None:
        assert content == expected
    if status == 206:
        assert headers["Content-Range"].endswith(f"/{len(CONTENT)}")


@pytest.mark.parametrize("path", ["/file", "/value"])
def test_what_a_browser_has_is_not_sent_again(server, path):
    _, _, headers = ask_for_all(server, "GET", path)
    for tag in (headers["ETag"], f'"other", {headers["ETag"]}'):
        assert ask_for_all(server, "GET", path, headers={"If-None-Match": tag})[:2] == (304, b"")
    assert ask_for_all(server, "GET", path, headers={"If-None-Match": '"other"'})[0] == 200


def test_files_are_closed(server, place):
    def num_open():
        links = (os.path.join("/dev/fd", name) for name in os.listdir("/dev/fd"))
        return sum(os.path.exists(link) and os.path.samefile(link, place) for link in links)

    for headers in ({}, {"Range": "bytes=0-3"}, {"Range": "bytes=999999999-"}, {"If-None-Match": "x"}):
        ask_for_all(server, "GET", "/file", headers=headers)
    end = time.monotonic() + 5
    while num_open() and time.monotonic() < end:
        time.sleep(0.01)
    assert num_open() == 0


def test_a_file_that_shrinks_while_it_is_sent_ends_the_connection(tmp_path, capfd):
    place, size = large(tmp_path, 64 * 2**20)
    with serving(place) as server, web_connection_to(server, "/file") as answer:
        assert answer.read(1000)
        os.truncate(place, 1000)
        assert len(answer.rest()) < size - 1000
        assert ask_for_all(server, "GET", "/")[0] == 200
    assert capfd.readouterr().err.count("\n") <= 1


class web_connection_to:
    """An answer that is read bit by bit."""

    def __init__(self, server, path):
        self._connection = web_connection(server)
        self._connection.request("GET", f"{path}?token={server.token}")
        self._answer = self._connection.getresponse()
        self.read = self._answer.read

    def rest(self):
        try:
            return self._answer.read()
        except http.client.IncompleteRead as error:
            return error.partial

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._connection.close()


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"a": 1}', {}, 200),
        (b'{"a": 1}', {"Content-Type": "application/json; charset=utf-8"}, 200),
        (b'{"a": 1}', {"Content-Type": "text/plain"}, 400),
        (b"[" * 9_000, {}, 400),
        (b'{"a": "' + b"x" * 20_000 + b'"}', {}, 400),
        (b"{", {}, 400),
        (b"", {"Content-Length": "0"}, 400),
    ],
)
def test_bodies(server, body, headers, status):
    found = ask_for_all(server, "POST", "/sent", body, {"Content-Type": "application/json", **headers})
    assert found[0] == status


@pytest.mark.parametrize(
    "lines",
    ["Transfer-Encoding: chunked", *(f"Content-Length: {n}" for n in (-1, 99999999999, "1\r\nContent-Length: 2"))],
)
def test_bodies_without_a_short_length_are_refused(server, lines):
    request = POST.replace(b"TOKEN", server.token.encode()) + lines.encode() + b"\r\nConnection: close\r\n\r\n"
    assert b" 400 " in raw(server, request).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    "sent",
    [b"", b"GET /?token=TOKEN HT", POST + b"Content-Length: 9\r\n\r\n{"],
    ids=["nothing", "half a line", "half a body"],
)
def test_silence_ends_a_connection(place, monkeypatch, capfd, sent):
    monkeypatch.setattr(web.server, "_SECONDS_OF_SILENCE", 0.2)
    with serving(place) as server:
        began = time.monotonic()
        with contextlib.suppress(ConnectionError):
            assert raw(server, sent.replace(b"TOKEN", server.token.encode())) == b""
        assert time.monotonic() - began < 5
        assert ask_for_all(server, "GET", "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_who_does_not_read_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(web.server, "_SECONDS_OF_SILENCE", 0.2)
    place, size = large(tmp_path, 256 * 2**20)
    with serving(place) as server, socket.create_connection(server.server_address) as connection:
        connection.sendall(f"GET /file?token={server.token} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(1)
        received = 0
        with contextlib.suppress(ConnectionError):
            while content := connection.recv(2**20):
                received += len(content)
        assert received < size


@pytest.mark.parametrize(
    "request_",
    [
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\nConnection: close\r\n\r\n",
        b"x" * 100_000,
        b"GET //[ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
)
def test_odd_requests_write_nothing_to_the_terminal(server, capfd, request_):
    with contextlib.suppress(ConnectionError):
        assert b" 200 " not in raw(server, request_)
    assert ask_for_all(server, "GET", "/")[0] == 200
    said = capfd.readouterr()
    assert said.out + said.err == ""


def test_a_port_that_is_taken(server, place, monkeypatch):
    with raises("port-not-free", str(server.server_port), "--port"), web.serve([], server.server_port):
        pass
    monkeypatch.setattr(web.server, "PORT", server.server_port)
    with web.serve([]) as other:
        assert other.server_port != server.server_port


def test_a_host_that_is_allowed(place):
    """Under its own name alone, by HTTP and HTTPS, and with the token."""
    with serving(place, cookie=True, hosts=["Hub.example", "hub.example:8443"]) as server:
        path = f"/?token={server.token}"
        for host in ("hub.example", "HUB.example", "hub.example:8443", "localhost"):
            assert plain(server, path, {"Host": host})[0] == 303
            assert plain(server, "/file", {"Host": host})[0] == 403
        kept = {"Host": "hub.example", "Cookie": f"{server.cookie}={server.token}"}
        for origin, status in (
            ("https://hub.example", 200),
            ("http://hub.example", 200),
            ("https://localhost", 403),
            ("https://evil.example", 403),
            ("null", 403),
        ):
            assert plain(server, "/file", {**kept, "Origin": origin})[0] == status
        assert plain(server, "/file", {**kept, "Sec-Fetch-Site": "same-site"})[0] == 403
        for host in ("hub.example:1", "x.hub.example", "hub.example.evil", "evil.example", "x@hub.example", ""):
            assert plain(server, path, {"Host": host})[0] == 403


@pytest.mark.parametrize("host", ["*", "", "https://hub.example", "hub.example/x", ".example", "a b", "hub:port"])
def test_a_host_that_cannot_be(place, host):
    with raises("bad-name"), serving(place, hosts=[host]):
        pass


def test_two_servers_have_cookies_of_their_own(place, with_cookie):
    """Also where both have one port for the browser, because it reaches them by other computers' tunnels."""
    with serving(place, cookie=True) as other:
        assert other.cookie != with_cookie.cookie
        both = {"Cookie": "; ".join(f"{one.cookie}={one.token}" for one in (other, with_cookie))}
        for server in (other, with_cookie):
            assert plain(server, "/file", both)[0] == 200


def test_refused_requests_have_the_same_headers(with_cookie):
    kept = {"Cookie": f"{with_cookie.cookie}={with_cookie.token}"}
    granted = plain(with_cookie, "/value", kept)[2]
    names = [name for name in granted if name.lower() not in ("date", "content-length", "content-type", "etag")]
    assert "content-security-policy" in {name.lower() for name in names}
    for path, headers in ("/value", {}), ("/value", {**kept, "Host": "evil.org"}), ("/nothing", kept), ("/sent", kept):
        status, _, found = plain(with_cookie, path, headers)
        assert status in (403, 404, 405)
        assert {name: found[name] for name in names} == {name: granted[name] for name in names}
    broken = raw(with_cookie, b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nbad header\r\n\r\n").decode()
    assert broken.startswith("HTTP/1.1 400 ")
    assert all(f"{name}: {granted[name]}".lower() in broken.lower() for name in names)
