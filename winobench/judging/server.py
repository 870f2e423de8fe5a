"""A page on this computer for one person: the server that shows it and stores its clicks, and keeps others out.

It listens on this computer's own address alone. The page's address has a token in it, which is drawn at every start. A
request without it, or one that another site makes, is refused, also under a name that it has given this address.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hmac
import http.server
import json
import re
import secrets
import sys
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from winobench.base import json_files
from winobench.base.errors import InputError
from winobench.judging.labels import Labels

PORT = 8765
"""The port of a page, or else the next one that is free."""

_TRIED = 20  # ports after the usual one, before any free one is taken

# What a browser on this computer sends. Nothing else, such as a user's name before the address, is a host.
_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_LARGEST_BODY = 10_000
_LONGEST_LENGTH = 6  # digits
_SECONDS_OF_SILENCE = 30
_PICTURES = "/pictures/"
# No other page may frame this one and lead its clicks, read its items, or add to its script.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src 'self' data:;"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


@dataclasses.dataclass(frozen=True)
class Page:
    """What is judged on a page.

    The HTML has one ``<script>`` (`winobench.judging.render`). It gets ``items?token=...`` (``person``, ``items``,
    ``labels``) and posts ``{"item": id, "label": label or null}`` to ``label?token=...``, with its address's token.
    """

    html: str
    items: Sequence[dict[str, Any]]  # in the order in which they are shown, each with its id
    labels: Labels  # open
    picture: Callable[[str], bytes | None] = lambda name: None  # name -> a PNG file's content, for pictures/<name>


class Server(http.server.ThreadingHTTPServer):
    """Serves one page. Every request must have its token."""

    daemon_threads = True

    def __init__(self, page: Page, port: int):
        self.page = page
        self.ids = frozenset(item["id"] for item in page.items)
        self.token = secrets.token_urlsafe(18)
        super().__init__(("127.0.0.1", port), _Handler)

    @property
    def address(self) -> str:
        """The page's, token included."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says in one line what went wrong in an answer. Nothing where its reader has gone."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"error: a request to the page failed ({type(error).__name__}: {error})", file=sys.stderr)


@contextlib.contextmanager
def serve(page: Page, port: int | None = None) -> Iterator[Server]:
    """A server for a page, on this computer's own address alone. It is running within the block.

    Raises:
      InputError: the port cannot be used. Without one, `PORT` or another free one is taken.
    """
    server = _server(page, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _server(page: Page, port: int | None) -> Server:
    *first, last = [*range(PORT, PORT + _TRIED), 0] if port is None else [port]
    for number in first:
        with contextlib.suppress(OSError):  # another page may be served there
            return Server(page, number)
    try:
        return Server(page, last)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"port {last} cannot be used ({reason}): choose another --port, or leave it out", code="port-not-free"
        ) from error


class _Handler(http.server.BaseHTTPRequestHandler):
    """GET / is the page, /items what it shows, /pictures/<name> an image; POST /label stores a click."""

    server: Server
    timeout = _SECONDS_OF_SILENCE

    def do_GET(self) -> None:
        if not self._is_allowed():
            return
        page, path = self.server.page, self.path.partition("?")[0]
        if path == "/":
            nonce = secrets.token_urlsafe()
            content = page.html.replace("<script>", f'<script nonce="{nonce}">', 1)
            self._answer(200, content.encode(), "text/html; charset=utf-8", nonce)
        elif path == "/items":
            labels = page.labels
            self._answer_json(200, {"person": labels.name, "items": page.items, "labels": dict(labels.labels)})
        elif path.startswith(_PICTURES) and (picture := page.picture(path.removeprefix(_PICTURES))) is not None:
            self._answer(200, picture, "image/png")
        else:
            self._answer_json(404, {"error": "the page does not exist"})

    def do_POST(self) -> None:
        if not self._is_allowed():
            return
        length = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        if self.path.partition("?")[0] != "/label":
            self._answer_json(404, {"error": "the page does not exist"})
        # A form on another page can send everything but JSON without asking.
        elif (
            kind != "application/json"
            or not length.isdecimal()
            or len(length) > _LONGEST_LENGTH
            or int(length) > _LARGEST_BODY
        ):
            self._answer_json(400, {"error": "a label is sent as a short JSON object"})
        else:
            self._store(self.rfile.read(int(length)))

    def _store(self, body: bytes) -> None:
        labels = self.server.page.labels
        try:
            click = json_files.parse(body)
            item, label = click["item"], click["label"]
        except (ValueError, TypeError, KeyError):
            self._answer_json(400, {"error": "a label is an object with item and label"})
            return
        if not isinstance(item, str) or item not in self.server.ids or label not in (*labels.choices, None):
            self._answer_json(400, {"error": "the item does not exist, or no such label"})
            return
        try:
            labels.add(item, label)
        except OSError as error:
            self._answer_json(500, {"error": f"the label could not be stored: {error.strerror or error}"})
            return
        self._answer_json(200, {"item": item, "label": label})

    def _is_allowed(self) -> bool:
        """Refuses requests that other pages make, and those without the token."""
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) != 1 or not _LOCAL.fullmatch(hosts[0]) or not set(origins) <= {f"http://{hosts[0]}"}:
            self._answer_json(403, {"error": "this page is for this computer alone"})
            return False
        tokens = urllib.parse.parse_qs(self.path.partition("?")[2]).get("token", [])
        if len(tokens) != 1 or not hmac.compare_digest(tokens[0].encode(), self.server.token.encode()):
            self._answer_json(403, {"error": "open the address as it was printed, with its token"})
            return False
        return True

    def _answer_json(self, status: int, content: Any) -> None:
        self._answer(status, json.dumps(content, ensure_ascii=False).encode(), "application/json; charset=utf-8")

    def _answer(self, status: int, body: bytes, kind: str, nonce: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", _POLICY.format(nonce=nonce))
        self.end_headers()
        # The reader may have gone.
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing: a line per click would bury what the launcher has printed."""
