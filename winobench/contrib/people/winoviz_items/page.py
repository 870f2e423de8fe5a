"""The page on which one person writes WinoViz items: contrasts, sentences, and the puzzle that they make up.

The steps are the paper's (appendix A.5, Figures 5 to 8 of the arXiv version). The words are ours.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import jinja2
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from winobench import web
from winobench.contrib.people import judging
from winobench.contrib.people.winoviz_items.written import Written
from winobench.data import winoviz


@contextlib.contextmanager
def serve(written: Written, port: int | None = None) -> Iterator[web.Server]:
    """A running server for the page of one person, as `winobench.web.serve`."""
    shown = _Shown(written)
    routes = [
        Route("/", shown.html),
        Route("/items", shown.items),
        Route("/item", shown.item, methods=["POST"]),
        Route("/skip", shown.skip, methods=["POST"]),
    ]
    with web.serve(routes, port) as server:
        yield server


def html(person: str) -> str:
    """The page's HTML, which loads nothing but its own server's objects."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__), autoescape=True, undefined=jinja2.StrictUndefined
    )
    template = environment.get_template("write.html.jinja")
    return template.render(person=person, kinds=winoviz.ATTRIBUTE_KINDS)


class _Shown:
    """The answers to the page's requests."""

    def __init__(self, written: Written):
        self._written = written

    def html(self, request: Request) -> Response:
        return judging.page_answer(html(self._written.name))

    def items(self, request: Request) -> Response:
        return web.json_answer({"left": self._written.left, "written": len(self._written.items)})

    async def item(self, request: Request) -> Response:
        try:
            sent = await web.short_json(request)
            if not isinstance(sent, dict):
                raise ValueError("it is not an object")
        except ValueError as error:
            return web.json_answer({"problems": [f"The item was not read: {error}."]}, 400)
        try:
            problems = await run_in_threadpool(self._written.add, sent)
        except OSError as error:
            return web.json_answer({"problems": [f"The item was not stored: {error.strerror or error}."]}, 500)
        return web.json_answer({"problems": problems}, 400 if problems else 200)

    async def skip(self, request: Request) -> Response:
        try:
            sent = await web.short_json(request)
            object = sent["object"]
        except (ValueError, TypeError, KeyError):
            return web.json_answer({"problems": ["Name an object."]}, 400)
        if object not in self._written.objects:
            return web.json_answer({"problems": ["The object is not on the list."]}, 400)
        try:
            await run_in_threadpool(self._written.skip, object)
        except OSError as error:
            return web.json_answer({"problems": [f"The click was not stored: {error.strerror or error}."]}, 500)
        return web.json_answer({"problems": []})
