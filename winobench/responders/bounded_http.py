"""HTTP calls that end: with a bound on the whole time of a call and on the size of its answer.

The official clients bound the time between two bytes and nothing else: a server that sends a byte a second keeps a call
for ever, one that never stops fills the memory. They take an HTTP client of one's own, though, and this module makes
one of theirs: it sends each request as theirs would, reads the answer piece by piece, and hands on a whole one.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_PACKED = ("gzip", "x-gzip")


class BrokenOff(Exception):
    """A call was ended here; the message says why."""


class TooLate(BrokenOff):
    """The answer was not there in time."""


class TooLarge(BrokenOff):
    """The answer is larger than allowed."""


def client_class(base: type, *, seconds: float, largest: int) -> type:
    """A class of HTTP clients whose calls have bounds, for one call at a time.

    Args:
      base: a client's class of HTTPX's interface, such as the official clients' ``DefaultHttpxClient``.
      seconds: of a whole call, from its first byte sent (after the connection is made, which has a limit of its own)
        to the last one received.
      largest: bytes of an answer's body, unpacked.

    Returns:
      A subclass of ``base``. Its ``send`` raises `TooLate` and `TooLarge`, and hands on a whole answer as if ``base``
      had read it.
    """

    class Client(base):
        _watch: _Watch | None = None
        _socket: socket.socket | None = None  # of the connection that was used last: the next call may use it again

        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            del stream  # nothing is handed on before all of it has been counted
            # What is packed can unpack to any size. Of this kind pieces can be unpacked one by one.
            request.headers["Accept-Encoding"] = "gzip"
            request.extensions = {**request.extensions, "trace": self._traced}
            self._watch = watch = _Watch(seconds, self._socket)
            response = None
            try:
                response = super().send(request, stream=True, **options)
                content = _read(response.iter_raw(), response.headers.get("content-encoding", ""), largest)
            except BrokenOff:
                raise
            except Exception as error:
                if watch.is_over:
                    raise _too_late(seconds) from error
                raise
            finally:
                watch.end()
                if response is not None:
                    response.close()
            # A connection that was cut looks like the end of a body whose length nobody has said.
            if watch.is_over:
                raise _too_late(seconds)
            left_out = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(name, value) for name, value in response.headers.multi_items() if name not in left_out]
            return type(response)(
                response.status_code,
                headers=headers,
                content=content,
                request=response.request,
                extensions={
                    name: response.extensions[name]
                    for name in ("http_version", "reason_phrase")
                    if name in response.extensions
                },
            )

        def _traced(self, event: str, info: dict[str, Any]) -> None:
            """HTTPX's ``trace`` extension: tells which connection a call uses, before there is an answer."""
            if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
                self._socket = info["return_value"].get_extra_info("socket")
                self._watch.change(self._socket)

    return Client


class Pool:
    """Clients for several calls at a time: as many as there are calls, each with its connection."""

    def __init__(self, make: Callable[[], Any]):
        """Takes the function that makes a client, and makes the first one, so that what cannot be made is told now."""
        self._make = make
        self._free: queue.LifoQueue[Any] = queue.LifoQueue()
        self._free.put(make())

    @contextlib.contextmanager
    def client(self) -> Iterator[Any]:
        """A client that nobody else uses."""
        try:
            client = self._free.get_nowait()
        except queue.Empty:
            client = self._make()
        try:
            yield client
        finally:
            self._free.put(client)


class _Watch:
    """Cuts a call's connection when its time is over, whatever the call waits for."""

    def __init__(self, seconds: float, connection: socket.socket | None):
        self.is_over = False
        self._connection = connection
        self._ended = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._timer.start()

    def change(self, connection: socket.socket | None) -> None:
        """Says which connection the call uses from now on."""
        with self._lock:
            self._connection = connection
            if self.is_over:
                _shut(connection)

    def end(self) -> None:
        """The call has ended: from now on its connection may be another one's."""
        self._timer.cancel()
        with self._lock:
            self._ended = True

    def _cut(self) -> None:
        with self._lock:
            if not self._ended:
                self.is_over = True
                _shut(self._connection)


def _shut(connection: socket.socket | None) -> None:
    """Ends the waiting of another thread for a connection; closing it would not."""
    if connection is not None:
        with contextlib.suppress(OSError):
            # Not the method of a TLS connection, which another thread is reading.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)


def _too_late(seconds: float) -> TooLate:
    return TooLate(f"no whole answer within {seconds:g} s")


def _read(pieces: Iterable[bytes], encoding: str, largest: int) -> bytes:
    """A body from its pieces."""
    encoding = encoding.strip().lower()
    if encoding not in ("", "identity", *_PACKED):
        raise BrokenOff(f"the answer is packed as {encoding[:40]!r}, which was not asked for")
    packed = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding in _PACKED else None
    content = bytearray()
    for piece in pieces:
        if packed is not None:
            try:
                piece = packed.decompress(piece, largest + 1 - len(content))
            except zlib.error as error:
                raise BrokenOff(f"the answer cannot be unpacked ({error})") from None
        content += piece
        if len(content) > largest:
            raise TooLarge(f"the answer has more than {largest / 2**20:.4g} MB")
    if packed is not None and content and not packed.eof:
        raise BrokenOff("the answer cannot be unpacked (it ends too early)")
    return bytes(content)
