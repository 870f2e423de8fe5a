"""A page on which one person judges items: valid, semi-valid or invalid (paper, section 2.2).

The page comes from a server on this computer, and nothing leaves it. A click is on disk before the page goes on, as a
line of the person's own file: the last line of an item counts, so that nothing is ever overwritten. Neither generator,
template nor anybody else's label is shown; the order is mixed, and the same for everyone at every start.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import html
import http.server
import importlib.resources
import json
import os
import pathlib
import re
import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from winobench import files, json_files
from winobench.errors import InputError
from winobench.wscplus_items.items import Item

LABELS = VALID, SEMI_VALID, INVALID = "valid", "semi-valid", "invalid"
"""What an item can be, from best to worst."""

PORT = 8765

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
# What a browser on this computer sends; nothing else, such as a user's name before the address, is a host.
_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_LARGEST_BODY = 10_000
_LONGEST_LENGTH = 6  # digits
_SECONDS_OF_SILENCE = 30
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
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; connect-src 'self';"
    " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
_SUFFIX = ".jsonl"


class Annotations:
    """One person's labels, in a file that only grows.

    A context manager: while it is open, no other process can write for the same person.
    """

    def __init__(self, folder: str | os.PathLike, name: str):
        """Names the file.

        Args:
          folder: of all people's files; made when the first one opens.
          name: the person's.

        Raises:
          InputError: the name is none that a file can have.
        """
        if not _NAME.fullmatch(name):
            raise InputError(
                f"the annotator's name {name!r} cannot be a file's: use letters, digits, - and _, 40 at most.",
                code="bad-name",
            )
        self.name = name
        self.path = pathlib.Path(folder) / f"{name}{_SUFFIX}"
        self.labels: dict[str, str] = {}
        self._file: int | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Annotations:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            if not files.lock(self._file):
                raise InputError(
                    f"the page of annotator {self.name!r} is open already: use that one, or end it.", code="in-use"
                )
            files.sync(self.path.parent)
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):  # the click was never answered, so that its person knows that it did not count
                os.ftruncate(self._file, whole)
            self.labels = _labels(content[:whole], self.path)
        except OSError as error:
            self.close()
            raise InputError(
                f"{self.path} cannot be written: {error.strerror or error}.", code="cannot-write"
            ) from error
        except InputError:
            self.close()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Lets other processes write for this person."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def add(self, item: str, label: str | None) -> None:
        """Stores a click; it is on disk when this returns.

        Args:
          item: its id.
          label: one of ``LABELS``; None takes the item's label back.

        Raises:
          OSError: it could not be stored, and does not count.
        """
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"item": item, "label": label, "time": moment}).encode() + b"\n"
        with self._lock:
            size = os.fstat(self._file).st_size
            try:
                done = 0
                while done < len(line):
                    done += os.write(self._file, line[done:])
                os.fsync(self._file)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, size)
                raise
            self.labels.pop(item, None)  # the order is that of the clicks
            if label is not None:
                self.labels[item] = label


def read_annotations(folder: str | os.PathLike) -> dict[str, dict[str, str]]:
    """Annotator -> item's id -> label, of all files in a folder; empty where there is none.

    Raises:
      InputError: a file is damaged.
    """
    found = {}
    for path in sorted(pathlib.Path(folder).glob(f"*{_SUFFIX}")):
        content = path.read_bytes()
        found[path.stem] = _labels(content[: content.rfind(b"\n") + 1], path)
    return found


def in_order(items: Sequence[Item]) -> list[Item]:
    """The items in the order in which they are shown: mixed, so that no generator or template is seen in a row."""
    return sorted(items, key=lambda item: hashlib.sha256(item.id.encode()).digest())


@contextlib.contextmanager
def serve(items: Sequence[Item], annotations: Annotations, port: int = PORT) -> Iterator[http.server.HTTPServer]:
    """A server for the page, on this computer's own address alone; it is running within the block.

    Args:
      items: what to judge.
      annotations: where to, open.
      port: to listen on; 0 for any free one.

    Yields:
      The server; its ``server_port`` is the port.

    Raises:
      InputError: the port is taken.
    """
    shown = [_shown(item) for item in in_order(items)]
    handler = type("Handler", (_Handler,), {"shown": shown, "annotations": annotations})
    try:
        server = _Server(("127.0.0.1", port), handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"port {port} cannot be used ({reason}): choose another --port.", code="port-not-free"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def page(annotator: str) -> str:
    """The page's HTML, which loads nothing but its own server's items."""
    template = importlib.resources.files(__package__).joinpath("templates/annotate.html").read_text(encoding="utf-8")
    return template.replace("%ANNOTATOR%", html.escape(annotator))


def _shown(item: Item) -> dict[str, Any]:
    """What the page is told of an item."""
    return {
        "id": item.id,
        "type": item.origin.type,
        "sentences": [
            {
                "statement": one.statement,
                "pronoun": one.pronoun,
                "snippet": one.snippet,
                "options": list(one.options),
                "answer": one.answer,
                "reason": one.reason,
            }
            for one in item.sentences
        ],
    }


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says in one line what went wrong in an answer; nothing where its reader has gone."""
        error = sys.exception()
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"error: a request to the page failed ({type(error).__name__}: {error})", file=sys.stderr)


class _Handler(http.server.BaseHTTPRequestHandler):
    """GET / is the page, GET /items what it shows, POST /label stores a click."""

    shown: Sequence[dict[str, Any]]
    annotations: Annotations
    timeout = _SECONDS_OF_SILENCE

    def do_GET(self) -> None:
        if not self._is_local():
            return
        path = self.path.partition("?")[0]
        if path == "/":
            nonce = secrets.token_urlsafe()
            content = page(self.annotations.name).replace("<script>", f'<script nonce="{nonce}">', 1)
            self._answer(200, content, "text/html; charset=utf-8", nonce)
        elif path == "/items":
            content = {"annotator": self.annotations.name, "items": self.shown, "labels": dict(self.annotations.labels)}
            self._answer_json(200, content)
        else:
            self._answer_json(404, {"error": "there is no such page"})

    def do_POST(self) -> None:
        if not self._is_local():
            return
        length = self.headers.get("Content-Length", "")
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip()
        if self.path.partition("?")[0] != "/label":
            self._answer_json(404, {"error": "there is no such page"})
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
        try:
            click = json_files.parse(body)
            item, label = click["item"], click["label"]
        except (ValueError, TypeError, KeyError):
            self._answer_json(400, {"error": "a label is an object with item and label"})
            return
        if not any(item == one["id"] for one in self.shown) or label not in (*LABELS, None):
            self._answer_json(400, {"error": "there is no such item, or no such label"})
            return
        try:
            self.annotations.add(item, label)
        except OSError as error:
            self._answer_json(500, {"error": f"the label could not be stored: {error.strerror or error}"})
            return
        self._answer_json(200, {"item": item, "label": label})

    def _is_local(self) -> bool:
        """Refuses requests that pages of other origins make, also under a name that they have given this address."""
        hosts, origins = self.headers.get_all("Host", []), self.headers.get_all("Origin", [])
        if len(hosts) == 1 and _LOCAL.fullmatch(hosts[0]) and set(origins) <= {f"http://{hosts[0]}"}:
            return True
        self._answer_json(403, {"error": "this page is for this computer alone"})
        return False

    def _answer_json(self, status: int, content: Any) -> None:
        self._answer(status, json.dumps(content, ensure_ascii=False), "application/json; charset=utf-8")

    def _answer(self, status: int, text: str, kind: str, nonce: str = "") -> None:
        body = text.encode()
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
        """Says nothing: a line a click would bury what the launcher has printed."""


def _labels(content: bytes, path: pathlib.Path) -> dict[str, str]:
    """The last label of each item."""
    labels: dict[str, str] = {}
    for number, line in enumerate(content.splitlines(), 1):
        try:
            click = json_files.parse(line)
            item, label = click["item"], click["label"]
        except (ValueError, TypeError, KeyError):
            item, label = None, None
        if not isinstance(item, str) or label not in (*LABELS, None):
            raise InputError(
                f"{path}, line {number} is no label: delete this line, or restore the file.", code="damaged-file"
            )
        labels.pop(item, None)
        if label is not None:
            labels[item] = label
    return labels
