"""Answers with versions and byte ranges."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send


class _OpenFile(FileResponse):
    """An open file, whole or a range of it. It is closed with the answer."""

    def __init__(self, descriptor: int, media_type: str, headers: Mapping[str, str] | None):
        self._descriptor = descriptor
        path = f"/dev/fd/{descriptor}"
        super().__init__(path, media_type=media_type, stat_result=os.fstat(descriptor), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            if _is_known(scope, self.headers["etag"]):
                await _not_changed(self)(scope, receive, send)
                return
            # Many ranges at once cost more than they are worth: such a request is answered as a whole.
            headers = [(name, value) for name, value in scope["headers"] if not (name == b"range" and b"," in value)]
            await super().__call__({**scope, "headers": headers}, receive, send)
        finally:
            os.close(self._descriptor)


class _Content(Response):
    """A content that each request computes."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers["ETag"] = f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'
        if _is_known(scope, self.headers["etag"]):
            await _not_changed(self)(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def file_answer(descriptor: int, media_type: str, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a request for an open file, which it closes. A browser may ask for a range, and for changes."""
    return _OpenFile(descriptor, media_type, headers)


def content_answer(content: bytes, media_type: str) -> Response:
    """A content, of which a browser may ask for changes."""
    return _Content(content, media_type=media_type)


def _is_known(scope: Scope, etag: str) -> bool:
    return etag in [tag.strip() for tag in Headers(scope=scope).get("if-none-match", "").split(",")]


def _not_changed(answer: Response) -> Response:
    kept = ("etag", "cache-control", "content-security-policy")
    return Response(status_code=304, headers={name: answer.headers[name] for name in kept if name in answer.headers})
