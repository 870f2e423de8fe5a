"""The viewer's server: the application and its addresses."""

from __future__ import annotations

import contextlib
import html
import json
import os
import pathlib
import re
import threading
from collections.abc import Iterator, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from winobench import web
from winobench.base.errors import InputError
from winobench.viewer import library, site
from winobench.viewer.worker import Crash, Worker

APP = pathlib.Path(__file__).parent / "app"
"""The application's folder."""

_KINDS = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".wasm": "application/wasm",
}
_TEXT = "text/plain"
# Of the page itself: the other one is of a file's meta tag, which static hosts send as well.
_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')
_SECONDS_TO_WAIT, _SECONDS_TO_WAIT_LONG = 1.0, 300.0


@contextlib.contextmanager
def serve(
    paths: Sequence[str | os.PathLike[str]],
    port: int | None = None,
    reproduce: str | None = None,
    hosts: Sequence[str] = (),
) -> Iterator[web.Server]:
    """A server for the runs in some folders. It is running within the block.

    Args:
      paths: folders of runs, or ones that hold runs.
      port: of the page; `winobench.web.PORT` or another free one without.
      reproduce: a function, as ``module:name``, from a run to the command by which it is made again.
      hosts: names under which a proxy serves the page, besides this computer's own.

    Raises:
      InputError: the port cannot be used, or a host is not a name.
    """
    with Worker("winobench.viewer.tasks") as worker:
        pages = _Pages(site.Site(library.Library(paths), reproduce), worker)
        routes = [Route("/data/{address:path}", pages.data), Route("/{name:path}", pages.app)]
        with web.serve(routes, port, cookie=True, hosts=hosts) as server:
            # The first page needs none of it, and the second one does not wait.
            threading.Thread(target=site.preload, daemon=True).start()
            yield server


class _Pages:
    """The answers to requests."""

    def __init__(self, found: site.Site, worker: Worker):
        self._site, self._worker = found, worker

    def app(self, request: Request) -> Response:
        name = request.path_params["name"] or "index.html"
        try:
            descriptor = library.opened(str(APP.resolve()), name)
        except (OSError, ValueError):
            return web.json_answer({"error": "the page does not exist"}, 404)
        headers = {"Cache-Control": "no-cache"}
        suffix = pathlib.PurePath(name).suffix
        if suffix in (".html", ".js"):  # a worker takes the policy from its file
            headers["Content-Security-Policy"] = _policy()
        kind = _KINDS.get(suffix, _TEXT)
        return web.file_answer(descriptor, kind, headers)

    def data(self, request: Request) -> Response:
        try:
            return self._data(self._site.find(request.path_params["address"]))
        except (site.Missing, InputError) as error:
            return web.json_answer({"error": _sentence(error)}, 404)
        except Crash as error:
            return web.json_answer({"error": _sentence(error)}, 500)

    def _data(self, target: site.File | site.Document | site.Work) -> Response:
        if isinstance(target, site.Document):
            content = json.dumps(target.value, ensure_ascii=False, allow_nan=False)
            return web.content_answer(content.encode(), site.JSON)
        if isinstance(target, site.File):
            return web.file_answer(site.open_file(target), target.media_type)
        wait = _SECONDS_TO_WAIT_LONG if target.waits else _SECONDS_TO_WAIT
        path = self._worker.find(target.function, target.arguments, target.version, wait)
        if path is None:
            return web.json_answer({"state": "computing"}, 202)
        headers = {"Content-Disposition": f'attachment; filename="{target.file_name}"'} if target.file_name else None
        return web.file_answer(os.open(path, os.O_RDONLY), target.media_type, headers)


def _policy() -> str:
    """The policy of the application's page, which other pages must not frame."""
    found = _POLICY.search((APP / "index.html").read_text(encoding="utf-8"))
    own = html.unescape(found[1]) if found else "default-src 'none'"
    return f"{own}; frame-ancestors 'none'"


def _sentence(error: Exception) -> str:
    said = str(error).rstrip(".")
    return f"{said[:1].upper()}{said[1:]}."
