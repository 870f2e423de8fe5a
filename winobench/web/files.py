"""Answers that are files: open ones, so that what is sent is what was checked."""

from __future__ import annotations

import os
from collections.abc import Mapping

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send


class _OpenFile(FileResponse):
    """An open file, whole or a range of it. It is closed with the answer."""

    def __init__(self, descriptor: int, media_type: str, headers: Mapping[str, str] | None):
        self._descriptor = descriptor
        path = f"/dev/fd/{descriptor}"
        super().__init__(path, media_type=media_type, stat_result=os.fstat(descriptor), headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Many ranges at once cost more than they are worth: such a request is answered as a whole.
        headers = [(name, value) for name, value in scope["headers"] if not (name == b"range" and b"," in value)]
        try:
            await super().__call__({**scope, "headers": headers}, receive, send)
        finally:
            os.close(self._descriptor)


def file_answer(descriptor: int, media_type: str, headers: Mapping[str, str] | None = None) -> FileResponse:
    """The answer to a request for an open file, which it closes. A browser may ask for a range, and for changes."""
    return _OpenFile(descriptor, media_type, headers)
