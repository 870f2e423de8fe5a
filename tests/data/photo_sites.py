"""Web sites with photographs on this machine, which fail in the ways of real ones; each name of a site is a host."""

import contextlib
import http.server
import io
import threading
import time

import numpy as np
from PIL import Image


def photograph(seed=0, size=(40, 30)):
    """A JPEG file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


class Sites:
    """What was asked for: (host, path, User-Agent, begin, end) of each request, and how many were under way at once."""

    def __init__(self, port):
        self.port = port
        self.requests = []
        self.under_way, self.most = {}, {}
        self.busy_left = 1
        self.gate = None  # an event that photographs wait for

    def url(self, path, host="127.0.0.1"):
        return f"http://{host}:{self.port}{path}"

    def paths(self):
        return [path for _, path, *_ in self.requests]


@contextlib.contextmanager
def running():
    """Starts them, and stops them at the end."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            host, begin = self.headers["Host"], time.monotonic()
            with lock:
                sites.under_way[host] = sites.under_way.get(host, 0) + 1
                sites.most[host] = max(sites.most.get(host, 0), sites.under_way[host])
            try:
                with contextlib.suppress(ConnectionError):
                    _answer(self, sites)
            finally:
                with lock:
                    sites.under_way[host] -= 1
                    sites.requests.append((host, self.path, self.headers["User-Agent"], begin, time.monotonic()))

        def log_message(self, *_):
            pass

    lock = threading.Lock()
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    sites = Sites(listener.server_port)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield sites
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def _answer(handler, sites):
    kind = handler.path.split("?")[0].strip("/").split("/")[0]
    if kind == "photo":
        if sites.gate is not None:
            sites.gate.wait(30)
        _send(handler, 200, photograph(len(handler.path)))
    elif kind == "moved":
        _send(handler, 302, b"", {"Location": "/photo/moved"})
    elif kind == "loop":
        _send(handler, 302, b"", {"Location": handler.path})
    elif kind == "to-file":
        _send(handler, 302, b"", {"Location": "file:///etc/hostname"})
    elif kind == "page":
        _send(handler, 200, b"<html>gone</html>", {"Content-Type": "text/html; charset=utf-8"})
    elif kind == "disguised":
        _send(handler, 200, b"<html>gone</html>")
    elif kind == "half":
        _send(handler, 200, photograph()[:500])
    elif kind == "truncated":
        _send(handler, 200, photograph()[:500], {"Content-Length": str(len(photograph()))})
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
