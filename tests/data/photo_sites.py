"""Web sites with photographs on this machine, which fail in the ways of real ones; each name of a site is a host."""

import contextlib
import io
import threading
import time

import numpy as np
from PIL import Image

from tests.data import web_server


def photograph(seed=0, size=(40, 30)):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


class Sites:
    """What was asked for: (host, path, User-Agent, begin, end) of each request, and how many were under way at once."""

    def __init__(self, port):
        self.port = port
        self.noted = []
        self.under_way, self.most = {}, {}
        self.busy_left = 1

    def url(self, path, host="127.0.0.1"):
        return f"http://{host}:{self.port}{path}"

    @property
    def requests(self):
        """The requests. A client may have its answer before the server has noted its request, which is waited for."""
        deadline = time.monotonic() + 5
        while any(self.under_way.values()) and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.noted

    def paths(self):
        return [path for _, path, *_ in self.requests]


@contextlib.contextmanager
def running():
    lock = threading.Lock()

    def answer(handler):
        host, begin = handler.headers["Host"], time.monotonic()
        with lock:
            sites.under_way[host] = sites.under_way.get(host, 0) + 1
            sites.most[host] = max(sites.most.get(host, 0), sites.under_way[host])
        try:
            with contextlib.suppress(ConnectionError):
                _answer(handler, sites)
        finally:
            with lock:
                sites.under_way[host] -= 1
                sites.noted.append((host, handler.path, handler.headers["User-Agent"], begin, time.monotonic()))

    with web_server.listening(answer) as port:
        sites = Sites(port)
        yield sites


def _answer(handler, sites):
    kind = handler.path.split("?")[0].strip("/").split("/")[0]
    moved = {"moved": "/photo/moved", "loop": handler.path, "to-file": "file:///etc/hostname"}
    bodies = {
        "page": (b"<html>gone</html>", {"Content-Type": "text/html; charset=utf-8"}),
        "disguised": (b"<html>gone</html>", {}),
        "half": (photograph()[:500], {}),
        "truncated": (photograph()[:500], {"Content-Length": str(len(photograph()))}),
    }
    if kind == "photo":
        _send(handler, 200, photograph(len(handler.path)))
    elif kind in moved:
        _send(handler, 302, b"", {"Location": moved[kind]})
    elif kind in bodies:
        _send(handler, 200, *bodies[kind])
    elif kind == "slow":
        handler.send_response(200)
        handler.end_headers()
        for byte in photograph():
            handler.wfile.write(bytes([byte]))
            time.sleep(0.05)
    elif kind == "busy" and sites.busy_left:
        sites.busy_left -= 1
        _send(handler, 503, b"", {"Retry-After": "1"})
    elif kind == "busy":
        _send(handler, 200, photograph())
    elif kind == "leave":
        _send(handler, 429, b"", {"Retry-After": "9999"})
    elif kind.isdigit():
        _send(handler, int(kind), b"")
    else:
        _send(handler, 404, b"")


def _send(handler, status, body, headers=None):
    handler.send_response(status)
    for name, value in ({"Content-Type": "image/jpeg", "Content-Length": str(len(body))} | (headers or {})).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)
