"""A page on which one person judges: its items, and where its clicks go."""

from __future__ import annotations

import contextlib
import dataclasses
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from winobench import web
from winobench.contrib.people.judging.labels import Labels

_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src 'self' data:;"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


@dataclasses.dataclass(frozen=True)
class Page:
    """The items that a person judges on a page.

    The HTML has one ``<script>`` (`judging.render`). It gets ``items?token=...`` (``person``, ``items``,
    ``labels``) and posts ``{"item": id, "label": label or null}`` to ``label?token=...``, with its address's token.
    """

    html: str
    items: Sequence[dict[str, Any]]  # in the order in which they are shown, each with its id
    labels: Labels  # open
    image: Callable[[str], bytes | None] = lambda name: None  # name -> a PNG file's content, for pictures/<name>


@contextlib.contextmanager
def serve(page: Page, port: int | None = None) -> Iterator[web.Server]:
    """A server for a page, as `winobench.web.serve`."""
    shown = _Shown(page)
    routes = [
        Route("/", shown.html),
        Route("/items", shown.items),
        Route("/pictures/{name:path}", shown.image),
        Route("/label", shown.label, methods=["POST"]),
    ]
    with web.serve(routes, port) as server:
        yield server


def page_answer(html: str) -> Response:
    """A page whose one ``<script>`` runs, and that may load and send to its own server alone."""
    nonce = secrets.token_urlsafe()
    content = html.replace("<script>", f'<script nonce="{nonce}">', 1)
    headers = {"Content-Security-Policy": _POLICY.format(nonce=nonce)}
    return Response(content, headers=headers, media_type="text/html")


class _Shown:
    """The answers to a page's requests."""

    def __init__(self, page: Page):
        self._page = page
        self._ids = frozenset(item["id"] for item in page.items)

    def html(self, request: Request) -> Response:
        return page_answer(self._page.html)

    def items(self, request: Request) -> Response:
        labels = self._page.labels
        return web.json_answer({"person": labels.name, "items": self._page.items, "labels": dict(labels.labels)})

    def image(self, request: Request) -> Response:
        image = self._page.image(request.path_params["name"])
        if image is None:
            return web.json_answer({"error": "the page does not exist"}, 404)
        return Response(image, media_type="image/png")

    async def label(self, request: Request) -> Response:
        try:
            click = await web.short_json(request)
            item, label = click["item"], click["label"]
        except (ValueError, TypeError, KeyError):
            return web.json_answer({"error": "a label is a short JSON object with item and label"}, 400)
        labels = self._page.labels
        if not isinstance(item, str) or item not in self._ids or label not in (*labels.choices, None):
            return web.json_answer({"error": "the item does not exist, or no such label"}, 400)
        try:
            await run_in_threadpool(labels.add, item, label)
        except OSError as error:
            return web.json_answer({"error": f"the label could not be stored: {error.strerror or error}"}, 500)
        return web.json_answer({"item": item, "label": label})
