"""Answers of a bounded size. The official clients take an HTTP client from outside, but read a body without a limit."""

from __future__ import annotations

import zlib
from typing import Any

_PACKED = ("gzip", "x-gzip")


class Unusable(Exception):
    """An answer is too large, or cannot be unpacked. The message says why."""


def client_class(base: type, largest: int) -> type:
    """A subclass of HTTPX's client that raises `Unusable` for more than ``largest`` unpacked bytes of a body."""

    class Client(base):
        async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            del stream  # all of the body is counted before it is passed on
            # A packed body can unpack to any size. This kind can be unpacked piece by piece.
            request.headers["Accept-Encoding"] = "gzip"
            response = await super().send(request, stream=True, **options)
            try:
                content = await _read(response, largest)
            finally:
                await response.aclose()
            left_out = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(name, value) for name, value in response.headers.multi_items() if name not in left_out]
            extensions = {name: value for name, value in response.extensions.items() if name != "network_stream"}
            return type(response)(
                response.status_code, headers=headers, content=content, request=response.request, extensions=extensions
            )

    return Client


async def _read(response: Any, largest: int) -> bytes:
    encoding = response.headers.get("content-encoding", "").strip().lower()
    if encoding not in ("", "identity", *_PACKED):
        raise Unusable(f"the answer is packed as {encoding[:40]!r}, which was not asked for")
    packed = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding in _PACKED else None
    content = bytearray()
    async for piece in response.aiter_raw():
        try:
            content += piece if packed is None else packed.decompress(piece, largest + 1 - len(content))
        except zlib.error as error:
            raise Unusable(f"the answer cannot be unpacked ({error})") from None
        if len(content) > largest:
            raise Unusable(f"the answer has more than {largest / 2**20:.4g} MB")
    if packed is not None and content and not packed.eof:
        raise Unusable("the answer cannot be unpacked (it ends too early)")
    return bytes(content)
