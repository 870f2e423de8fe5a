"""Serves pages to the browser of one person on this computer, and keeps others out.

The server listens on this computer's own address alone. Every start makes a new token for the printed address. A
request without it, or one that another site makes, is refused, also under a name that the site gave this address.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import re
import secrets
import socket
import sys
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from typing import Any

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from winobench.base import json_files
from winobench.base.errors import InputError

PORT = 8765
"""The port of a page, or else the next one that is free."""

_TRIED = 20  # ports after the usual one, before any free one is taken

# What a browser on this computer sends. Nothing else, such as a user's name before the address, is a host.
_LOCAL = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:\d{1,5})?", re.IGNORECASE)
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,250}[A-Za-z0-9])?(:\d{1,5})?")  # as allowed by its user
_LARGEST_BODY = 10_000
_LONGEST_LENGTH = 6  # digits
_SECONDS_OF_SILENCE = 30
_SECONDS_TO_END = 1  # of answers that are under way when a server ends
# No other page may frame this one and lead its clicks, read its items, or add to its script.
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}


class Server:
    """A running server."""

    def __init__(self, listener: socket.socket):
        self.server_address: tuple[str, int] = listener.getsockname()
        self.token = secrets.token_urlsafe(18)

    @property
    def server_port(self) -> int:
        return self.server_address[1]

    @property
    def cookie(self) -> str:
        """The cookie's name. Ports of one host share cookies, and two forwarded servers may have the same port."""
        return f"winobench_{hashlib.sha256(self.token.encode()).hexdigest()[:16]}"

    @property
    def address(self) -> str:
        """The first page's, token included."""
        return f"http://127.0.0.1:{self.server_port}/?token={self.token}"


@contextlib.contextmanager
def serve(
    routes: Sequence[BaseRoute], port: int | None = None, *, cookie: bool = False, hosts: Sequence[str] = ()
) -> Iterator[Server]:
    """A server on this computer's own address alone. It is running within the block.

    Every request must have the token in its address. With ``cookie``, opening the printed address keeps the token in a
    cookie, and other addresses need none. Requests under one of the ``hosts``, NAME or NAME:PORT, come from a proxy.

    Raises:
      InputError: a host is not a name, or the port cannot be used. Without one, `PORT` or another free one is taken.
    """
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise InputError(
                f"{host!r:.100} is not a host: write its name alone, or NAME:PORT, such as hub.example.org",
                code="bad-name",
            )
    with _listener(port) as listener:
        server = Server(listener)
        name = server.cookie if cookie else None
        config = uvicorn.Config(
            _Guard(Router(routes, redirect_slashes=False, default=_missing), server.token, name, hosts),
            http=_Protocol,
            ws="none",
            loop="asyncio",
            lifespan="off",
            log_config=None,
            log_level=logging.CRITICAL + 1,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_graceful_shutdown=_SECONDS_TO_END,
        )
        running = uvicorn.Server(config)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        while not running.started and thread.is_alive():
            time.sleep(0.005)
        try:
            yield server
        finally:
            running.should_exit = True
            thread.join()


def json_answer(content: Any, status: int = 200) -> Response:
    return Response(json.dumps(content, ensure_ascii=False), status, media_type="application/json")


async def short_json(request: Request) -> Any:
    """The value that a request sends. Raises ValueError for anything but short JSON, and says so."""
    length = request.headers.get("content-length", "")
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    # A form on another page can send everything but JSON without asking.
    if (
        kind != "application/json"
        or not (length.isascii() and length.isdecimal())
        or len(length) > _LONGEST_LENGTH
        or int(length) > _LARGEST_BODY
    ):
        raise ValueError("it is not short JSON")
    return json_files.parse(await request.body())


def _listener(port: int | None) -> socket.socket:
    *first, last = [*range(PORT, PORT + _TRIED), 0] if port is None else [port]
    for number in first:
        with contextlib.suppress(OSError):  # another page may be served there
            return _listening(number)
    try:
        return _listening(last)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"port {last} cannot be used ({reason}): choose another --port, or leave it out", code="port-not-free"
        ) from error


def _listening(port: int) -> socket.socket:
    # With the protocol's number, asyncio sends each answer at once.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(128)  # at once: until then others can bind it, too
    except BaseException:
        listener.close()
        raise
    return listener


async def _missing(scope: Scope, receive: Receive, send: Send) -> None:
    await json_answer({"error": "the page does not exist"}, 404)(scope, receive, send)


class _Guard:
    """Refuses what other pages ask, and what lacks the token. Adds the headers, and tells errors in one line."""

    def __init__(self, app: ASGIApp, token: str, cookie: str | None, hosts: Sequence[str]):
        self._app, self._token, self._cookie = app, token.encode(), cookie
        self._hosts = {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def begin(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            await (self._answer(Request(scope)) or self._app)(scope, receive, begin)
        except (ClientDisconnect, ConnectionError, TimeoutError):  # the reader has gone
            pass
        except Exception as error:
            print(f"error: a request to the page failed ({type(error).__name__}: {error})", file=sys.stderr)
            if has_begun:
                raise  # which ends the connection, so that the answer is not taken for a whole one
            await json_answer({"error": "the answer failed: the terminal says why"}, 500)(scope, receive, begin)

    def _answer(self, request: Request) -> Response | None:
        """The answer to a request that is refused, or that brings the token; None for others."""
        hosts, origins = request.headers.getlist("host"), request.headers.getlist("origin")
        host = hosts[0] if len(hosts) == 1 else ""
        is_proxy = host.lower() in self._hosts
        # A proxy may take requests by HTTPS and pass them on by HTTP.
        allowed = {f"{scheme}://{host}" for scheme in (("http", "https") if is_proxy else ("http",))}
        if not (is_proxy or _LOCAL.fullmatch(host)) or not set(origins) <= allowed:
            return json_answer({"error": "this page is for this computer alone"}, 403)
        query = urllib.parse.parse_qs(request.scope["query_string"].decode("latin-1"))
        tokens, is_kept = query.get("token", []), False
        if self._cookie is not None and "token" not in query:
            # Other servers of this computer may make the browser send the cookie, but not hide who asks.
            is_own = request.headers.get("sec-fetch-site", "none") in ("same-origin", "none")
            tokens, is_kept = [request.cookies.get(self._cookie, "")] if is_own else [], True
        if len(tokens) != 1 or not hmac.compare_digest(tokens[0].encode(), self._token):
            return json_answer({"error": "open the address as it was printed, with its token"}, 403)
        if self._cookie is None or is_kept or request.url.path != "/":
            return None
        # Relative: a proxy may serve this under a folder. Without the token: a browser keeps the part after #.
        answer = RedirectResponse("./", 303)
        answer.set_cookie(self._cookie, self._token.decode(), path="/", httponly=True, samesite="strict")
        return answer


class _Protocol(H11Protocol):
    """Ends connections on which nothing has moved for a while, and those whose requests cannot be made sense of."""

    _timer: asyncio.TimerHandle | None = None

    def _moved(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_SECONDS_OF_SILENCE, self.transport.abort)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._moved()

    def data_received(self, data: bytes) -> None:
        self._moved()
        try:
            super().data_received(data)
        except Exception:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        content = msg.encode()
        lines = ["HTTP/1.1 400 Bad Request", "Content-Type: text/plain; charset=utf-8", "Connection: close"]
        lines += [f"Content-Length: {len(content)}", *(f"{name}: {value}" for name, value in _HEADERS.items())]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + content)
        self.transport.close()

    def pause_writing(self) -> None:
        self._moved()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._moved()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)
