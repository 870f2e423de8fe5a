"""Web servers on this machine that fail in the ways of real ones, and a display that remembers what it was shown."""

import contextlib
import http.server
import re
import threading
from collections.abc import Iterator


class Server:
    """Serves ``files`` {path: bytes}; ``behaviour`` says what happens to the coming requests, one word each.

    ``"ok"``, a status (``"404"``, ``"503 7"`` with Retry-After), ``"break N"`` (the connection ends after N bytes of
    the answer), ``"no range"`` (the whole file, whatever was asked for), ``"other range"`` (another part than asked
    for) or ``"close"`` (no answer). When none is left, all is well. ``requests`` lists (path, Range, If-Range) of each.
    """

    def __init__(self, address: str):
        self.address = address
        self.files: dict[str, bytes] = {}
        self.behaviour: list[str] = []
        self.requests: list[tuple[str, str | None, str | None]] = []
        self.tag: str | None = '"one"'
        self.states_length = True
        self.odd_length: str | None = None  # instead of a number
        self.kind: str | None = None  # the Content-Type


class Display:
    def __init__(self):
        self.starts, self.count, self.lines = [], 0, []

    def start(self, total, done=0):
        self.starts.append((total, done))

    def advance(self, count):
        self.count += count

    def say(self, line):
        self.lines.append(line)


@contextlib.contextmanager
def listening(answer) -> Iterator[int]:
    """The port of a server that answers requests by ``answer(handler)`` until the end."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            answer(self)

        def log_message(self, *_):
            pass

    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield listener.server_port
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


@contextlib.contextmanager
def running() -> Iterator[Server]:
    with listening(lambda handler: _answer(handler, server)) as port:
        server = Server(f"http://127.0.0.1:{port}")
        yield server


def _answer(handler, server):
    asked = handler.headers["Range"]
    server.requests.append((handler.path, asked, handler.headers["If-Range"]))
    behaviour, *number = (server.behaviour.pop(0) if server.behaviour else "ok").rsplit(" ", 1)
    content = server.files.get(handler.path)
    if behaviour == "close":
        handler.connection.close()
        return
    if behaviour.isdigit() or content is None:
        handler.send_response(int(behaviour) if behaviour.isdigit() else 404)
        if number:
            handler.send_header("Retry-After", number[0])
        handler.send_header("Content-Length", "0")
        handler.end_headers()
        return
    start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
    fresh = handler.headers["If-Range"] in (None, server.tag)
    is_part = bool(asked) and fresh and (behaviour, *number) != ("no", "range")
    if is_part and start >= len(content):
        handler.send_error(416)
        return
    if (behaviour, *number) == ("other", "range"):
        start += 1
    body = content[start:] if is_part else content
    handler.send_response(206 if is_part else 200)
    if is_part:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    if server.kind:
        handler.send_header("Content-Type", server.kind)
    if server.tag:
        handler.send_header("ETag", server.tag)
    if server.states_length or server.odd_length:
        handler.send_header("Content-Length", server.odd_length or str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[: int(number[0])] if behaviour == "break" else body)
