"""A hub that cannot be reached is told within seconds, and one that is slow is waited for."""

import contextlib
import http.server
import socket
import threading
import time

import huggingface_hub
import pytest
from huggingface_hub import constants

from tests.expectations import raises
from winobench.base import hub
from winobench.checkpoints import sources
from winobench.data import downloads
from winobench.data.sources import Download


@contextlib.contextmanager
def _refusing():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    yield port


@contextlib.contextmanager
def _silent():
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@contextlib.contextmanager
def _full():
    """A queue of connections that takes none any more: the network's way of swallowing what is sent."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener, contextlib.ExitStack() as stack:
        for _ in range(4):
            one = stack.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextlib.contextmanager
def _answering(seconds=0.0, status=404):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            time.sleep(seconds)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture
def at(monkeypatch, tmp_path):
    """Puts the hub at a port of this machine, with an empty cache and a moment to answer."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hub, "SECONDS", 0.3)
    monkeypatch.setattr(hub, "_found", {})
    monkeypatch.delenv("HF_HUB_ETAG_TIMEOUT", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def use(port):
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{port}")

    yield use
    huggingface_hub.close_session()


@pytest.mark.parametrize("place", [_refusing, _silent, _full])
def test_where_nobody_answers_the_cache_alone_is_asked(at, tmp_path, place):
    with place() as port:
        at(port)
        started = time.monotonic()
        source = sources.resolve("owner/name")
        with raises("hub-not-reached"):
            source.require("model_index.json", "so it is no pipeline")
        assert source.names("") == []
        wanted = Download("images.zip", hub_id="owner/name", filename="images.zip")
        with raises("hub-not-reached"):
            downloads.fetch(wanted, tmp_path, None)
        # Asked once for all of these; the library alone takes 25 to 70 s for each.
        assert time.monotonic() - started < 20


def test_a_name_whose_look_up_hangs(at, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(60))
    at(80)
    started = time.monotonic()
    assert not hub.is_reachable()
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("status", [200, 503])
def test_any_answer_will_do_also_a_late_one(at, monkeypatch, status):
    asked = []
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **options: asked.append(options) or "path")
    monkeypatch.setattr(hub, "SECONDS", 1.0)
    with _answering(0.3, status) as port:
        at(port)
        assert hub.download("owner/name", "file", repo_type="dataset") == "path"
    assert asked == [{"repo_type": "dataset"}]


def test_who_gives_more_time_has_it(at, monkeypatch):
    monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", "3")
    monkeypatch.setattr(constants, "HF_HUB_ETAG_TIMEOUT", 3)
    with _answering(0.5) as port:
        at(port)
        assert hub.is_reachable()


def test_a_network_that_comes_back_is_noticed(at, monkeypatch):
    with _refusing() as port:
        at(port)
        assert not hub.is_reachable()
        monkeypatch.setattr(hub, "_answers", lambda *_: True)
        assert not hub.is_reachable()
        monkeypatch.setattr(hub, "_SECONDS_REMEMBERED", {True: 60.0, False: 0.0})
        assert hub.is_reachable()


def test_a_commit_in_the_cache_needs_no_network(at, tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_answers", lambda *_: pytest.fail("the hub was asked"))
    commit = "a" * 40
    folder = tmp_path / "cache" / "models--owner--name" / "snapshots" / commit
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    with _silent() as port:
        at(port)
        assert sources.resolve("owner/name", revision=commit).find("config.json") == str(folder / "config.json")
